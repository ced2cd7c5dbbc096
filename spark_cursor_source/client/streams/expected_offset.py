"""Messages that are published only if nobody else has published since: optimistic concurrency."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing

from confluent_kafka import Message

from spark_cursor_source.core.stream_state import StreamPartition
from spark_cursor_source.errors import IncorrectOffset, KafkaUnavailable, TrackerFenced
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.fenced_producers import yield_turn
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.kafka.transaction import Record, TransactionalProducer, Uncertain

log = logging.getLogger(__name__)

# For so long, and the ten seconds after which brokers look, a publisher that dies in its transaction hides
# what comes after it from readers.
_TRANSACTION_TIMEOUT_MS = 3_000
_OPEN_TRANSACTION_S = 0.005  # the next look at one; it ends in a few milliseconds, or its writer is gone


class ExpectedOffsets:
    """Publishes under a condition: no message of the partition has the expected offset or a higher one.

    The message is written in a transaction. If it lands right behind the messages that were looked at, nobody
    came in between, whoever it may be and however he writes, and the transaction is committed; else it is
    undone. So of those who race the first to land wins, and nobody shuts anybody out. Threads may share it.
    """

    def __init__(self, kafka: Mapping[str, str], topics: ClusterAdmin, *, timeout_ms: int) -> None:
        self._kafka, self._topics, self._timeout_ms = kafka, topics, timeout_ms
        self._lock = threading.Lock()  # a transaction at a time, and the reader
        self._producer = TransactionalProducer(
            client_config(kafka, "producer"),
            f"cursorq-expected-{uuid.uuid4().hex}",
            call_timeout_ms=_TRANSACTION_TIMEOUT_MS,
            transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
        )
        self._reader: RangeReader | None = None

    def publish(self, record: Record, expected: int, deadline: Deadline) -> Message:
        """Write the record if the next message is the expected one; as the brokers have it.

        Raises:
            IncorrectOffset: it is not, and nothing was changed.
            KafkaUnavailable: no answer in time; it may be there all the same.
            NotAuthorized, KafkaRefused, TopicNotFound
        """
        landed: list[Message] = []
        with deadline.acquire(self._lock, f"publish to '{record.topic}'"):
            while True:
                try:
                    # Opening it ends what the producer before has left: then it is known what became of it.
                    self._producer.open(deadline)
                    if landed and self._is_there(record, _offset(landed[0])):
                        return landed[0]
                    if self._try(record, expected, landed, deadline):
                        return landed[0]
                    log.debug("%s-%s: another came in between", record.topic, record.partition)
                except Uncertain as failed:
                    self._producer.wait(failed, deadline)
                except TrackerFenced as ended:  # by the brokers, which had waited for too long
                    yield_turn(f"publish to '{record.topic}'", ended, deadline)

    def close(self) -> None:
        """End the clients."""
        with self._lock:
            self._producer.discard()
            if self._reader is not None:
                self._reader.close()
            self._reader = None

    def _try(self, record: Record, expected: int, landed: list[Message], deadline: Deadline) -> bool:
        place = (record.topic, record.partition)
        end = self._checked_end(place, expected, deadline)

        def inspect(delivered: Sequence[Message]) -> bool:
            landed[:] = delivered
            return self._is_next(place, end, _offset(delivered[0]))

        landed.clear()
        return self._producer.commit([record], [], deadline, inspect=inspect)

    def _is_next(self, place: StreamPartition, end: int, offset: int) -> bool:
        """Whether a record of ours that is not committed yet came right behind the messages below ``end``."""
        if offset == end:
            return True
        if self._topics.end_offsets([place], committed=True)[place] < offset:
            return False  # a rival was there first, and has not decided yet
        return self._first_message(place, end, offset) is None  # it was the mark of the transaction before

    def _is_there(self, record: Record, offset: int) -> bool:
        place = (record.topic, record.partition)
        return self._first_message(place, offset, offset + 1) is not None

    def _checked_end(self, place: StreamPartition, expected: int, deadline: Deadline) -> int:
        end = self._decided_end(place, deadline)
        # Between the last message and the end there can be the marks of transactions, which are no messages.
        if expected > end or self._first_message(place, expected, end):
            raise IncorrectOffset(*place, expected, end)
        return end

    def _decided_end(self, place: StreamPartition, deadline: Deadline) -> int:
        """The end of a partition without open transactions, which are waited for, also the one before."""
        while True:
            end = self._topics.end_offsets([place], committed=False)[place]
            if self._topics.end_offsets([place], committed=True)[place] >= end:
                return end
            if deadline.over:
                what = f"publish to '{place[0]}', partition {place[1]}"
                raise KafkaUnavailable(what, deadline.spent_ms, "a transaction is open")
            deadline.pause(_OPEN_TRANSACTION_S)

    def _first_message(self, place: StreamPartition, start: int, stop: int) -> Message | None:
        """The first message in a range, None without one."""
        if start >= stop:
            return None
        topic, number = place
        if self._reader is None:
            config = client_config(self._kafka, "consumer")
            self._reader = RangeReader(config, committed=True, stall_timeout_ms=self._timeout_ms)
        with closing(self._reader.read(topic, {number: (start, stop)})) as found:
            return next(found, None)


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset
