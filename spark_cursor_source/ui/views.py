"""Pages that are answered from the snapshot in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from spark_cursor_source.admin.last_errors import cell_of
from spark_cursor_source.admin.partition_map import PartitionMap
from spark_cursor_source.admin.snapshots import Snapshot as Saved
from spark_cursor_source.admin.snapshots import snapshots_of
from spark_cursor_source.core.blocked import NONE_BLOCKED
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import UNDO
from spark_cursor_source.core.message_state import Order
from spark_cursor_source.ui.collector import Collector, Row, Snapshot
from spark_cursor_source.ui.drawing import CELLS, GRID, strip_of
from spark_cursor_source.ui.pages import COLUMNS, ROWS, Pages, members, number_of, sorted_rows, stuck
from spark_cursor_source.ui.settings import UiSettings

_LOOK_S = 0.2  # interval at which an open event stream looks for a new snapshot
_BEAT_S = 5.0  # interval of the events of a quiet stream; a page that hears none for three of them says so


class Views:
    """Answers of one page. All but the event stream run in threads and read one snapshot each."""

    def __init__(self, collector: Collector, settings: UiSettings, pages: Pages) -> None:
        self._collector = collector
        self._settings = settings
        self._pages = pages

    def overview(self, request: Request) -> Response:
        snapshot = self._collector.snapshot
        rows, column, direction = sorted_rows(snapshot.rows, request.query_params)
        most = len(rows) if request.query_params.get("rows") == "all" else ROWS
        return self._pages.answer(
            request,
            snapshot,
            "overview.html",
            columns=COLUMNS,
            rows=rows[:most],
            matching=len(rows),
            sort=column,
            direction=direction,
            wanted=request.query_params.get("q", ""),
            all_rows=request.query_params.get("rows"),
        )

    def subscription(self, request: Request) -> Response:
        snapshot = self._collector.snapshot
        row = self._row(request, snapshot)
        if row is None:
            return self._missing(request, snapshot)
        maps = [one for part in row.stats.partitions if (one := snapshot.map(part.cell)) is not None]
        return self._pages.answer(
            request,
            snapshot,
            "subscription.html",
            row=row,
            maps=maps,
            zoom=_zoom(request, snapshot, maps),
            actions=self._settings.allow_actions,
            saved=saved_of(snapshot, row),
            curves=self._collector.curves(row.topic, row.subscription),
        )

    def stuck(self, request: Request) -> Response:
        snapshot = self._collector.snapshot
        order: Order = "most_delivered" if request.query_params.get("order") == "most_delivered" else "oldest"
        found = stuck(snapshot, order)
        cursors = {} if snapshot.view is None else snapshot.view.cursors
        return self._pages.answer(
            request,
            snapshot,
            "stuck.html",
            order=order,
            messages=self._collector.errors.look(
                found, lambda: {cell: cursors[cell].outstanding for cell in set(map(cell_of, found))}
            ),
            unread=self._collector.errors.failure,
        )

    def consumers(self, request: Request) -> Response:
        snapshot = self._collector.snapshot
        idle = [row for row in snapshot.rows if row.health[1] == "no consumers"]
        return self._pages.answer(
            request, snapshot, "consumers.html", members=list(members(snapshot)), idle=idle
        )

    def tracker(self, request: Request) -> Response:
        return self._pages.answer(
            request, self._collector.snapshot, "tracker.html", markers_topic=self._settings.markers_topic
        )

    async def events(self, request: Request) -> Response:
        return StreamingResponse(self._events(), media_type="text/event-stream")

    async def _events(self) -> AsyncIterator[str]:
        shown, quiet_s = -1, 0.0
        while not self._collector.stopping:
            number = self._collector.snapshot.number
            if number != shown:
                shown, quiet_s = number, 0.0
                yield f"event: snapshot\ndata: {number}\n\n"
            elif quiet_s >= _BEAT_S:
                quiet_s = 0.0
                yield f"event: beat\ndata: {number}\n\n"
            await anyio.sleep(_LOOK_S)
            quiet_s += _LOOK_S

    def health(self, request: Request) -> Response:
        failure = self._collector.snapshot.failure
        state = "starting" if self._collector.snapshot.view is None else "ok"
        return JSONResponse({"status": state if failure is None else type(failure).__name__})

    def api_stats(self, request: Request) -> Response:
        view = self._collector.snapshot.view
        if view is None:
            return _unavailable(self._collector.snapshot)
        return Response(view.stats.to_json(), media_type="application/json")

    def api_map(self, request: Request) -> Response:
        snapshot = self._collector.snapshot
        row = self._row(request, snapshot)
        if row is None:
            return JSONResponse({"error": "no such subscription"}, 404)
        width = min(1_000, max(1, number_of(request, "width") or CELLS))
        maps = filter(None, (snapshot.map(part.cell) for part in row.stats.partitions))
        return JSONResponse({str(one.partition): _map_told(one, width) for one in maps})

    def _row(self, request: Request, snapshot: Snapshot) -> Row | None:
        query = request.query_params
        return snapshot.row(query.get("topic", ""), query.get("name", ""))

    def _missing(self, request: Request, snapshot: Snapshot) -> Response:
        query = request.query_params
        names = {"topic": query.get("topic", ""), "name": query.get("name", "")}
        # During the start nothing is known yet; the page then waits for the first snapshot.
        status = 404 if snapshot.view is not None else 200
        return self._pages.answer(request, snapshot, "missing.html", status=status, **names)


def saved_of(snapshot: Snapshot, row: Row) -> list[tuple[Saved, bool]]:
    """Returns the snapshots of a subscription, the latest first; True: the state before its last move."""
    view = snapshot.view
    cursors = [] if view is None else [view.cursors[part.cell] for part in row.stats.partitions]
    found = sorted(snapshots_of(cursors), key=lambda one: -one.at_ms)
    return [(one, one.name == UNDO) for one in found]


def _zoom(request: Request, snapshot: Snapshot, maps: list[PartitionMap]) -> dict[str, object] | None:
    """Returns what the zoom into a range of a partition shows, or None without one."""
    one = next((one for one in maps if one.partition == number_of(request, "partition")), None)
    if one is None:
        return None
    first = max(one.first, number_of(request, "from") or one.first)
    end = min(one.end, number_of(request, "to") or one.end)
    if first >= end:  # the mark-delete position has passed the range
        first, end = one.first, min(one.end, one.first + max(1, end - first))
    messages: list[tuple[int, str]] = []
    if end - first <= GRID:
        for start, stop, state in one.runs_between(first, end):
            messages += [(offset, state) for offset in range(start, stop)]
    size = end - first
    cell = Cell(subscription=one.subscription, topic=one.topic, partition=one.partition)
    cursor = None if snapshot.view is None else snapshot.view.cursors.get(cell)
    return {
        "map": one,
        "first": first,
        "end": end,
        "strip": strip_of(one, first, end),
        "messages": messages,
        "blocked": NONE_BLOCKED if cursor is None else cursor.blocked,
        "before": (max(one.first, first - size), first) if first > one.first else None,
        "after": (end, min(one.end, end + size)) if end < one.end else None,
        "out": (max(one.first, first - 2 * size), min(one.end, end + 2 * size)),
    }


def _map_told(one: PartitionMap, width: int) -> dict[str, object]:
    cells = [{"first": cell.first, "end": cell.end, **dict(cell.present)} for cell in one.cells(width)]
    names = ("mark_delete", "read_position", "log_start", "log_end")
    return {name: getattr(one, name) for name in names} | {"cells": cells}


def _unavailable(snapshot: Snapshot) -> Response:
    why = "no answer of the brokers yet" if snapshot.failure is None else str(snapshot.failure)
    return JSONResponse(json.loads(json.dumps({"error": why})), 503)
