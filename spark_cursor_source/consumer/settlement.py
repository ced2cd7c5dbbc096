"""Settlement of messages by DataFrame rows, folded into markers on the executor.

A task folds its rows into offset sets, so a million acks become one marker per cell. The task flushes the
markers before it returns, so the settlements of a finished Spark task are durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_cursor_source.consumer.ack_check import check_acks
from spark_cursor_source.consumer.action_columns import BLOCK, LEAVE, MESSAGE_ID, OUTCOME, require_values
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import Block, End, KeepAlive, Leave, Reject, Release, of_topics
from spark_cursor_source.core.names import why_no_topic
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.outcome import check_delay_ms
from spark_cursor_source.core.settling import Settling, SettlingFold
from spark_cursor_source.errors import InvalidMessageId, NullMessageId, UnknownAction
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.options.ack import AckAction, AckOptions
from spark_cursor_source.options.source import AckMode
from spark_cursor_source.topics.markers import write_markers


class Settlement:
    """Acks, releases, rejects and extensions of one task, by cell.

    Rows have the columns ``topic``, ``partition`` and ``offset``. Optional columns are ``action`` (default:
    the action of the options, then ack), ``delivery_count``, ``delay_ms`` and ``reason``. The order of rows
    does not matter.

    With ``ackMode=batch`` in the options the source acks, so that only the exceptions become markers: rows
    that are released, rejected, extended or left.
    """

    def __init__(self, options: AckOptions) -> None:
        self._options = options
        self._acked_by_source = options.ack_mode is AckMode.BATCH
        self._fold: SettlingFold[np.ndarray] = SettlingFold(_offset_set)
        self._blocked: dict[tuple[Cell, int], dict[int, int]] = {}  # by offset, the offset it waits for
        self.settled = 0

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Adds rows. Other columns are ignored.

        Raises:
            NullMessageId: a row has a null in its message id, or lacks the delivery count that its action
                needs.
            InvalidMessageId: a row contains an invalid topic, partition or offset.
            UnknownAction: the column ``action`` contains an unknown word or a null.
            InvalidDuration, InvalidOption: a delay is negative or above 12 h.
        """
        if rows.num_rows == 0:
            return
        names = rows.schema.names
        action = self._options.action or AckAction.ACK
        # An ack ends a message whatever its delivery.
        all_ack = action is AckAction.ACK and "action" not in names
        details = () if all_ack else [name for name in ("delivery_count", *OUTCOME) if name in names]
        keys = ["topic", "partition", *details]
        table = pa.table({name: rows.column(name) for name in (*keys, "offset")})
        require_values(table, MESSAGE_ID, action.value)
        if "action" in details:
            is_blocked = pc.equal(table.column("action"), BLOCK).fill_null(False)
            if pc.any(is_blocked).as_py():
                self._add_blocked(table.filter(is_blocked))
                table = table.filter(pc.invert(is_blocked))
                if not table.num_rows:
                    return
        for key, offsets in _grouped(table, keys):
            values = dict(zip(keys, key, strict=True))
            _check_message_ids(values["topic"], values["partition"], offsets)
            settling = self._settling(values, action)
            if settling is not None:
                self._fold.add(settling, offsets)
            self.settled += len(offsets)

    def _settling(self, values: dict[str, Any], default: AckAction) -> Settling | None:
        """Returns what the marker of such rows says, without offsets; None if they need no marker."""
        word = values.get("action", default.value)
        if word is None or word not in (LEAVE, *AckAction):
            # A null is not an ack: `when(ok, "ack")` without `otherwise` would ack all remaining rows.
            raise UnknownAction("null" if word is None else str(word))
        if word == (AckAction.ACK if self._acked_by_source else LEAVE):
            return None
        cell = Cell(
            subscription=self._options.subscription, topic=values["topic"], partition=values["partition"]
        )
        if word == AckAction.ACK:
            return End(cell=cell, offsets=EMPTY)
        count = values.get("delivery_count")
        if count is None:
            raise NullMessageId(word, ("delivery_count",))
        if word == LEAVE:
            return Leave(cell=cell, offsets=EMPTY, delivery_count=count)
        if word == AckAction.EXTEND:
            lease_ms = self._options.lease_ms
            return KeepAlive(cell=cell, offsets=EMPTY, lease_ms=lease_ms, delivery_count=count)
        reason = values.get("reason") or ""
        if word == AckAction.REJECT:
            return Reject(cell=cell, offsets=EMPTY, delivery_count=count, reason=reason)
        delay_ms = values.get("delay_ms")
        if delay_ms is not None:
            check_delay_ms(delay_ms)
        return Release(cell=cell, offsets=EMPTY, delivery_count=count, delay_ms=delay_ms, reason=reason)

    def _add_blocked(self, rows: pa.Table) -> None:
        columns = (rows.column(name).to_pylist() for name in (*MESSAGE_ID, "delivery_count", "reason"))
        for topic, partition, offset, count, behind in zip(*columns, strict=True):
            cell = Cell(subscription=self._options.subscription, topic=topic, partition=partition)
            self._blocked.setdefault((cell, count), {})[offset] = int(behind)
        self.settled += rows.num_rows

    def blocks(self) -> list[Block]:
        """Returns the markers of the rows that wait for an earlier message of their key."""
        return [
            Block(
                cell=cell,
                offsets=OffsetSet.from_offsets(list(behind)),
                behind=tuple(behind[offset] for offset in sorted(behind)),
                delivery_count=count,
            )
            for (cell, count), behind in self._blocked.items()
        ]

    def markers(self) -> Iterator[Settling]:
        """Yields the fewest markers that express all other added rows."""
        return self._fold.markers()

    def send(self, markers_partitions: int) -> None:
        """Writes the markers. Returns after the broker has confirmed them.

        Raises:
            UnknownSubscription, NotOfSubscription, NoSuchMessages: the messages do not exist for this
                subscription.
            MarkersNotDurable: the markers are not confirmed; the messages keep their leases.
        """
        markers, blocks = list(self.markers()), self.blocks()
        if not markers and not blocks:
            return
        check_acked(self._options, markers)
        found = of_topics([*blocks, *markers], self._options.topic_ids)
        write_markers(self._options.kafka, self._options.markers_topic, markers_partitions, found)
        self._fold.clear()
        self._blocked.clear()


