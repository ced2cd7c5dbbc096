"""Columns of rows that settle messages: their names, their types, and which of them a settlement reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_cursor_source.core.duration import parse_duration
from spark_cursor_source.errors import (
    InvalidDuration,
    MissingColumns,
    NullMessageId,
    UnfitColumn,
    UnknownAction,
)
from spark_cursor_source.options.ack import AckAction, AckOptions
from spark_cursor_source.options.marker_format import MarkerVersion
from spark_cursor_source.topics.message_columns import ARROW_TYPES, MESSAGE_COLUMNS, Columns

MESSAGE_ID = ("topic", "partition", "offset")
#: the key is the queue id, which determines the partition of the markers
MESSAGE_ID_V1 = ("key", *MESSAGE_ID)
#: columns of an outcome, after those that identify the message and delivery
OUTCOME = ("action", "delay_ms", "reason")
LEAVE = "leave"
#: outcome of a message that waits for an earlier one of its key, whose offset is the column ``reason``
BLOCK = "block"

#: Spark SQL type of every column that a settlement may read
ACTION_COLUMNS: Columns = {
    **{name: MESSAGE_COLUMNS[name] for name in (*MESSAGE_ID_V1, "delivery_count")},
    "action": "STRING",
    "delay": "STRING",
    "delay_ms": "BIGINT",
    "reason": "STRING",
}

_Column = Any  # a pyarrow column; pyarrow has no type annotations


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionColumns:
    """The columns that a settlement reads from rows, and the values that the options give to all rows.

    The option ``action`` sets the action of all rows. Without it, the column ``action`` sets the action of
    each row; the default is ack. In the same way, ``delay`` (a duration) or ``delay_ms`` sets the delay of a
    release, and ``reason`` the reason of a release or reject. An option takes precedence over a column.

    >>> from spark_cursor_source.options.kafka import KafkaOptions
    >>> options = AckOptions(kafka=KafkaOptions({}), subscription="s", lease_ms=60_000)
    >>> row = {"topic": ["t"], "partition": ["3"], "offset": [7], "delivery_count": [1], "other": [0]}
    >>> rows = pa.RecordBatch.from_pydict(row | {"action": ["Release"], "delay": ["2s"]})
    >>> columns = ActionColumns.of(options, rows.schema.names)
    >>> columns.used
    ('topic', 'partition', 'offset', 'delivery_count', 'action', 'delay')
    >>> columns.read(rows).select(["partition", "action", "delay_ms"]).to_pylist()
    [{'partition': 3, 'action': 'release', 'delay_ms': 2000}]
    """

    used: tuple[str, ...]
    constants: Mapping[str, Any]
    may_block: bool = False  #: the rows are outcomes of a handler, of which some wait for another message

    @classmethod
    def of(cls, options: AckOptions, columns: Sequence[str], *, may_block: bool = False) -> ActionColumns:
        """Returns the columns that a settlement with these options reads from rows with ``columns``.

        Raises:
            MissingColumns: a required column is missing.
        """
        by_column = options.action is None and "action" in columns
        needed = needed_columns(options, by_column=by_column)
        action = options.action or AckAction.ACK
        require_columns(columns, needed, "a column action" if by_column else action.value)
        used = [*needed, "action"] if by_column else list(needed)
        constants: dict[str, Any] = {}
        if options.reason is not None:
            constants["reason"] = options.reason
        elif "reason" in columns:
            used.append("reason")
        delay = next((name for name in ("delay_ms", "delay") if name in columns), None)
        if options.delay_ms is None and delay is not None:
            used.append(delay)
        else:
            constants["delay_ms"] = options.delay_ms or 0
        return cls(used=tuple(used), constants=constants, may_block=may_block)

    def read(self, rows: pa.RecordBatch) -> pa.Table:
        """Returns the columns of a settlement, in their types. ``delay`` becomes ``delay_ms``.

        Raises:
            UnfitColumn: a column has an unsuitable type or value.
            UnknownAction: an action is null, or ``block`` in rows that are no outcomes.
        """
        found: dict[str, _Column] = {}
        for name in self.used:
            column = rows.column(name)
            try:
                found["delay_ms" if name == "delay" else name] = _READ.get(name, _cast_to(name))(column)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, InvalidDuration) as cause:
                raise UnfitColumn(name, str(column.type), str(cause)) from cause
        if "action" in found and not self.may_block and pc.any(pc.equal(found["action"], BLOCK)).as_py():
            raise UnknownAction(BLOCK)
        for name, value in self.constants.items():
            found[name] = pa.repeat(pa.scalar(value, ARROW_TYPES[ACTION_COLUMNS[name]]), rows.num_rows)
        return pa.table(found)


def needed_columns(options: AckOptions, *, by_column: bool = False) -> tuple[str, ...]:
    """Returns the columns that the action of the options needs.

    With ``by_column``, returns the columns for any action in a column ``action``.

    >>> from spark_cursor_source.options.kafka import KafkaOptions
    >>> options = AckOptions(kafka=KafkaOptions({}), subscription="s", lease_ms=60_000)
    >>> needed_columns(options), needed_columns(options, by_column=True)[-1]
    (('topic', 'partition', 'offset'), 'delivery_count')
    """
    if options.marker_version is MarkerVersion.V1:
        return MESSAGE_ID_V1
    if options.action in (None, AckAction.ACK) and not by_column:
        return MESSAGE_ID
    return (*MESSAGE_ID, "delivery_count")


def require_values(rows: pa.RecordBatch | pa.Table, names: Sequence[str], action: str) -> None:
    """Checks that these columns have a value in each row.

    Raises:
        NullMessageId: a row has a null in one of them.
    """
    nulls = tuple(name for name in names if rows.column(name).null_count)
    if nulls:
        raise NullMessageId(action, nulls)


def require_columns(columns: Sequence[str], needed: Collection[str], what: str) -> None:
    """Rejects rows that lack columns of the message id or of the delivery.

    Raises:
        MissingColumns
    """
    missing = tuple(name for name in needed if name not in columns)
    if missing:
        raise MissingColumns(what, missing, tuple(columns))


def _cast_to(name: str) -> Callable[[_Column], _Column]:
    return lambda column: column.cast(ARROW_TYPES[ACTION_COLUMNS[name]])


def _actions(column: _Column) -> _Column:
    words = pc.utf8_lower(column.cast(pa.string()))
    if words.null_count:
        # A null action must not default to ack: an unhandled case in a CASE expression would ack the message.
        raise UnknownAction("null")
    return words


def _durations_ms(column: _Column) -> _Column:
    texts = column.cast(pa.string()).dictionary_encode()
    parsed = [parse_duration(text) for text in texts.dictionary.to_pylist()]
    return pa.array(parsed, pa.int64()).take(texts.indices)


_READ: Mapping[str, Callable[[_Column], _Column]] = {"action": _actions, "delay": _durations_ms}
