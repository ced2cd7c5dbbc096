"""Streams topic: paused and readonly partitions, and the settings with which streams were created."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from confluent_kafka import Message

from spark_cursor_source.core.cell import control_partition
from spark_cursor_source.core.stream_state import (
    MadeReadonly,
    Paused,
    StreamConfigured,
    StreamPartition,
    StreamRecord,
    StreamSettings,
    StreamView,
)
from spark_cursor_source.errors import ClientClosed, InvalidControlRecord, TopicGone, TopicNotFound
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.pool import ClientPool
from spark_cursor_source.kafka.publisher import Publisher
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.wire import streams as wire

log = logging.getLogger(__name__)


class StreamStates:
    """Snapshot of the streams topic as of the last :meth:`refresh`. Threads may share it.

    Access to :attr:`view` needs no request. A refresh without new records needs one or two small requests.
    The topic is created by the first write. Without it every stream is an ordinary topic.
    """

    def __init__(
        self, kafka: Mapping[str, str], topic: str, topics: ClusterAdmin, *, timeout_ms: int
    ) -> None:
        self._kafka, self._topic, self._timeout_ms = kafka, topic, timeout_ms
        self._topics = topics
        self._publisher = Publisher(client_config(kafka, "producer"), timeout_ms=timeout_ms)
        self._lock = threading.Lock()  # guards the reader and the positions
        self._reader: RangeReader | None = None
        self._positions: dict[int, int] = {}
        self._closed = False
        self.view = StreamView()  #: replaced as a whole, so reads of it need no lock

    def refresh(self, deadline: Deadline | None = None) -> StreamView:
        """Read to the current end and return the view, by the deadline or within the timeout of this object.

        Raises:
            ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        deadline = deadline or Deadline.after_ms(self._timeout_ms)
        with deadline.acquire(self._lock, f"read streams topic '{self._topic}'"):
            if self._closed:
                raise ClientClosed
            ends = self._ends(deadline)
            if any(ends.get(number, 0) < position for number, position in self._positions.items()):
                log.warning(
                    "The streams topic ends before the position of its reader and is read from its "
                    "beginning. event=streams_topic_truncated topic=%s",
                    self._topic,
                )
                self._positions, self.view = {}, StreamView()
            ranges = {
                number: (self._positions.get(number, 0), end)
                for number, end in ends.items()
                if self._positions.get(number, 0) < end
            }
            if ranges:
                self.view = self.view.after(self._read(ranges))
                self._positions |= {number: stop for number, (_, stop) in ranges.items()}
            return self.view

    def paused(self, places: Collection[StreamPartition]) -> frozenset[StreamPartition]:
        """Return the partitions that were paused at the last refresh."""
        if not self.view.states:  # a query asks at each trigger, and most streams were never paused
            return frozenset()
        return frozenset(place for place in places if self.view.state(place).paused)

    def pause(self, stream: str, partitions: Iterable[int], *, resume_all: bool) -> None:
        """Pause partitions durably. Other clients apply it at their next refresh."""
        self._write(
            [Paused(place=(stream, number), paused=True, resume_all=resume_all) for number in partitions]
        )

    def set_readonly(self, stream: str, partitions: Iterable[int], *, readonly: bool) -> None:
        """Make partitions readonly or writable, durably. Other clients apply it at their next refresh."""
        self._write([MadeReadonly(place=(stream, number), readonly=readonly) for number in partitions])

    def published(self, places: Iterable[StreamPartition], deadline: Deadline | None = None) -> None:
        """End the pauses that end with a message to one of these partitions."""
        resumed = {(stream, number) for stream, to in places for number in self.view.resumed_by((stream, to))}
        self._write([Paused(place=place, paused=False) for place in sorted(resumed)], deadline)

    def admit(self, stream: str, partition: int | None) -> None:
        """Check that messages can be sent to a partition, and end the pauses that end with such a message.

        With ``partition=None`` keys choose the partitions, so every partition of the stream is checked.

        Raises:
            ReadonlyPartition: a partition is readonly.
        """
        numbers = self.view.states.get(stream, {}) if partition is None else [partition]
        places = [(stream, number) for number in numbers]
        for place in places:
            self.view.check_writable(place)
        self.published(places)

    def resume(self, place: StreamPartition) -> None:
        """End the pause of a partition if it is paused."""
        if self.view.state(place).paused:
            self._write([Paused(place=place, paused=False)])

    def define(self, stream: str, settings: StreamSettings) -> None:
        """Write the settings of a new stream. The state of an earlier stream of the same name is reset."""
        records = self.refresh().records_of(stream)
        if settings != StreamSettings():
            records.append(StreamConfigured(stream=stream, settings=settings))
        self._write(records)

    def close(self) -> None:
        """Close the clients."""
        with self._lock:
            self._closed = True
            if self._reader is not None:
                self._reader.close()
        self._publisher.close()

    def now_ms(self) -> int:
        """Return the brokers' time in ms, taken from a record that is written for this purpose."""
        (message,) = self._put([(wire.CLOCK_KEY, None)])
        return message.timestamp()[1]

    def _write(self, records: Sequence[StreamRecord], deadline: Deadline | None = None) -> None:
        if records:
            self._put([(wire.key_of(record), wire.encode(record)) for record in records], deadline)
            self.refresh(deadline)

    def _put(
        self, records: Sequence[tuple[bytes, bytes | None]], deadline: Deadline | None = None
    ) -> list[Message]:
        deadline = deadline or Deadline.after_ms(self._timeout_ms)
        # Check the topic before each write. Writes are rare, and the topic may have been deleted or altered.
        count = self._topics.within(deadline).ensure_streams(self._topic)
        placed = [(control_partition(key, count), key, value) for key, value in records]
        return self._publisher.put_all(self._topic, placed, deadline)

    def _ends(self, deadline: Deadline) -> dict[int, int]:
        """Return the end offsets of the topic's partitions. Empty if the topic does not exist."""
        topics = self._topics.within(deadline)
        infos = topics.existing([self._topic])
        numbers = range(infos[self._topic].partitions) if self._topic in infos else ()
        places = [(self._topic, number) for number in numbers]
        try:
            ends = topics.end_offsets(places, committed=False)
        except (TopicNotFound, TopicGone):  # the topic was deleted after the check above
            return {}
        return {number: end for (_, number), end in ends.items()}

    def _read(self, ranges: Mapping[int, tuple[int, int]]) -> list[tuple[StreamRecord, int]]:
        if self._reader is None:
            self._reader = RangeReader(
                client_config(self._kafka, "consumer"), committed=False, stall_timeout_ms=self._timeout_ms
            )
        found: list[tuple[StreamRecord, int]] = []
        for message in self._reader.read(self._topic, ranges):
            key = message.key() or b""
            if key == wire.CLOCK_KEY:
                continue
            try:
                found.append((wire.decode(key, message.value()), message.timestamp()[1]))
            except InvalidControlRecord as why:
                log.warning(
                    "A record of the streams topic is not valid and is skipped. "
                    "event=stream_record_skipped topic=%s offset=%s why=%s",
                    self._topic,
                    message.offset(),
                    why,
                )
        return found


@contextmanager
def borrowed_states(kafka: Mapping[str, str], topic: str) -> Iterator[StreamStates]:
    """Lend the current stream states to a task. The process keeps the clients for the next task."""

    def make() -> StreamStates:
        topics = ClusterAdmin(client_config(kafka, "admin"), timeout_ms=PATIENCE_MS)
        return StreamStates(kafka, topic, topics, timeout_ms=PATIENCE_MS)

    with _idle.lend((frozenset(kafka.items()), topic), make) as states:
        states.refresh()
        yield states


_idle = ClientPool(StreamStates.close)
