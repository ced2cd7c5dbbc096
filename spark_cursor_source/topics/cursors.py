"""Reader of the compacted cursors topic: the latest cursor of each cell."""

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
    TransactionStaysOpen,
    UnknownQueueTopic,
    UnknownSubscription,
)
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.wire import cursor as wire

log = logging.getLogger(__name__)

_COUNT_PARTITIONS_EVERY_MS = 5_000
_OPEN_TRANSACTION_S = 0.005  # poll interval while a transaction is open: most end within a few milliseconds
_COMMIT_MS = 5_000  # upper bound of the duration of a tracker transaction


class CursorTable:
    """Snapshot of the cursors topic as of the last :meth:`refresh`. Not thread-safe.

    Records that are not cursors of subscriptions are ignored. Other clients may store plain offsets in the
    topic.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        *,
        timeout_ms: int = 30_000,
        stall_timeout_ms: int = PATIENCE_MS,
        markers_topic: str | None = None,
        subscription: str | None = None,
    ) -> None:
        """With ``markers_topic``, :meth:`all` omits cells whose tracker uses another markers topic.

        With ``subscription``, records of others are read and not kept, so they take no memory.
        """
        self._prefix = b"" if subscription is None else f"{subscription},".encode()
        self.topic = topic  #: the cursors topic
        self._markers_topic = markers_topic
        self._topics = ClusterAdmin(config, timeout_ms=timeout_ms)
        self._reader = RangeReader(config, committed=True, stall_timeout_ms=stall_timeout_ms)
        self._positions: dict[int, int] = {}
        self._values: dict[int, dict[bytes, bytes]] = {}  # partition -> record key -> latest value
        self._wholes: dict[bytes, bytes | None] = {}  # record key -> its value, assembled from all parts
        self._decoded: dict[bytes, CursorSnapshot | None] = {}  # key of a cell -> its cursor
        # keys of cells with new records since the last `changes`; None before the first one
        self._changed: set[bytes] | None = None
        self._next_count: Deadline | None = None
        self.torn: set[Cell] = set()  #: cells whose cursor could not be read at the last :meth:`changes`
        self.topic_id = ""  #: id of the topic at the last refresh; a recreated topic has another id

    def connect(self, timeout_s: float) -> None:
        """Open a connection for the first read of records. Failures are ignored."""
        self._reader.connect(self.topic, timeout_s)

    def refresh(self) -> bool:
        """Read up to the last stable offset. Return True if new records were read.

        Raises:
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        self._count_partitions()
        return self._read_on(self._positions)

    def refresh_until(self, found: Callable[[], object]) -> bool:
        """Refresh. If ``found()`` is then false, wait for open transactions and read them too.

        A tracker transaction can become visible in the redeliveries topic before it is visible in the cursors
        topic. Returns False if a transaction is still open after five seconds and ``found()`` is still false.
        The missing record may then be part of that transaction. True means that the answer is final:
        ``found()`` is true, or all records were read and the missing record does not exist.
        """
        self.refresh()
        if found():
            return True
        try:
            self.catch_up(self._positions, Deadline.after_ms(_COMMIT_MS))
        except KafkaUnavailable as why:
            log.warning(
                "The cursors topic could not be read to its end. event=cursors_not_all_read topic=%s why=%s",
                self.topic,
                why,
            )
            return bool(found())
        return True

    def refresh_all(self, deadline: Deadline) -> None:
        """Refresh, and wait for the transactions that are open now.

        Raises:
            TransactionStaysOpen: a transaction is still open at the deadline.
            TopicNotFound, NotAuthorized, KafkaRefused
        """
        self.refresh()
        self.catch_up(list(self._positions), deadline)

    def catch_up(self, numbers: Iterable[int], deadline: Deadline) -> None:
        """Read all records that the partitions hold now, including those of open transactions.

        Raises:
            TransactionStaysOpen: a transaction is still open at the deadline.
        """
        ends = self._topics.end_offsets([(self.topic, number) for number in numbers], committed=False)
        for (_, number), end in ends.items():
            self.read_up_to(number, end, deadline)

    def home(self, key: bytes) -> tuple[int, int]:
        """Return the partition of a key and the read position in that partition."""
        self._count_partitions()
        number = control_partition(key, len(self._positions))
        return number, self._positions[number]

    def read_up_to(self, number: int, end: int, deadline: Deadline) -> None:
        """Read a partition until the read position reaches ``end``.

        The call waits for open transactions below ``end``.

        Raises:
            TransactionStaysOpen: a transaction is still open at the deadline.
        """
        if not any(self._positions.values()):
            self.refresh()  # the first read is fastest for all partitions at once
        while self._positions[number] < end:
            if not self._read_on([number]) and self._positions[number] < end:
                if deadline.over:
                    what = f"read cursors topic '{self.topic}', partition {number}"
                    raise TransactionStaysOpen(what, deadline.spent_ms)
                deadline.pause(_OPEN_TRANSACTION_S)

    def note(self, number: int, offset: int, key: bytes, value: bytes) -> None:
        """Apply a record that this process has written, if its offset is the current read position.

        The record must be confirmed by the brokers and must not be part of a transaction.
        """
        if self._positions[number] == offset:
            self._take(number, key, value)
            self._positions[number] = offset + 1

    def _read_on(self, numbers: Iterable[int]) -> bool:
        partitions = [(self.topic, number) for number in numbers]
        ends = self._topics.end_offsets(partitions, committed=True)
        ranges: dict[int, tuple[int, int]] = {}
        for (_, number), end in ends.items():
            if end < self._positions[number]:
                self._forget(number)  # the topic was recreated
            if self._positions[number] < end:
                ranges[number] = (self._positions[number], end)
        if not ranges:
            return False
        for message in self._reader.read(self.topic, ranges):
            of, key = message.partition(), message.key()
            if of is not None and key is not None and key.startswith(self._prefix):
                self._take(of, key, message.value())
        # Advance the positions only after the whole read. An interrupted read then starts again, and some
        # records are read twice.
        self._positions |= {number: stop for number, (_, stop) in ranges.items()}
        return True

    def get(self, cell: Cell) -> CursorSnapshot | None:
        """Return the cursor of a cell, or None if the tracker has not written one.

        Raises:
            LaterCursorVersion: a newer version of the library wrote the cursor.
            InvalidControlRecord: the cursor contradicts itself, or its parts do not belong together.
        """
        key = cell.key
        if key not in self._decoded:
            self._decoded[key] = self._decode(key)
        return self._decoded[key]

    def of(self, *, subscription: str | None = None, topic: str | None = None) -> dict[Cell, CursorSnapshot]:
        """Return the cursors of a subscription, of a topic, or of both."""
        return {
            cell: cursor
            for cell, cursor in self.all().items()
            if subscription in (None, cell.subscription) and topic in (None, cell.topic)
        }

    def present(
        self, *, subscription: str | None = None, topic: str | None = None
    ) -> dict[Cell, CursorSnapshot]:
        """Refresh, and return the cursors of a subscription, of a topic, of both, or all.

        Raises:
            UnknownSubscription, UnknownQueueTopic: a given name has no cursor.
        """
        self.refresh_until(lambda: self.of(subscription=subscription, topic=topic))
        found = self.of(subscription=subscription, topic=topic)
        if not found and (subscription is not None or topic is not None):
            raise self.unknown(subscription=subscription, topic=topic)
        return found

    def unknown(
        self, *, subscription: str | None = None, topic: str | None = None
    ) -> UnknownSubscription | UnknownQueueTopic:
        """Return the error for names without a cursor. It lists the names that have one."""
        cells = list(self.all())
        if subscription is None:
            return UnknownQueueTopic(str(topic), self.topic, tuple(sorted({cell.topic for cell in cells})))
        known = {cell.subscription for cell in cells if topic in (None, cell.topic)}
        if not known:  # the misspelled name may be the topic, so list the topics too
            known = {f"{cell.subscription} of {cell.topic}" for cell in cells}
        return UnknownSubscription(subscription, topic, self.topic, tuple(sorted(known)))

    def all(self) -> dict[Cell, CursorSnapshot]:
        """Return all cursors of subscriptions by cell, in key order."""
        cells = [cell for key in wire.cell_keys(self.record_keys()) if (cell := cell_of_key(key)) is not None]
        found = {cell: self._of_this_tracker(self.get(cell)) for cell in cells}
        return {cell: cursor for cell, cursor in found.items() if cursor is not None}

    def changes(self) -> dict[Cell, CursorSnapshot | None]:
        """Return the cursors that have changed since the last call, or all at the first call.

        The value of a deleted cursor is None, and also that of a cursor whose tracker now uses another
        markers topic. A cursor that contradicts itself, or whose parts do not belong together, is omitted
        with a warning, and its cell is in :attr:`torn` until its records change again.

        Raises:
            LaterCursorVersion: a newer version of the library wrote a cursor.
        """
        keys = set(map(_whole_key, self.record_keys())) if self._changed is None else self._changed
        self._changed = set()
        found: dict[Cell, CursorSnapshot | None] = {}
        for key in keys:
            if (cell := cell_of_key(key)) is None:
                continue
            try:
                found[cell] = self._of_this_tracker(self._decode(key))
                self.torn.discard(cell)
            except LaterCursorVersion:
                self._changed = keys
                raise
            except InvalidControlRecord as torn:
                self.torn.add(cell)
                log.warning(
                    "A cursor cannot be read. A tracker without another copy of it holds the cell until a "
                    "seek or the deletion of the subscription. "
                    "event=cursor_torn topic=%s cell=%s why=%s",
                    self.topic,
                    cell,
                    torn,
                )
        return found

    def value(self, key: bytes) -> bytes | None:
        """Return the latest value of a record key, assembled from its parts, or None if the key has no value.

        Raises:
            InvalidControlRecord: the parts do not belong together.
        """
        if key not in self._wholes:
            self._wholes[key] = self._put_together(key)
        return self._wholes[key]

    def strays(self) -> dict[bytes, dict[bytes, set[int]]]:
        """Return records in a partition other than their key's own, for example after partitions were added.

        The result maps the key of the cursor to the keys of its records and the partitions that hold them.
        """
        found: dict[bytes, dict[bytes, set[int]]] = {}
        for number, values in self._values.items():
            for key in values:
                whole = _whole_key(key)
                if control_partition(whole, len(self._values)) != number:
                    found.setdefault(whole, {}).setdefault(key, set()).add(number)
        return found

    def record_keys(self) -> frozenset[bytes]:
        """Return the keys of all records, including parts of cursors and records of other programs."""
        return frozenset(key for values in self._values.values() for key in values)

    def close(self) -> None:
        """Close the consumer."""
        self._reader.close()

    def _count_partitions(self) -> None:
        if self._next_count is not None and not self._next_count.over:
            return
        info = self._topics.describe([self.topic])[self.topic]
        if self.topic_id not in ("", info.topic_id):
            log.warning(
                "The cursors topic was recreated and is read from its beginning. "
                "event=cursors_topic_reread topic=%s",
                self.topic,
            )
            self._note_changes(key for values in self._values.values() for key in values)
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
        log.warning(
            "The cursors topic ends before the position of its reader. "
            "event=cursors_topic_truncated topic=%s partition=%s",
            self.topic,
            number,
        )
        self._note_changes(self._values[number])
        self._positions[number] = 0
        self._values[number] = {}
        self._wholes.clear()
        self._decoded.clear()

    def _take(self, number: int, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._values[number].pop(key, None)
        else:
            self._values[number][key] = value
        whole = _whole_key(key)
        self._wholes.pop(whole, None)
        self._decoded.pop(whole, None)
        if self._changed is not None:
            self._changed.add(whole)

    def _note_changes(self, keys: Iterable[bytes]) -> None:
        if self._changed is not None:
            self._changed.update(map(_whole_key, keys))

    def _of_this_tracker(self, cursor: CursorSnapshot | None) -> CursorSnapshot | None:
        """Return the cursor, or None if its tracker uses another markers topic."""
        if cursor is None or self._markers_topic in (None, tracked_through(cursor, self._markers_topic)):
            return cursor
        return None

    def _put_together(self, key: bytes) -> bytes | None:
        # Start with the partition of the key. After partitions were added, another one may hold the key.
        home = control_partition(key, max(1, len(self._values)))
        numbers = [home, *(number for number in self._values if number != home)]
        values = next((self._values[n] for n in numbers if key in self._values.get(n, {})), None)
        return None if values is None else wire.from_records(values, key)

    def _decode(self, key: bytes) -> CursorSnapshot | None:
        # A cursor that is torn or contradicts itself raises: it must not read as "no cursor".
        whole = self.value(key)
        try:
            cursor = None if whole is None else wire.decode(whole)
        except LaterCursorVersion:
            raise
        except InvalidControlRecord as why:
            if whole is not None and wire.is_cursor_of(key, whole):
                raise
            log.debug(
                "A record of the cursors topic is not a cursor and is ignored. event=cursor_ignored "
                "topic=%s key=%r why=%s",
                self.topic,
                key,
                why,
            )
            return None
        if cursor is not None and cursor.cell.key != key:
            log.debug(
                "A record of the cursors topic belongs to another cell than its key names. "
                "event=cursor_misplaced topic=%s key=%r cell=%s",
                self.topic,
                key,
                cursor.cell,
            )
            return None
        return cursor


def tracked_through(cursor: CursorSnapshot, unknown: str | None) -> str | None:
    """Return the markers topic of a cursor's tracker, or ``unknown`` if the cursor does not name it."""
    return unknown if cursor.log is None else cursor.log.topic


def check_tracked_through(markers_topic: str, cell: Cell, cursor: CursorSnapshot | None) -> None:
    """Check that a cell is not tracked through another markers topic.

    Raises:
        TrackedElsewhere: the cursor names another markers topic.
    """
    if cursor is not None and (found := tracked_through(cursor, markers_topic)) != markers_topic:
        raise TrackedElsewhere(cell.subscription, cell.topic, markers_topic, str(found))


def tracked_here(cursors: Mapping[Cell, CursorSnapshot], markers_topic: str) -> dict[Cell, CursorSnapshot]:
    """Return the cursors of the tracker that uses this markers topic.

    Raises:
        TrackedElsewhere: all cursors belong to trackers of other markers topics.
    """
    found = {
        cell: one for cell, one in cursors.items() if tracked_through(one, markers_topic) == markers_topic
    }
    if not found:
        for cell, cursor in cursors.items():
            check_tracked_through(markers_topic, cell, cursor)
    return found


def cell_of_key(key: bytes) -> Cell | None:
    """Return the cell that a record key names, or None for a record of another program."""
    try:
        return Cell.from_key(key)
    except ValueError:
        return None


def _whole_key(key: bytes) -> bytes:
    """Return the key of the cursor that a record belongs to. The record is the whole cursor or one part."""
    head, comma, last = key.rpartition(b",")
    return head + comma + last.partition(wire.PART_MARK)[0]
