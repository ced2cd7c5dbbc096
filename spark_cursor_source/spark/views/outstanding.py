"""The view ``outstanding``: every message that was delivered and is not acked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.options.view import ViewOptions
from spark_cursor_source.spark.views.columns import arrow_schema, timestamps
from spark_cursor_source.spark.views.ranges import (
    ShareOfCells,
    reader_config,
    shares_of_cells,
    shown_cursors,
)
from spark_cursor_source.topics.message_columns import Columns, message_columns
from spark_cursor_source.topics.queue import arrow_batches
from spark_cursor_source.topics.rescue import Rescue

COLUMNS: Columns = {
    "subscription": "STRING",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "state": "STRING",
    "delivery_count": "INT",
    "deadline": "TIMESTAMP",
    "run_id": "STRING",
    "behind": "BIGINT",
}
_OF_PAYLOAD = ("key", "value", "timestamp", "headers")
_ROWS = 65_536

_Offsets = npt.NDArray[np.int64]
_State = tuple[str, int, int | None, str | None]  # state, delivery count, deadline in ms, run id


def columns(options: ViewOptions) -> Columns:
    """Returns the columns of the state, and with includePayload those of the message."""
    if not options.include_payload:
        return COLUMNS
    of_message = message_columns(include_headers=options.include_headers)
    return {**COLUMNS, **{name: kind for name, kind in of_message.items() if name in _OF_PAYLOAD}}


class OutstandingReader(DataSourceReader):
    """``view=outstanding``: one row per message that was delivered and is not acked.

    The view shows the given subscription and topics, or all. Every action reads the current state::

        subscription STRING, topic STRING, partition INT, offset BIGINT
        state          STRING     leased; available; delayed: available after its deadline;
                                  blocked: it waits behind an earlier message of its key;
                                  held: a dead letter that waits for the breaker to close or for a retry
        delivery_count INT        number of deliveries
        deadline       TIMESTAMP  broker time at which the lease or delay ends; null: neither
        run_id         STRING     run of the source that holds the lease; null: not leased
        behind         BIGINT     offset of the message that a blocked one waits for; null: not blocked

    The rows have no order. They can be acked, released, rejected and extended. The view reads cursors, not
    queue topics, and converts about a million rows in one or two seconds.

    With includePayload, the columns ``key``, ``value``, ``timestamp`` and, with includeHeaders, ``headers``
    follow. They are read from the queue topics, or from the rescue topic where retention has removed the
    message. They are null where neither has it.
    """

    def __init__(self, options: ViewOptions) -> None:
        self._options = options
        self._rescue = Rescue(reader_config(options), options.rescue_topic, options.markers_topic)

    def partitions(self) -> Sequence[InputPartition]:
        return shares_of_cells(self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ShareOfCells):
            for cursor in shown_cursors(self._options, partition):
                for rows in outstanding_batches(cursor):
                    yield from self._with_payload(cursor.cell, rows)

    def _with_payload(self, cell: Cell, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Adds the columns of the messages, which are of one partition, in the order of their offsets."""
        if not self._options.include_payload:
            yield rows
            return
        rows = rows.sort_by("offset")
        offsets = rows.column("offset").to_numpy()
        found = np.zeros(len(offsets), np.bool_)
        schema = arrow_schema(columns(self._options))
        added = schema.names[len(COLUMNS) :]
        for messages in arrow_batches(
            reader_config(self._options),
            [_slice(cell, offsets)],
            include_headers=self._options.include_headers,
            queue_id=None,
            on_missing=lambda piece, missing, why: None,  # these rows follow, without a payload
            rescue=self._rescue,
        ):
            places = np.searchsorted(offsets, messages.column("offset").to_numpy())
            found[places] = True
            states = rows.take(pa.array(places))
            yield pa.RecordBatch.from_arrays(
                [*states.columns, *(messages.column(name) for name in added)], schema=schema
            )
        if not found.all():
            states = rows.filter(pa.array(~found))
            empty = (pa.nulls(states.num_rows, schema.field(name).type) for name in added)
            yield pa.RecordBatch.from_arrays([*states.columns, *empty], schema=schema)


def _slice(cell: Cell, offsets: _Offsets) -> Slice:
    chosen = OffsetSet.from_offsets(offsets.tolist())
    return Slice(topic=cell.topic, partition=cell.partition, offsets=chosen, delivery_count=0)


def outstanding_batches(cursor: CursorSnapshot) -> Iterator[pa.RecordBatch]:
    """Yields the outstanding messages of a cursor in batches of about 65,536 rows."""
    waiting: list[tuple[_State, _Offsets]] = []
    waits = _waits(cursor)
    count = 0
    for state, offsets in _groups(cursor):
        for piece in offsets.chunks(_ROWS):
            waiting.append((state, np.frombuffer(piece.to_array(), np.uint64).astype(np.int64)))
            count += len(piece)
            if count >= _ROWS:
                yield _batch(cursor.cell, waiting, waits)
                waiting, count = [], 0
    if waiting:
        yield _batch(cursor.cell, waiting, waits)


def _groups(cursor: CursorSnapshot) -> Iterator[tuple[_State, OffsetSet]]:
    for lease, offsets in cursor.leases:
        yield ("leased", lease.delivery_count, lease.deadline_ms, lease.run_id or None), offsets
    for delay, offsets in cursor.delayed:
        yield ("delayed", delay.delivery_count, delay.due_ms, None), offsets
    for wait, offsets in cursor.available:
        yield ("available", wait.delivery_count, None, None), offsets
    for count, offsets in cursor.blocked.by_count():
        yield ("blocked", count, None, None), offsets
    for held, offsets in cursor.held:
        yield ("held", held.delivery_count, None, None), offsets


def _waits(cursor: CursorSnapshot) -> tuple[_Offsets, _Offsets]:
    """Returns the blocked offsets of a cursor, and the offset that each of them waits for."""
    blocked = cursor.blocked
    offsets = np.frombuffer(blocked.offsets.to_array(), np.uint64).astype(np.int64)
    return offsets, np.array(blocked.behind, np.int64)


def _behind(offsets: _Offsets, waits: tuple[_Offsets, _Offsets]) -> pa.Array:
    blocked, behind = waits
    if not len(blocked):
        return pa.nulls(len(offsets), pa.int64())
    places = np.minimum(np.searchsorted(blocked, offsets), len(blocked) - 1)
    return pa.array(behind[places], mask=blocked[places] != offsets)


def _batch(
    cell: Cell, groups: Sequence[tuple[_State, _Offsets]], waits: tuple[_Offsets, _Offsets]
) -> pa.RecordBatch:
    schema = arrow_schema(COLUMNS)
    sizes = [len(offsets) for _, offsets in groups]
    group_of_row = pa.array(np.repeat(np.arange(len(groups)), sizes))
    rows = len(group_of_row)
    offsets = np.concatenate([some for _, some in groups])
    states, counts, deadlines, runs = zip(*(state for state, _ in groups), strict=True)

    def same(value: Any, kind: pa.DataType) -> Any:
        return pa.repeat(pa.scalar(value, kind), rows)

    return pa.RecordBatch.from_arrays(
        [
            same(cell.subscription, pa.string()),
            same(cell.topic, pa.string()),
            same(cell.partition, pa.int32()),
            pa.array(offsets),
            pa.array(states, pa.string()).take(group_of_row),
            pa.array(counts, pa.int32()).take(group_of_row),
            timestamps(deadlines).take(group_of_row),
            pa.array(runs, pa.string()).take(group_of_row),
            _behind(offsets, waits),
        ],
        schema=schema,
    )
