"""Named cursors of clients: set and fetch positions in the cursors topic."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.named_cursor import NamedCursor
from spark_cursor_source.errors import ClientClosed, TrackerFenced
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.fenced_producers import FencedProducers, Turns
from spark_cursor_source.kafka.publisher import Publisher
from spark_cursor_source.kafka.transaction import Record, Uncertain
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.wire import named_cursor as wire

log = logging.getLogger(__name__)


class NamedCursors:
    """Stores a position per cell in the cursors topic. Creates a missing topic. Threads may share it."""

    def __init__(self, kafka: Mapping[str, str], topic: str, *, timeout_ms: int) -> None:
        self._kafka, self._topic, self._timeout_ms = kafka, topic, timeout_ms
        self._lock = threading.Lock()  # guards _tail
        self._closed = False
        self._fenced = FencedProducers(client_config(kafka, "producer"))
        self._topics = ClusterAdmin(client_config(kafka, "admin"), timeout_ms=timeout_ms)
        self._is_there = False  # True once the cursors topic was checked or created
        self._tail = CursorTable(
            client_config(kafka, "consumer"), topic, timeout_ms=timeout_ms, stall_timeout_ms=timeout_ms
        )
        self._publisher = Publisher(client_config(kafka, "producer"), timeout_ms=timeout_ms)

    def get(self, cell: Cell) -> NamedCursor | None:
        """Returns the cursor of a cell at the time of this call or later, or None if no cursor exists.

        Raises:
            InvalidControlRecord: the record of this cell is not a valid cursor.
            KafkaUnavailable, TopicNotFound, NotAuthorized, KafkaRefused
        """
        deadline = Deadline.after_ms(self._timeout_ms)
        self._ensure(deadline)
        return self._get(cell, deadline)

    def set(self, cursor: NamedCursor) -> None:
        """Sets the cursor of a cell. Returns when every in-sync replica has stored the cursor.

        The last of several concurrent writes without an epoch wins. Writes with an epoch are serialized, and
        a write with a lower epoch than the stored cursor is refused. A write without an epoch is checked
        against the cursor stored at its begin, and is not serialized.

        Raises:
            CursorFenced, CursorOfTracker: the stored cursor refuses the write. The cursor is unchanged.
            KafkaUnavailable: the timeout passed first. The cursor may be stored now or later.
            InvalidControlRecord, TopicNotFound, NotAuthorized, KafkaRefused
        """
        deadline = Deadline.after_ms(self._timeout_ms)
        self._ensure(deadline)
        if cursor.epoch is None:
            self._check_settable(cursor, deadline)
            self._put(cursor.cell.key, wire.encode(cursor), deadline)
            return
        self._set_in_turn(cursor, deadline)

    def close(self) -> None:
        """Closes the Kafka clients."""
        with self._lock:
            self._closed = True
            self._tail.close()
        try:
            self._publisher.close()
        finally:
            self._fenced.close()

    def _ensure(self, deadline: Deadline) -> None:
        """Checks that the topic exists and is compacted. Creates a missing topic."""
        if not self._is_there:
            self._topics.within(deadline).ensure_cursors(self._topic)
            self._is_there = True

    def _get(self, cell: Cell, deadline: Deadline) -> NamedCursor | None:
        number, before = self._home(cell.key, deadline)
        # This request runs without the lock, so that threads send their requests in parallel.
        place = (self._topic, number)
        end = self._topics.within(deadline).end_offsets([place], committed=False)[place]
        with self._tail_to(deadline):
            self._check_open()
            if end < before:
                self._tail.refresh()  # the topic was recreated
            self._tail.read_up_to(number, end, deadline)
            value = self._tail.value(cell.key)
        return None if value is None else wire.decode(value, cell)

    def _put(self, key: bytes, value: bytes, deadline: Deadline) -> None:
        number, _ = self._home(key, deadline)
        offset = self._publisher.put(self._topic, number, key=key, value=value, deadline=deadline)
        with self._lock:
            self._tail.note(number, offset, key, value)  # saves the next call a fetch

    def _home(self, key: bytes, deadline: Deadline) -> tuple[int, int]:
        with self._tail_to(deadline):
            self._check_open()
            return self._tail.home(key)

    def _tail_to(self, deadline: Deadline) -> AbstractContextManager[None]:
        return deadline.acquire(self._lock, f"read cursors topic '{self._topic}'")

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed

    def _check_settable(self, cursor: NamedCursor, deadline: Deadline) -> None:
        stored = self._get(cursor.cell, deadline)
        if stored is not None:
            stored.check_settable(cursor.epoch)

    def _set_in_turn(self, cursor: NamedCursor, deadline: Deadline) -> None:
        # Each cell has its own transactional id. Opening a producer fences the previous one, so that no other
        # setter with an epoch writes between the check and the commit. A read after the write is not enough:
        # compaction would keep a late record with a lower epoch.
        with self._fenced.held(f"cursorq-cursor-{self._topic}-{cursor.cell}", deadline) as producer:
            turns = Turns(f"set cursor '{cursor.cell}'", deadline)
            while True:
                turns.begin()
                try:
                    producer.open(deadline)
                    self._check_settable(cursor, deadline)
                    producer.commit([self._record(cursor, deadline)], [], deadline)
                    return
                except Uncertain as failed:
                    producer.wait(failed, deadline)
                except TrackerFenced as overtaken:
                    log.debug(
                        "Another client set the cursor at the same time. event=cursor_set_conflict cursor=%s",
                        cursor.cell,
                    )
                    turns.yield_to(overtaken)

    def _record(self, cursor: NamedCursor, deadline: Deadline) -> Record:
        key = cursor.cell.key
        return Record(self._topic, self._home(key, deadline)[0], key, wire.encode(cursor))
