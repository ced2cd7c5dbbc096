"""Optimistic concurrency: publishes a message only if no other message was published first."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing

from confluent_kafka import Message

from spark_cursor_source.core.stream_state import StreamPartition
from spark_cursor_source.errors import IncorrectOffset, TrackerFenced, TransactionStaysOpen
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.fenced_producers import Turns
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.kafka.transaction import Record, TransactionalProducer, Uncertain

log = logging.getLogger(__name__)

# A publisher that dies in a transaction hides later messages from readers for this time, plus the 10 s
# interval in which brokers check for expired transactions.
_TRANSACTION_TIMEOUT_MS = 3_000


class ExpectedOffsets:
    """Publishes a message only if no message of the partition has the expected offset or a higher one.

    The message is written in a transaction. If its offset directly follows the checked messages, no other
    producer, transactional or not, has appended since, and the transaction is committed. Otherwise it is
    aborted. The first of several racing messages wins, and no producer fences another. Threads may share
    an instance.
    """

    def __init__(self, kafka: Mapping[str, str], topics: ClusterAdmin, *, timeout_ms: int) -> None:
        self._kafka, self._topics, self._timeout_ms = kafka, topics, timeout_ms
        self._lock = threading.Lock()  # guards the reader, and allows one transaction at a time
        self._producer = TransactionalProducer(
            client_config(kafka, "producer"),
            f"cursorq-expected-{uuid.uuid4().hex}",
            call_timeout_ms=_TRANSACTION_TIMEOUT_MS,
            transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
        )
        self._reader: RangeReader | None = None

    def publish(self, record: Record, expected: int, deadline: Deadline) -> Message:
        """Writes the record if its offset is the expected one. Returns the stored message.

        Raises:
            IncorrectOffset: the partition is at another offset. The record is not written.
            KafkaUnavailable: the deadline passed first. The record may be stored.
            NotAuthorized, KafkaRefused, TopicNotFound
        """
        landed: list[Message] = []
        with deadline.acquire(self._lock, f"publish to '{record.topic}'"):
            while True:
                try:
                    # open() ends the transaction of the previous attempt, so that its outcome is known.
                    self._producer.open(deadline)
                    if landed and self._is_there(record, _offset(landed[0]), deadline):
                        return landed[0]
                    if self._try(record, expected, landed, deadline):
                        return landed[0]
                    log.debug(
                        "Another producer appended at the same time. event=publish_conflict topic=%s "
                        "partition=%s",
                        record.topic,
                        record.partition,
                    )
                except Uncertain as failed:
                    self._producer.wait(failed, deadline)
                except TrackerFenced as ended:  # the brokers fenced this producer after a transaction timeout
                    Turns(f"publish to '{record.topic}'", deadline).yield_to(ended)

    def close(self) -> None:
        """Closes the Kafka clients."""
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
            return self._is_next(place, end, _offset(delivered[0]), deadline)

        landed.clear()
        return self._producer.commit([record], [], deadline, inspect=inspect)

    def _is_next(self, place: StreamPartition, end: int, offset: int, deadline: Deadline) -> bool:
        """True if the uncommitted record at ``offset`` directly follows the messages below ``end``."""
        if offset == end:
            return True
        if self._topics.within(deadline).end_offsets([place], committed=True)[place] < offset:
            return False  # a rival's transaction came first and is still open
        # True if only transaction markers are between.
        return self._first_message(place, end, offset, deadline) is None

    def _is_there(self, record: Record, offset: int, deadline: Deadline) -> bool:
        place = (record.topic, record.partition)
        self._decided_end(place, deadline)  # the transaction is over, but its marker may not be written yet
        return self._first_message(place, offset, offset + 1, deadline) is not None

    def _checked_end(self, place: StreamPartition, expected: int, deadline: Deadline) -> int:
        end = self._decided_end(place, deadline)
        # Transaction markers, which are no messages, may lie between the last message and the end.
        if expected > end or self._first_message(place, expected, end, deadline):
            raise IncorrectOffset(*place, expected, end)
        return end

    def _decided_end(self, place: StreamPartition, deadline: Deadline) -> int:
        """Waits for the transactions of the partition that are open now, and returns its end.

        This also waits for the previous transaction of this publisher.
        """
        ends, settled = self._topics.within(deadline).settled_ends([place], deadline)
        if not settled:
            what = f"publish to '{place[0]}', partition {place[1]}"
            raise TransactionStaysOpen(what, deadline.spent_ms)
        return ends[place]

    def _first_message(
        self, place: StreamPartition, start: int, stop: int, deadline: Deadline
    ) -> Message | None:
        """Returns the first message in the range, or None."""
        if start >= stop:
            return None
        topic, number = place
        if self._reader is None:
            config = client_config(self._kafka, "consumer")
            self._reader = RangeReader(config, committed=True, stall_timeout_ms=self._timeout_ms)
        with closing(self._reader.read(topic, {number: (start, stop)}, deadline)) as found:
            return next(found, None)


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset
