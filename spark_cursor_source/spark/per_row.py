"""Executor side of ``AckSink.per_row``: calls the handler for each message and collects the outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from spark_cursor_source.consumer.message_id import LEAVE, needed_columns
from spark_cursor_source.core.outcome import Leave, Reject, Release
from spark_cursor_source.errors import UnknownOutcome
from spark_cursor_source.options.ack import AckAction, AckOptions
from spark_cursor_source.spark.handler_log import report_failure
from spark_cursor_source.spark.settling import settlement_of
from spark_cursor_source.wire.marker import MAX_REASON

#: types of the columns that identify the message and delivery of an outcome
_ID_DDL = {
    "key": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "delivery_count": "INT",
}
_OUTCOME_DDL = "action STRING, delay_ms BIGINT, reason STRING"

Handler = Callable[[Any], Any]
_Described = tuple[str, int | None, str | None]  # action, delay, reason


def outcome_ids(options: AckOptions) -> tuple[str, ...]:
    """Returns the columns that identify the message and delivery of a row and of its outcome."""
    return tuple(dict.fromkeys((*needed_columns(options), "delivery_count")))


def outcome_ddl(options: AckOptions) -> str:
    """Returns the DDL of the outcome columns, without the column ``result``."""
    return ", ".join([*(f"{name} {_ID_DDL[name]}" for name in outcome_ids(options)), _OUTCOME_DDL])


class Message:
    """One row of a batch. Columns are converted on first access, so unused columns cost nothing."""

    __slots__ = ("_columns", "_index")

    def __init__(self, columns: _Columns, index: int) -> None:
        self._columns = columns
        self._index = index

    def __getattr__(self, name: str) -> Any:
        return self._columns.of(name)[self._index]

    @property
    def attempt(self) -> int:
        """The attempt number of the Spark task that handles the message, from 0.

        Above 0, an earlier attempt failed or was too slow for Spark's speculation, and may have handled the
        message. ``delivery_count`` does not count attempts.
        """
        context = TaskContext.get()
        return 0 if context is None else context.attemptNumber()

    def __getitem__(self, name: str) -> Any:
        return self._columns.of(name)[self._index]

    def asDict(self) -> dict[str, Any]:
        """Returns all fields of the row, like ``pyspark.sql.Row.asDict``."""
        return {name: self[name] for name in self._columns.names}

    def __repr__(self) -> str:
        return f"Message({self.topic}, {self.partition}, {self.offset}, delivery_count={self.delivery_count})"


class _Columns:
    """Columns of a record batch as lists. Each column is converted on first access."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self.names: list[str] = batch.schema.names
        self._lists: dict[str, list[Any]] = {}

    def of(self, name: str) -> list[Any]:
        found = self._lists.get(name)
        if found is None:
            if name not in self.names:
                raise AttributeError(f"a message has no field {name!r}; it has {', '.join(self.names)}")
            found = self._lists[name] = self._batch.column(name).to_pylist()
        return found


def handle(
    batches: Iterable[pa.RecordBatch], fn: Handler, ids: Sequence[str], result_type: pa.DataType | None
) -> Iterator[pa.RecordBatch]:
    """Calls ``fn`` for each row. Yields the outcomes in row order, with the columns ``ids``.

    An exception of ``fn`` releases its row with the tracker's backoff. The exception text is the reason.
    """
    for batch in batches:
        if batch.num_rows:
            yield _handle_batch(batch, fn, ids, result_type)


def _handle_batch(
    batch: pa.RecordBatch, fn: Handler, ids: Sequence[str], result_type: pa.DataType | None
) -> pa.RecordBatch:
    columns = _Columns(batch)
    rows = batch.num_rows
    odd: dict[int, Any] = {}  # row index -> outcome other than a plain ack
    for index in range(rows):
        try:
            outcome = fn(Message(columns, index))
        except Exception as problem:  # noqa: BLE001 - whatever the handler raises concerns its row only
            outcome = _Failed(problem)
            message = Message(columns, index)
            where = message.topic, message.partition, message.offset, message.delivery_count
            report_failure(*where, outcome.reason)
        if outcome is not None and outcome is not True:
            odd[index] = outcome
    actions: pa.Array = pa.repeat(pa.scalar(AckAction.ACK.value), rows)
    delays: pa.Array = pa.nulls(rows, pa.int64())
    reasons: pa.Array = pa.nulls(rows, pa.string())
    results: list[Any] | None = None if result_type is None else [None] * rows
    if odd:
        plain: _Described = (AckAction.ACK.value, None, None)
        described = [plain] * rows
        for index, outcome in odd.items():
            described[index] = _describe(outcome, results, index)
        actions = pa.array([action for action, _, _ in described], pa.string())
        delays = pa.array([delay_ms for _, delay_ms, _ in described], pa.int64())
        reasons = pa.array([reason for _, _, reason in described], pa.string())
    arrays = [*(batch.column(name) for name in ids), actions, delays, reasons]
    names = [*ids, "action", "delay_ms", "reason"]
    if results is not None:
        arrays.append(pa.array(results, result_type))
        names.append("result")
    return pa.RecordBatch.from_arrays(arrays, names)


def _describe(outcome: Any, results: list[Any] | None, index: int) -> _Described:
    match outcome:
        case _Failed():
            return AckAction.RELEASE.value, None, outcome.reason
        case False:
            return AckAction.RELEASE.value, 0, None
        case Release():
            return AckAction.RELEASE.value, outcome.delay_ms, outcome.reason
        case Reject():
            return AckAction.REJECT.value, None, outcome.reason
        case Leave():
            return LEAVE, None, None
    if results is None:
        raise UnknownOutcome(type(outcome).__name__)
    results[index] = outcome.asDict(recursive=True) if hasattr(outcome, "asDict") else outcome
    return AckAction.ACK.value, None, None


class _Failed:
    """Outcome of a handler that raised: a release with the exception text as reason."""

    def __init__(self, problem: Exception) -> None:
        self.reason = f"{type(problem).__name__}: {problem}"[:MAX_REASON]


def handle_and_settle(
    batches: Iterable[pa.RecordBatch], fn: Handler, options: AckOptions, markers_partitions: int
) -> Iterator[pa.RecordBatch]:
    """Runs :func:`handle` and flushes the markers of all outcomes. Yields one row with their number."""
    settlement = settlement_of(options)
    for outcomes in handle(batches, fn, outcome_ids(options), None):
        settlement.add(outcomes)
    settlement.send(markers_partitions)
    yield pa.RecordBatch.from_pydict({"settled": pa.array([settlement.settled], pa.int64())})
