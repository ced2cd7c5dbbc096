"""The latest cursor of each cell, from the compacted cursors topic."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from spark_cursor_source.core.cell import Cell, control_partition
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.errors import (
    InvalidControlRecord,
    KafkaUnavailable,
    LaterCursorVersion,
    TrackedElsewhere,
    UnknownQueueTopic,
    UnknownSubscription,
)
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.wire import cursor as wire

log = logging.getLogger(__name__)

_COUNT_PARTITIONS_EVERY_MS = 5_000
_OPEN_TRANSACTION_S = 0.005  # the next look at one; it ends in a few milliseconds, or its writer is gone
_COMMIT_MS = 5_000  # a tracker's transaction takes less


class CursorTable:
    """What the cursors topic said at the last :meth:`refresh`; one thread's.

    Records that are no cursors of subscriptions are left alone: clients may keep plain positions there.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        *,
        timeout_ms: int = 30_000,
        stall_timeout_ms: int = PATIENCE_MS,
        markers_topic: str | None = None,
    ) -> None:
        """With ``markers_topic``, :meth:`all` leaves out cells of other markers topics' trackers."""
        self._topic = topic
        self._markers_topic = markers_topic
        self._topics = ClusterAdmin(config, timeout_ms=timeout_ms)
        self._reader = RangeReader(config, committed=True, stall_timeout_ms=stall_timeout_ms)
        self._positions: dict[int, int] = {}
        self._values: dict[int, dict[bytes, bytes]] = {}  # partition -> record key -> latest value
        self._wholes: dict[bytes, bytes | None] = {}  # record key -> its value, of all its parts
        self._decoded: dict[bytes, CursorSnapshot | None] = {}  # key of a cell -> its cursor
        self._next_count: Deadline | None = None
        self.topic_id = ""  #: as of the last look; one that was made again under the same name has another

    def refresh(self) -> bool:
        """Read on to the present end, that of committed transactions; whether there was anything new.

        Raises:
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        self._count_partitions()
        return self._read_on(self._positions)

    def refresh_until(self, found: Callable[[], object]) -> bool:
        """Refresh; where nothing is found then, wait for transactions under way, and look again.

        A transaction of the tracker can be read in the redeliveries topic a moment before it can be read
        in the cursors topic. Returns False where one was still open after five seconds, so that what was
        looked for may be in it.
        """
        self.refresh()
        if found():
            return True
        try:
            self.catch_up(self._positions, Deadline.after_ms(_COMMIT_MS))
        except KafkaUnavailable as why:
            log.warning("cursors_not_all_read topic=%s why=%s", self._topic, why)
            return bool(found())
        return True

    def catch_up(self, numbers: Iterable[int], deadline: Deadline) -> None:
        """Read all records that are in partitions now, those of transactions under way too.

        Raises:
            KafkaUnavailable: such a transaction has not ended by the deadline.
        """
        ends = self._topics.end_offsets([(self._topic, number) for number in numbers], committed=False)
        for (_, number), end in ends.items():
            self.read_up_to(number, end, deadline)

    def home(self, key: bytes) -> tuple[int, int]:
        """The partition that a key belongs to, and the position that was read up to there."""
        self._count_partitions()
        number = control_partition(key, len(self._positions))
        return number, self._positions[number]

    def read_up_to(self, number: int, end: int, deadline: Deadline) -> None:
        """Read on until all of a partition that is below ``end`` was seen.

        What stands behind a transaction that is open is waited for.

        Raises:
            KafkaUnavailable: such a transaction has not ended by the deadline.
        """
        if not any(self._positions.values()):
            self.refresh()  # all at once is the fast way to begin
        while self._positions[number] < end:
            if not self._read_on([number]) and self._positions[number] < end:
                if deadline.over:
                    what = f"read cursors topic '{self._topic}', partition {number}"
                    raise KafkaUnavailable(what, deadline.spent_ms, "a transaction is open")
                deadline.pause(_OPEN_TRANSACTION_S)

    def note(self, number: int, offset: int, key: bytes, value: bytes) -> None:
        """Count a record of our own that the brokers have confirmed as read, where it is the next to be read.

        It is for records outside of transactions.
        """
        if self._positions[number] == offset:
            self._take(number, key, value)
            self._positions[number] = offset + 1

    def _read_on(self, numbers: Iterable[int]) -> bool:
        partitions = [(self._topic, number) for number in numbers]
        ends = self._topics.end_offsets(partitions, committed=True)
        ranges: dict[int, tuple[int, int]] = {}
        for (_, number), end in ends.items():
            if end < self._positions[number]:
                self._forget(number)  # the topic was made again
            if self._positions[number] < end:
                ranges[number] = (self._positions[number], end)
        if not ranges:
            return False
        for message in self._reader.read(self._topic, ranges):
            of, key = message.partition(), message.key()
            if of is not None and key is not None:
                self._take(of, key, message.value())
        # Only now: a read that was broken off begins again, and reads some records twice.
        self._positions |= {number: stop for number, (_, stop) in ranges.items()}
        return True

    def get(self, cell: Cell) -> CursorSnapshot | None:
        """The cursor of a cell, or None if the tracker has written none.

        Raises:
            LaterCursorVersion: this version of the library cannot read it.
            InvalidControlRecord: it is in parts, and they do not belong together.
        """
        key = cell.key
        if key not in self._decoded:
            self._decoded[key] = self._decode(key)
        return self._decoded[key]

    def of(self, *, subscription: str | None = None, topic: str | None = None) -> dict[Cell, CursorSnapshot]:
        """The cursors of a subscription, of a topic, or of both."""
        return {
            cell: cursor
            for cell, cursor in self.all().items()
            if subscription in (None, cell.subscription) and topic in (None, cell.topic)
        }

    def unknown(
        self, *, subscription: str | None = None, topic: str | None = None
    ) -> UnknownSubscription | UnknownQueueTopic:
        """The error that no cursor has these names, with the names that there are."""
        cells = list(self.all())
        if subscription is None:
            return UnknownQueueTopic(str(topic), self._topic, tuple(sorted({cell.topic for cell in cells})))
        known = {cell.subscription for cell in cells if topic in (None, cell.topic)}
        if not known:  # so the topic may be what is misspelled
            known = {f"{cell.subscription} of {cell.topic}" for cell in cells}
        return UnknownSubscription(subscription, topic, self._topic, tuple(sorted(known)))

    def all(self) -> dict[Cell, CursorSnapshot]:
        """All cursors of subscriptions, by cell, in the order of their keys."""
        cells = [cell for key in wire.cell_keys(self.record_keys()) if (cell := _cell(key)) is not None]
        found = {cell: self.get(cell) for cell in cells}
        return {
            cell: cursor
            for cell, cursor in found.items()
            if cursor is not None
            and self._markers_topic in (None, tracked_through(cursor, self._markers_topic))
        }

    def value(self, key: bytes) -> bytes | None:
        """The latest value of a record key, put together where it is in parts; None if there is none.

        Raises:
            InvalidControlRecord: its parts do not belong together.
        """
        if key not in self._wholes:
            self._wholes[key] = self._put_together(key)
        return self._wholes[key]

    def strays(self) -> dict[bytes, dict[bytes, set[int]]]:
        """Records beside the partition that their cursor belongs to, as where the topic has grown since.

        By the key of the cursor: the keys of its records, and the partitions that they are in.
        """
        found: dict[bytes, dict[bytes, set[int]]] = {}
        for number, values in self._values.items():
            for key in values:
                whole = _whole_key(key)
                if control_partition(whole, len(self._values)) != number:
                    found.setdefault(whole, {}).setdefault(key, set()).add(number)
        return found

    def record_keys(self) -> frozenset[bytes]:
        """The keys of all records there are, those of parts and of other programs too."""
        return frozenset(key for values in self._values.values() for key in values)

    def close(self) -> None:
        """End the consumer."""
        self._reader.close()

    def _count_partitions(self) -> None:
        if self._next_count is not None and not self._next_count.over:
            return
        info = self._topics.describe([self._topic])[self._topic]
        if self.topic_id not in ("", info.topic_id):
            log.warning("cursors topic %s was created again: it is read from its beginning", self._topic)
            self._positions.clear()
            self._values.clear()
            self._wholes.clear()
            self._decoded.clear()
        self.topic_id = info.topic_id
        for number in range(info.partitions):
            self._positions.setdefault(number, 0)
            self._values.setdefault(number, {})
        self._next_count = Deadline.after_ms(_COUNT_PARTITIONS_EVERY_MS)

    def _forget(self, number: int) -> None:
        log.warning("cursors topic %s, partition %s ends earlier than before", self._topic, number)
        self._positions[number] = 0
        self._values[number] = {}
        self._wholes.clear()
        self._decoded.clear()

    def _take(self, number: int, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._values[number].pop(key, None)
        else:
            self._values[number][key] = value
        for known in (self._wholes, self._decoded):
            known.pop(_whole_key(key), None)

    def _put_together(self, key: bytes) -> bytes | None:
        # The partition that the key belongs to; another one has it if the topic had fewer partitions once.
        home = control_partition(key, max(1, len(self._values)))
        numbers = [home, *(number for number in self._values if number != home)]
        values = next((self._values[n] for n in numbers if key in self._values.get(n, {})), None)
        return None if values is None else wire.from_records(values, key)

    def _decode(self, key: bytes) -> CursorSnapshot | None:
        whole = self.value(key)  # parts are ours, and a torn cursor is not "no cursor"
        try:
            cursor = None if whole is None else wire.decode(whole)
        except LaterCursorVersion:
            raise
        except InvalidControlRecord as why:
            log.debug("cursors topic %s: record %r is left alone: %s", self._topic, key, why)
            return None
        if cursor is not None and cursor.cell.key != key:
            log.debug("cursors topic %s: record %r is of cell %s", self._topic, key, cursor.cell)
            return None
        return cursor


def tracked_through(cursor: CursorSnapshot, unknown: str | None) -> str | None:
    """The markers topic of a cursor's tracker; ``unknown`` for a cursor that does not tell it."""
    return unknown if cursor.log is None else cursor.log.topic


