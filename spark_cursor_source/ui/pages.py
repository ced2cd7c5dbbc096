"""Templates of the page, and the values that each of them shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse

from spark_cursor_source.admin.outstanding import run_of_query
from spark_cursor_source.core.counted import counted
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.message_state import MessageState, Order, outstanding_of, rank
from spark_cursor_source.core.names import DEFAULT_DEAD_LETTER_TOPIC, dead_letter_topic
from spark_cursor_source.core.stats import ConsumerStats
from spark_cursor_source.ui import words
from spark_cursor_source.ui.collector import Row, Snapshot
from spark_cursor_source.ui.drawing import bars_of, drawn, strip_of

HERE = Path(__file__).parent
ROWS = 200  #: rows of the overview before "show all"
MOST = 50  #: messages of the page of the oldest
_CELLS = 60  #: partitions that are searched for them

#: columns of the overview: name, title, description, how a row is ordered
COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("name", "Subscription", "topic and name of the subscription"),
    ("health", "State", "worst first when sorted down"),
    ("age", "Oldest unacked", "age of the oldest message that is not acked, by the clock of the brokers"),
    ("backlog", "Backlog", "messages that are not acked: outstanding and never read"),
    ("outstanding", "Outstanding", "messages that are delivered and not acked"),
    ("in", "In /s", "messages that arrived, per second over the last minute"),
    ("out", "Acked /s", "messages that were acked, per second over the last minute"),
    ("again", "Again /s", "redeliveries, per second over the last minute"),
    ("dead", "Dead /s", "dead letters, per second over the last minute"),
    ("consumers", "Consumers", "members of the consumer group that read this topic"),
)
#: views that the head of each page names: address, title
VIEWS = (
    ("/", "Overview"),
    ("/stuck", "Oldest"),
    ("/dead", "Dead letters"),
    ("/consumers", "Consumers"),
    ("/tracker", "Tracker"),
    ("/doctor", "Doctor"),
    ("/audit", "Audit"),
)
_HEALTH = {"bad": 3, "warn": 2, "ok": 1, "idle": 0}


def templates() -> Environment:
    """Returns the environment of the templates. It escapes all values, and refuses missing ones."""
    found = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "count": words.count,
        "counted": counted,
        "rate": words.rate,
        "duration": words.duration,
        "ago": words.ago,
        "exact": words.exact,
        "second": words.second,
        "size": words.size,
    }
    found.globals |= {"strip_of": strip_of, "drawn": drawn, "bars_of": bars_of, "link": link}
    return found


def link(path: str, **query: object) -> str:
    """Returns an address of the page with a query; values that are None are left out.

    >>> link("/subscription", topic="orders", name="a b", partition=None)
    '/subscription?topic=orders&name=a+b'
    """
    given = {name: value for name, value in query.items() if value is not None}
    return path + ("?" + urlencode(given) if given else "")


class Pages:
    """Renderer of the pages."""

    def __init__(self, *, cluster: str) -> None:
        self._cluster = cluster
        self._templates = templates()

    def answer(
        self, request: Request, snapshot: Snapshot, template: str, *, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """Returns a page."""
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        text = self._templates.get_template(template).render(
            snapshot=snapshot,
            cluster=self._cluster,
            path=request.url.path,
            here=here,
            views=VIEWS,
            **values,
        )
        return HTMLResponse(text, status)


def sorted_rows(rows: tuple[Row, ...], query: QueryParams) -> tuple[list[Row], str, str]:
    """Returns the rows that the filter of a query leaves, in its order, with the column and the direction."""
    wanted = query.get("q", "").strip().lower()
    column = query.get("sort", "age")
    column = column if any(column == name for name, _, _ in COLUMNS) else "age"
    direction = query.get("dir", "asc" if column == "name" else "desc")
    found = [row for row in rows if wanted in f"{row.topic} {row.subscription} {row.health[1]}".lower()]
    found.sort(key=lambda row: (row.topic, row.subscription))
    found.sort(key=lambda row: _order(row, column), reverse=direction == "desc")
    return found, column, direction


def _order(row: Row, column: str) -> Any:
    rates = row.rates
    values: Mapping[str, Any] = {
        "name": (row.topic, row.subscription),
        "health": _HEALTH[row.health[0]],
        "age": -1 if row.age_ms is None else row.age_ms,
        "backlog": -1 if row.backlog is None else row.backlog,
        "outstanding": row.outstanding,
        "in": -1.0 if rates is None or rates.arrived is None else rates.arrived,
        "out": 0.0 if rates is None else rates.acked,
        "again": 0.0 if rates is None else rates.redelivered,
        "dead": 0.0 if rates is None else rates.dead,
        "consumers": -1 if row.consumers is None else row.consumers,
    }
    return values[column]


def stuck(snapshot: Snapshot, order: Order) -> list[MessageState]:
    """Returns the oldest or the most delivered outstanding messages of all subscriptions.

    Only the partitions that rank first are searched, so that the cost does not grow with their number.
    """
    found = [one for cursor in _first(snapshot, order) for one in outstanding_of(cursor, order, MOST)]
    hosts = hosts_of_queries(snapshot)
    first = sorted(found, key=lambda one: rank(one, order))[:MOST]
    return [one if one.run is None else replace(one, host=hosts.get(run_of_query(one.run))) for one in first]


def hosts_of_queries(snapshot: Snapshot) -> dict[str, str]:
    """Returns the hosts of the consumers by the id of their query."""
    return {
        consumer.query_id: consumer.host
        for row in snapshot.rows
        for consumer in row.stats.consumers
        if consumer.query_id is not None
    }


def _first(snapshot: Snapshot, order: Order) -> Iterable[CursorSnapshot]:
    if snapshot.view is None:
        return []
    parts = (part for row in snapshot.rows for part in row.stats.partitions if part.outstanding)
    cursors = snapshot.view.cursors
    if order == "oldest":
        by_age = sorted(parts, key=lambda part: part.oldest_unacked_ms or 0)
        return [cursors[part.cell] for part in by_age[:_CELLS]]
    by_count = sorted((cursors[part.cell] for part in parts), key=most_deliveries, reverse=True)
    return by_count[:_CELLS]


def most_deliveries(cursor: CursorSnapshot) -> int:
    """Returns the largest delivery count of the outstanding messages of a cursor."""
    groups = (cursor.leases, cursor.delayed, cursor.available, cursor.held)
    counts = [one.delivery_count for group in groups for one, _ in group]
    return max((*counts, *cursor.blocked.delivery_counts), default=0)


class Member(NamedTuple):
    """Consumer of a subscription of a topic."""

    row: Row
    consumer: ConsumerStats
    leased: int  #: messages that are leased on its partitions
    started_ms: int | None  #: broker time of the oldest Start whose messages are still leased


def members(snapshot: Snapshot) -> Iterator[Member]:
    """Yields all consumers, by topic and subscription."""
    if snapshot.view is None:
        return
    for row in snapshot.rows:
        parts = {part.cell.partition: part for part in row.stats.partitions}
        for consumer in row.stats.consumers:
            own = [parts[number] for number in consumer.partitions if number in parts]
            leases = [lease for part in own for lease, _ in snapshot.view.cursors[part.cell].leases]
            started = [lease.started_ms for lease in leases if lease.started_ms]
            yield Member(row, consumer, sum(part.leased for part in own), min(started, default=None))


def dead_letter_topics(snapshot: Snapshot) -> list[tuple[Row, int, str]]:
    """Returns the subscriptions with dead letters, their number, and the usual name of their topic."""
    return [
        (
            row,
            row.stats.total("dead_lettered"),
            dead_letter_topic(DEFAULT_DEAD_LETTER_TOPIC, topic=row.topic, subscription=row.subscription),
        )
        for row in snapshot.rows
        if row.stats.total("dead_lettered") or row.held
    ]


def number_of(request: Request, name: str) -> int | None:
    """Returns a whole number of the query, or None if it is missing or no number."""
    with suppress(ValueError):
        return int(request.query_params[name]) if name in request.query_params else None
    return None
