"""Dead letters back to the queue topics that they came from."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message, TopicPartition

from spark_cursor_source.errors import NoDeadLetter, RedriveFenced, TrackerFenced
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.consumers import borrowed_consumer
from spark_cursor_source.kafka.dead_letters import (
    HEADER_ERROR,
    HEADER_PARTITION,
    HEADER_REASON,
    HEADER_TOPIC,
    OWN_HEADERS,
)
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.records import offset_of, read_range
from spark_cursor_source.kafka.topics import Topics
from spark_cursor_source.kafka.transaction import Record, TransactionalProducer, Uncertain

logger = logging.getLogger(__name__)

AT_ONCE = 500  #: records of one transaction, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Which dead letters; without anything, all."""

    reason: str = ""  #: a regular expression that is found in the reason: max-deliveries, rejected
    error: str = ""  #: a regular expression that is found in what the handler said
    since_ms: int | None = None  #: messages of this instant or later (their own timestamps, ms since 1970)
    until_ms: int | None = None  #: messages before this instant

    @property
    def id(self) -> str:
        """A name that two filters share only where they are the same.

        >>> DeadLetterFilter().id == DeadLetterFilter(reason="").id != DeadLetterFilter(reason="bank").id
        True
        """
        text = f"{self.since_ms}/{self.until_ms}/{self.reason}"
        if self.error:
            text = repr((text, self.error))
        return blake2b(text.encode(), digest_size=6).hexdigest()

    def takes(self, reason: str, timestamp_ms: int, *, error: str = "") -> bool:
        """Whether a dead letter of this reason, this message's timestamp and this error is one of them.

        >>> bank = DeadLetterFilter(reason="rejected", error="^Bank", until_ms=2_000)
        >>> bank.takes("rejected", 1_999, error="BankClosed: at night"), bank.takes("rejected", 1_999)
        (True, False)
        >>> bank.takes("max-deliveries", 0, error="BankClosed"), bank.takes("rejected", 2_000, error="Bank")
        (False, False)
        """
        return (
            (self.since_ms is None or timestamp_ms >= self.since_ms)
            and (self.until_ms is None or timestamp_ms < self.until_ms)
            and re.search(self.reason, reason) is not None
            and re.search(self.error, error) is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """What a redrive has done."""

    sent: int  #: messages that are in their queue topics again
    passed: int  #: dead letters that the filter does not take, or whose queue topic is gone


def redrive(
    kafka: Mapping[str, str],
    topic: str,
    only: DeadLetterFilter | None = None,
    *,
    rate: float | None = None,
) -> Redriven:
    """Append the dead letters of ``topic`` to the queue topics and partitions that they came from.

    Key, value, timestamp and the message's own headers are what they were; every subscription of the queue
    sees a new message (SQS's redrive). The dead letters stay where they are. What has been read and what
    has been appended are one transaction: a redrive that is started again, after whatever end, goes on where
    it was and appends nothing twice, for readers of committed records. It remembers that by topic and filter:
    another filter begins with the first dead letter. At most ``rate`` messages a second are appended. It ends
    with the last dead letter there was when it began.

    Raises:
        NoDeadLetter: a record of the topic does not say where it came from.
        RedriveFenced: the same redrive was started elsewhere.
        TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    run = _Redrive(kafka, topic, only or DeadLetterFilter(), rate)
    try:
        return run.run()
    except TrackerFenced as fenced:
        raise RedriveFenced(topic) from fenced
    finally:
        run.close()


class _Redrive:
    def __init__(
        self, kafka: Mapping[str, str], topic: str, only: DeadLetterFilter, rate: float | None
    ) -> None:
        self._topic, self._only, self._rate = topic, only, rate
        self._group = f"cursorq-redrive-{topic}-{only.id}"
        self._topics = Topics(client_config(kafka, "admin"), timeout_ms=PATIENCE_MS)
        self._reader = client_config(kafka, "consumer") | {"isolation.level": "read_committed"}
        self._producer = TransactionalProducer(client_config(kafka, "producer"), self._group)
        self._positions: dict[int, int] = {}  # what is committed, of partitions where something is
        self._queues: dict[str, int] = {}  # queue topic -> its partitions, 0: it is gone
        self._began = time.monotonic()
        self._sent = self._passed = 0

    def run(self) -> Redriven:
        count = self._topics.describe([self._topic])[self._topic].partitions
        partitions = [(self._topic, number) for number in range(count)]
        self._producer.open(Deadline.after_ms(PATIENCE_MS))
        ends = self._topics.end_offsets(partitions, committed=True)
        beginnings, self._positions = self._topics.beginning_offsets(partitions), self._committed(count)
        for (_, number), end in ends.items():
            start = self._positions.get(number, beginnings[self._topic, number])
            for messages in self._read(number, start, end):
                self._append(number, messages)
        return Redriven(sent=self._sent, passed=self._passed)

    def close(self) -> None:
        self._producer.discard()

    def _committed(self, count: int) -> dict[int, int]:
        found = self._topics.committed(self._group, [(self._topic, number) for number in range(count)])
        return {number: at for (_, number), at in found.items()}

    def _read(self, number: int, start: int, end: int) -> Iterator[Sequence[Message]]:
        most = AT_ONCE if self._rate is None else max(1, min(AT_ONCE, int(self._rate)))
        with borrowed_consumer(self._reader) as consumer:
            for messages in read_range(consumer, self._topic, number, start, end, on_removed=_forgotten):
                for first in range(0, len(messages), most):
                    yield messages[first : first + most]

    def _append(self, number: int, messages: Sequence[Message]) -> None:
        """The messages and the position after them, in one transaction."""
        records = [record for message in messages if (record := self._record(message)) is not None]
        after = offset_of(messages[-1]) + 1
        deadline = Deadline.after_ms(PATIENCE_MS)
        while True:
            try:
                self._producer.commit(records, [TopicPartition(self._topic, number, after)], deadline)
                break
            except Uncertain as failed:
                self._producer.wait(failed, deadline)
                self._producer.open(deadline)
                now = self._committed(number + 1).get(number)
                if now == after:
                    break  # a commit that was not answered had succeeded
                if now != self._positions.get(number):
                    raise RedriveFenced(self._topic) from failed  # and it has gone on meanwhile
        self._positions[number] = after
        self._sent += len(records)
        self._passed += len(messages) - len(records)
        if self._rate is not None:
            time.sleep(max(0.0, self._began + self._sent / self._rate - time.monotonic()))

    def _record(self, message: Message) -> Record | None:
        given: Any = message.headers()
        headers: list[tuple[str, bytes | None]] = list(given or [])
        # Ours begin with the last reason: the message may have headers of these names, which are its own.
        begin = max(
            (at for at, (name, _) in enumerate(headers) if name == HEADER_REASON), default=len(headers)
        )
        own = {name: value or b"" for name, value in headers[begin:] if name in OWN_HEADERS}
        try:
            topic, partition = own[HEADER_TOPIC].decode(), int(own[HEADER_PARTITION])
            reason = own[HEADER_REASON].decode(errors="replace")
        except (KeyError, ValueError) as why:
            where = (self._topic, message.partition() or 0, offset_of(message))
            raise NoDeadLetter(*where, f"its headers have no valid {why}") from why
        kind, timestamp_ms = message.timestamp()
        if kind == TIMESTAMP_NOT_AVAILABLE:
            timestamp_ms = 0
        error = own.get(HEADER_ERROR, b"").decode(errors="replace")
        if not self._only.takes(reason, timestamp_ms, error=error):
            return None
        if partition >= self._partitions_of(topic):
            logger.warning("%s-%s is gone: its dead letter is passed over", topic, partition)
            return None
        kept = headers[:begin] + [one for one in headers[begin:] if one[0] not in OWN_HEADERS]
        return Record(topic, partition, message.key(), message.value(), kept, timestamp_ms)

    def _partitions_of(self, topic: str) -> int:
        if topic not in self._queues:
            found = self._topics.existing([topic]).get(topic)
            self._queues[topic] = 0 if found is None else found.partitions
        return self._queues[topic]


def _forgotten(first: int, after: int) -> None:
    logger.warning("retention has removed dead letters: offsets %s to %s", first, after)