def check_tracked_through(markers_topic: str, cell: Cell, cursor: CursorSnapshot | None) -> None:
    """Refuse a cell that the tracker of another markers topic has.

    Raises:
        TrackedElsewhere: the cursor tells of another one.
    """
    if cursor is not None and (found := tracked_through(cursor, markers_topic)) != markers_topic:
        raise TrackedElsewhere(cell.subscription, cell.topic, markers_topic, str(found))


def tracked_here(cursors: Mapping[Cell, CursorSnapshot], markers_topic: str) -> dict[Cell, CursorSnapshot]:
    """The cursors that the tracker of a markers topic has.

    Raises:
        TrackedElsewhere: there are cursors, and all of them are of other trackers.
    """
    found = {
        cell: one for cell, one in cursors.items() if tracked_through(one, markers_topic) == markers_topic
    }
    if not found:
        for cell, cursor in cursors.items():
            check_tracked_through(markers_topic, cell, cursor)
    return found


def _cell(key: bytes) -> Cell | None:
    try:
        return Cell.from_key(key)
    except ValueError:
        return None


def _whole_key(key: bytes) -> bytes:
    """The key of the cursor that a record belongs to, whole or as a part."""
    head, comma, last = key.rpartition(b",")
    return head + comma + last.partition(wire.PART_MARK)[0]
