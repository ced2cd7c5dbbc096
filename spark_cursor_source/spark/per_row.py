"""Messages and outcomes of ``AckSink.per_row``: the rows that a handler gets, and what it says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from spark_cursor_source.consumer.action_columns import ACTION_COLUMNS, BLOCK, LEAVE, OUTCOME, needed_columns
from spark_cursor_source.core.outcome import Leave, Reject, Release
from spark_cursor_source.errors import UnknownOutcome
from spark_cursor_source.options.ack import AckAction, AckOptions
from spark_cursor_source.spark.handler_log import report_failure
from spark_cursor_source.topics.message_columns import ARROW_TYPES, MESSAGE_COLUMNS, values_of
from spark_cursor_source.wire.marker import kept

Handler = Callable[..., Any]
Described = tuple[str, int | None, str | None, Any]  #: action, delay, reason and result of an outcome

_ACK: Described = (AckAction.ACK.value, None, None, None)


def outcome_ids(options: AckOptions) -> tuple[str, ...]:
    """Returns the columns that identify the message and delivery of a row and of its outcome."""
    return tuple(dict.fromkeys((*needed_columns(options), "delivery_count")))


def outcome_ddl(options: AckOptions) -> str:
    """Returns the DDL of the outcome columns, without the column ``result``."""
    return ", ".join(f"{name} {ACTION_COLUMNS[name]}" for name in (*outcome_ids(options), *OUTCOME))


def attempt_number() -> int:
    """Returns the attempt number of the Spark task of this thread, from 0. It is 0 outside of a task."""
    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


class Rows:
    """Rows of a record batch and their outcomes. Each column is converted on first access.

    ``odd`` has the outcomes other than a plain ack, by row index. ``done`` takes the index of each row whose
    handler is done, from any thread. ``lists`` has the columns that were converted.
    """

    __slots__ = ("_taken", "attempt", "batch", "done", "lists", "names", "odd")

    def __init__(self, batch: pa.RecordBatch, attempt: int = 0) -> None:
        self.batch, self.attempt = batch, attempt
        self.names: list[str] = batch.schema.names
        self.odd: dict[int, Described] = {}
        self.done: list[int] = []
        self._taken = 0
        self.lists: dict[str, list[Any]] = {}

    def of(self, name: str) -> list[Any]:
        found = self.lists.get(name)
        if found is None:
            if name not in self.names:
                raise AttributeError(f"a message has no field {name!r}; it has {', '.join(self.names)}")
            found = self.lists[name] = values_of(self.batch.column(name))
        return found

    def take_done(self) -> list[int]:
        """Returns the indexes of the rows that are done since the last call. For one thread at a time."""
        taken = self.done[self._taken :]
        self._taken += len(taken)
        return taken

    def action(self, index: int) -> str:
        """Returns the action of a row whose handler is done."""
        return self.odd.get(index, _ACK)[0]

    def has_ended(self, index: int) -> bool:
        """True if the message of a row whose handler is done is acked or rejected."""
        return self.action(index) in (AckAction.ACK, AckAction.REJECT)

    def block(self, index: int, behind: int) -> None:
        """Records that a row was not handled, because it waits for the message at offset ``behind``."""
        self.odd[index] = BLOCK, None, str(behind), None

    def identified(self, indexes: Sequence[int], ids: Sequence[str]) -> pa.RecordBatch:
        """Returns the columns ``ids`` of the rows with these indexes. All rows are returned in row order."""
        batch = self.batch.select(ids)
        return batch if len(indexes) == batch.num_rows else batch.take(pa.array(indexes, pa.int64()))

    def settled(self, indexes: Sequence[int], ids: Sequence[str]) -> pa.RecordBatch:
        """Returns the outcomes of the rows with these indexes, without columns of the outcome if all ack."""
        return self.outcomes(indexes, ids) if self.odd else self.identified(indexes, ids)

    def outcomes(
        self, indexes: Sequence[int], ids: Sequence[str], result_type: pa.DataType | None = None
    ) -> pa.RecordBatch:
        """Returns the outcomes of the rows with these indexes: the columns ``ids``, then the outcome.

        All rows are returned in row order.
        """
        if len(indexes) == self.batch.num_rows:
            indexes = range(len(indexes))
        arrays = self.identified(indexes, ids).columns
        if self.odd:
            described = [self.odd.get(index, _ACK) for index in indexes]
            for at, name in enumerate(OUTCOME):
                kind = ARROW_TYPES[ACTION_COLUMNS[name]]
                arrays.append(pa.array([one[at] for one in described], kind))
        else:
            arrays.append(pa.repeat(pa.scalar(AckAction.ACK.value), len(indexes)))
            arrays += [pa.nulls(len(indexes), ARROW_TYPES[ACTION_COLUMNS[name]]) for name in OUTCOME[1:]]
        names = [*ids, *OUTCOME]
        if result_type is not None:
            arrays.append(pa.array([self.odd.get(index, _ACK)[3] for index in indexes], result_type))
            names.append("result")
        return pa.RecordBatch.from_arrays(arrays, names)


class Message:
    """One row of a batch. Columns are converted on first access, so unused columns cost nothing."""

    __slots__ = ("_index", "_rows")

    def __init__(self, rows: Rows, index: int) -> None:
        self._rows = rows
        self._index = index

    def __getattr__(self, name: str) -> Any:
        return self._rows.of(name)[self._index]

    @property
    def attempt(self) -> int:
        """The attempt number of the Spark task that handles the message, from 0.

        Above 0, an earlier attempt failed or was too slow for Spark's speculation, and may have handled the
        message. At 0, that is possible only after a shuffle: when Spark runs a whole stage again, the
        attempts of its tasks begin at 0 again. ``delivery_count`` does not count attempts.
        """
        return self._rows.attempt

    def __getitem__(self, name: str) -> Any:
        return self._rows.of(name)[self._index]

    def asDict(self) -> dict[str, Any]:
        """Returns all fields of the row, like ``pyspark.sql.Row.asDict``."""
        return {name: self[name] for name in self._rows.names}

    def __repr__(self) -> str:
        return f"Message({self.topic}, {self.partition}, {self.offset}, delivery_count={self.delivery_count})"


def _field(name: str) -> property:
    def read(message: Message) -> Any:
        rows = message._rows
        try:
            return rows.lists[name][message._index]
        except KeyError:
            return rows.of(name)[message._index]

    return property(read)


# Python looks for an attribute in the class before it calls __getattr__, which takes three times as long.
for _name in MESSAGE_COLUMNS:
    setattr(Message, _name, _field(_name))


def described(outcome: Any, *, has_result: bool) -> Described:
    """Returns the outcome that a handler's return value stands for, other than a plain ack.

    Raises:
        UnknownOutcome: the value is no outcome, and the handler returns no results.
    """
    match outcome:
        case False:
            return AckAction.RELEASE.value, 0, None, None
        case Release():
            return AckAction.RELEASE.value, outcome.delay_ms, _reason(outcome.reason), None
        case Reject():
            return AckAction.REJECT.value, None, _reason(outcome.reason), None
        case Leave():
            return LEAVE, None, None, None
    if not has_result:
        raise UnknownOutcome(type(outcome).__name__)
    result = outcome.asDict(recursive=True) if hasattr(outcome, "asDict") else outcome
    return AckAction.ACK.value, None, None, result


def action_of(outcome: Any, *, has_result: bool) -> str:
    """Returns the action that a handler's return value stands for."""
    return _ACK[0] if outcome is None or outcome is True else described(outcome, has_result=has_result)[0]


def failed(message: Message, problem: BaseException) -> Described:
    """Returns the outcome of a handler that raised. Logs it."""
    outcome = release_for(problem)
    report_failure(message.topic, message.partition, message.offset, message.delivery_count, outcome[2] or "")
    return outcome


def release_for(problem: BaseException) -> Described:
    """Returns a release after the tracker's backoff, with the exception as reason."""
    return AckAction.RELEASE.value, None, _reason(problem), None


def _reason(given: Any) -> str:
    """Returns a reason as text that Arrow and a marker can hold, whatever the handler gave or raised."""
    if given is None:
        return ""
    try:
        text = f"{type(given).__name__}: {given}" if isinstance(given, BaseException) else str(given)
    except Exception:  # noqa: BLE001 - __str__ is code of the handler too, and concerns its row only
        text = type(given).__name__
    return kept(text)
