"""Tasks of ``AckSink.per_row``: they have the handler called, and settle or return the outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from spark_cursor_source.consumer.settled_since import SettledSince
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.interop.settled_since import SettledSinceV1
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.options.marker_format import MarkerVersion
from spark_cursor_source.spark.actions import Markers, counted
from spark_cursor_source.spark.handler_calls import Handling, calls_of
from spark_cursor_source.spark.outcome_flusher import OutcomeFlusher
from spark_cursor_source.spark.per_row import Rows, attempt_number
from spark_cursor_source.spark.worker_resources import opened, outlive_idleness, worker_is_reused


def handle(
    batches: Iterable[pa.RecordBatch],
    handling: Handling,
    ids: Sequence[str],
    result_type: pa.DataType | None = None,
) -> Iterator[pa.RecordBatch]:
    """Has the handler called for each row. Yields the outcomes in row order, with the columns ``ids``.

    An exception of the handler releases its row with the tracker's backoff. The exception is the reason.

    Raises:
        UnknownOutcome, HandlerSetupFailed
    """
    attempt = attempt_number()
    calls = calls_of(handling, _resources(handling))
    try:
        for batch in batches:
            if batch.num_rows:
                rows = Rows(batch, attempt)
                calls.submit(rows, range(batch.num_rows))
                calls.finish()
                yield rows.outcomes(range(batch.num_rows), ids, result_type)
    finally:
        calls.close()


def handle_and_settle(
    batches: Iterable[pa.RecordBatch], handling: Handling, markers: Markers
) -> Iterator[pa.RecordBatch]:
    """Has the handler called for each row, and settles the outcomes as they come.

    Yields one row with the number of outcomes that this task has settled, including those that an earlier
    attempt of the task has settled and this one skips.

    Raises:
        MarkersNotDurable: the markers of the last flush are not confirmed.
        UnknownOutcome, HandlerSetupFailed
    """
    attempt = attempt_number()
    earlier = _EarlierAttempt(markers, attempt)
    flusher = OutcomeFlusher(markers.options, markers.partitions, flush_ms=handling.flush_ms)
    calls = calls_of(handling, _resources(handling))
    flusher.start(calls)
    skipped = 0
    try:
        for batch in batches:
            rows, left = Rows(batch, attempt), earlier.left(batch)
            skipped += batch.num_rows - len(left)
            if handling.in_order:
                calls.hold_back(rows, earlier.given_back(batch))
            flusher.follow(rows, len(left))
            calls.submit(rows, left)
            flusher.collect()
        is_done = calls.finish(_patience_s(handling))
    except BaseException:
        # What the handlers have done is done: without its marker, it would be done again.
        flusher.stop()
        with suppress(Exception):
            flusher.flush()
        raise
    finally:
        calls.close()
    if is_done:
        flusher.stop()
    else:
        outlive_idleness(flusher.leave(calls))
    flusher.flush()
    yield counted(flusher.settled + skipped, calls.times.encoded())


def _resources(handling: Handling) -> tuple[Any, ...]:
    if handling.resources is None:
        return ()
    return (opened(handling.name, handling.resources, on_loop=handling.is_async),)


def _patience_s(handling: Handling) -> float | None:
    # Without worker reuse, Spark ends the process with the task, and the stragglers with it.
    if handling.stragglers_ms is None or not worker_is_reused():
        return None
    return handling.stragglers_ms / 1000


class _EarlierAttempt:
    """Rows that an earlier attempt of the task has not settled.

    The first attempt reads nothing, unless it may be that of a stage that runs again.
    """

    def __init__(self, markers: Markers, attempt: int) -> None:
        options = markers.options
        self._subscription = options.subscription
        self._settled: SettledSince | None = None
        if attempt or markers.after_shuffle:
            config = client_config(options.kafka, "consumer")
            kind = SettledSinceV1 if options.marker_version is MarkerVersion.V1 else SettledSince
            self._settled = kind(
                config, options.markers_topic, options.subscription, markers.positions, options.topic_ids
            )

    def left(self, batch: pa.RecordBatch) -> Sequence[int]:
        """Returns the indexes of the rows to handle."""
        if self._settled is None or not batch.num_rows:
            return range(batch.num_rows)
        rows = self._read(batch)
        settled = {
            (*place, count): self._settled(self._cell(place), count)
            for place, count in {(row[:2], row[2]) for row in rows if None not in row}
        }
        return [at for at, row in enumerate(rows) if None in row or row[3] not in settled[row[:3]]]

    def given_back(self, batch: pa.RecordBatch) -> Sequence[int]:
        """Returns the indexes of the rows that the earlier attempt handled and did not ack or reject."""
        if self._settled is None or not batch.num_rows:
            return ()
        rows = self._rows(batch)
        return [
            at
            for at, row in enumerate(rows)
            if None not in row and row[3] in self._settled.given_back(self._cell(row[:2]), row[2])
        ]

    def _read(self, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
        """Reads the markers of the rows. Returns their deliveries."""
        assert self._settled is not None
        rows = self._rows(batch)
        self._settled.read({self._cell(row[:2]) for row in rows if None not in row})
        return rows

    def _rows(self, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
        return list(zip(*(batch.column(name).to_pylist() for name in _DELIVERY), strict=True))

    def _cell(self, place: tuple[Any, ...]) -> Cell:
        return Cell(subscription=self._subscription, topic=place[0], partition=place[1])


_DELIVERY = ("topic", "partition", "delivery_count", "offset")
