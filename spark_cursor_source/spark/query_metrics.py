"""Metrics of the queries of a driver, from their progress."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from spark_cursor_source.metrics import table
from spark_cursor_source.metrics.counts import Counts
from spark_cursor_source.metrics.table import Histogram, Metric, Sample
from spark_cursor_source.spark.handler_times import HANDLER_COUNTS
from spark_cursor_source.spark.sink_arguments import check_takes

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProgress:
    """Progress of one cursorq source in one micro-batch of a query."""

    subscription: str
    query_id: str  #: id of the query, the same after a restart
    run_id: str  #: id of this run of the query
    name: str | None  #: ``queryName``
    batch_id: int
    rows: int  #: rows that the batch has read
    batch_ms: int  #: duration of the batch in ms
    behind: int | None  #: offsets to the ends of all partitions, unread gaps included; None: unknown
    max_behind: int | None  #: the same for the partition that is farthest behind
    outstanding: int | None  #: delivered and not acked, on the partitions of this query; None: unknown
    max_outstanding: int | None  #: the smaller of the option and the operator's limit; None: no limit
    oldest_outstanding_ms: int | None  #: time since the first delivery of the oldest of these messages
    tracker_silent_ms: int | None  #: time since a tracker last read a marker, if above ``trackerTimeout``
    handler_calls: int  #: calls of per_row handlers of this subscription since the driver began
    handler_mean_ms: float | None  #: their mean time in ms; None: no call


class QueryMetrics(StreamingQueryListener):
    """Listener with the metrics of all cursorq queries of a session, for ``serve_metrics``.

    ``on_progress`` is called with a :class:`QueueProgress` for each cursorq source after each micro-batch. It
    must return quickly, and its exceptions are logged. Spark reports from a thread of its own, also while a
    query is idle.

    Example::

        import spark_cursor_source as cursorq
        from spark_cursor_source.metrics import serve_metrics

        metrics = cursorq.QueryMetrics(on_progress=print)
        spark.streams.addListener(metrics)
        server = serve_metrics(metrics, port=0)  # http://127.0.0.1:<port>/metrics; server.port has the port

        # Before the session ends:
        server.close()
        spark.streams.removeListener(metrics)

    Raises:
        InvalidOption: ``on_progress`` cannot be called with a QueueProgress.
    """

    def __init__(self, on_progress: Callable[[QueueProgress], object] | None = None) -> None:
        if on_progress is not None:
            check_takes("on_progress", on_progress, "progress")
        self._on_progress = on_progress
        self._counts = Counts()
        self._lock = threading.Lock()
        self._latest: dict[tuple[str, str], QueueProgress] = {}  # by run and subscription, while a query runs

    def metrics(self) -> Iterator[Sample]:
        """Yields the metrics of the queries. Gauges are those of queries that run."""
        with self._lock:
            latest = sorted(self._latest.values(), key=lambda one: one.subscription)
        for subscription, own in groupby(latest, key=lambda one: one.subscription):
            yield from _gauges(subscription, list(own))
        yield from self._counts.samples()
        yield from HANDLER_COUNTS.samples()

    @property
    def latest(self) -> tuple[QueueProgress, ...]:
        """The last progress of each source of each query that runs."""
        with self._lock:
            return tuple(self._latest.values())

    # -- calls from Spark ----------------------------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None: ...

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        for one in progress_of(event.progress):
            with self._lock:
                self._latest[one.run_id, one.subscription] = one
            self._counts.add(table.SOURCE_ROWS, one.subscription, by=one.rows)
            if one.rows:
                self._counts.observe(table.SOURCE_BATCH, one.subscription, seconds=one.batch_ms / 1000)
            if self._on_progress is not None:
                self._call(self._on_progress, one)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._lock:
            self._latest = {key: one for key, one in self._latest.items() if key[0] != str(event.runId)}

    @staticmethod
    def _call(on_progress: Callable[[QueueProgress], object], progress: QueueProgress) -> None:
        try:
            on_progress(progress)
        except Exception as problem:  # noqa: BLE001 - Spark would log it without the subscription
            log.warning(
                "The listener's on_progress failed. event=on_progress_failed subscription=%s why=%s: %s",
                *(progress.subscription, type(problem).__name__, problem),
            )


def progress_of(progress: Any) -> Iterator[QueueProgress]:
    """Yields the progress of each cursorq source in a ``StreamingQueryProgress``."""
    for source in progress.sources:
        shown = _shown(source.latestOffset)
        if shown is None:
            continue
        behind = shown.get("offsetsBehindLatest") or {}
        calls, seconds = _handler_calls(shown["subscription"])
        yield QueueProgress(
            subscription=shown["subscription"],
            query_id=str(progress.id),
            run_id=str(progress.runId),
            name=progress.name,
            batch_id=progress.batchId,
            rows=source.numInputRows,
            batch_ms=progress.batchDuration,
            behind=behind.get("sum"),
            max_behind=behind.get("max"),
            outstanding=shown.get("outstanding"),
            max_outstanding=shown.get("maxOutstanding"),
            oldest_outstanding_ms=shown.get("oldestOutstandingMs"),
            tracker_silent_ms=shown.get("trackerSilentMs"),
            handler_calls=calls,
            handler_mean_ms=1_000 * seconds / calls if calls else None,
        )


def _shown(latest_offset: str | None) -> dict[str, Any] | None:
    """Returns what the source of a progress shows, or None if it is no source of this library."""
    try:
        shown = json.loads(latest_offset or "null")
    except ValueError:
        return None
    return shown if isinstance(shown, dict) and "subscription" in shown and "queue" in shown else None


def _handler_calls(subscription: str) -> tuple[int, float]:
    """Returns number and total seconds of the handler calls of a subscription."""
    own = [
        one.value
        for one in HANDLER_COUNTS.samples()
        if one.labels[0] == subscription and isinstance(one.value, Histogram)
    ]
    return sum(sum(one.buckets) for one in own), sum(one.sum for one in own)


def _gauges(subscription: str, queries: Sequence[QueueProgress]) -> Iterator[Sample]:
    """Yields the gauges of the queries that share a subscription: each has partitions of its own."""
    limits = [one.max_outstanding for one in queries]
    gauges: list[tuple[Metric, Callable[[list[int]], float], list[int | None]]] = [
        (table.SOURCE_BEHIND, sum, [one.behind for one in queries]),
        (table.SOURCE_OUTSTANDING, sum, [one.outstanding for one in queries]),
        # If one query has no limit, there is none.
        (table.MAX_OUTSTANDING, sum, [] if None in limits else limits),
        (table.SOURCE_OLDEST_AGE, _longest_s, [one.oldest_outstanding_ms for one in queries]),
        (table.SOURCE_TRACKER_SILENT, _longest_s, [one.tracker_silent_ms or 0 for one in queries]),
    ]
    for metric, together, values in gauges:
        if known := [value for value in values if value is not None]:
            yield Sample(metric, (subscription,), together(known))


def _longest_s(times_ms: list[int]) -> float:
    return max(times_ms) / 1000