def _check_message_ids(topic: str, partition: int, offsets: np.ndarray) -> None:
    # The tracker would quarantine such a marker, where the application does not see the error.
    if (why := why_no_topic(topic)) is not None:
        raise InvalidMessageId("topic", topic, why)
    if partition < 0:
        raise InvalidMessageId("partition", str(partition), "partitions are counted from 0")
    if (least := int(offsets.min())) < 0:
        raise InvalidMessageId("offset", str(least), "offsets are counted from 0")


def check_acked(options: AckOptions, markers: Iterable[Settling]) -> None:
    """Rejects acks of messages that do not exist.

    The check is skipped if ``options.cursors_topic`` is None, because the rows then identify their source.

    Raises:
        UnknownSubscription, NotOfSubscription, NoSuchMessages
    """
    if options.cursors_topic is not None:
        config = client_config(options.kafka, "consumer")
        check_acks(config, options.cursors_topic, options.markers_topic, markers)


def _grouped(table: pa.Table, keys: list[str]) -> Iterator[tuple[tuple[Any, ...], np.ndarray]]:
    """Yields (key values, offsets) of each group.

    Most batches have one partition and one group, so that case has a fast path.
    """
    encoded = [table.column(key).combine_chunks().dictionary_encode(null_encoding="encode") for key in keys]
    dictionaries = [_chunk(column).dictionary for column in encoded]
    offsets = table.column("offset").to_numpy()
    if all(len(dictionary) == 1 for dictionary in dictionaries):
        yield tuple(dictionary[0].as_py() for dictionary in dictionaries), offsets
        return
    code = np.zeros(table.num_rows, np.int64)
    for column, dictionary in zip(encoded, dictionaries, strict=True):
        code = code * len(dictionary) + _chunk(column).indices.to_numpy()
    order = np.argsort(code, kind="stable")
    codes, firsts = np.unique(code[order], return_index=True)
    for group, indexes in zip(codes.tolist(), np.split(order, firsts[1:]), strict=True):
        values = []
        for dictionary in reversed(dictionaries):
            group, at = divmod(group, len(dictionary))
            values.append(dictionary[at].as_py())
        yield tuple(reversed(values)), offsets[indexes]


def _chunk(column: Any) -> Any:
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _offset_set(pieces: Sequence[np.ndarray]) -> OffsetSet:
    offsets = np.concatenate(pieces)
    first, last = int(offsets.min()), int(offsets.max())
    if last - first + 1 == len(offsets) and bool((np.diff(offsets) == 1).all()):
        return OffsetSet.of((first, last + 1))
    return OffsetSet.from_offsets(np.sort(offsets).astype(np.uint64))
