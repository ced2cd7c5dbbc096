"""Redrive of dead letters to the queue topics that they came from."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Message

from spark_cursor_source.core.dead_letter_id import letter_id
from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import InvalidOption, NoDeadLetter, RedriveFenced, TrackerFenced
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.consumers import borrowed_consumer
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.range_consumer import read_range
from spark_cursor_source.kafka.reading import offset_of
from spark_cursor_source.kafka.transaction import Record, TransactionalProducer, Uncertain
from spark_cursor_source.topics.copies import Headers, headers_of, original_ms_of
from spark_cursor_source.topics.dead_letters import (
    HEADER_ERROR,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_REASON,
    HEADER_SUBSCRIPTION,
    HEADER_TOPIC,
    OWN_HEADERS,
)
from spark_cursor_source.topics.redriven import RedrivenOffsets
from spark_cursor_source.wire.original_time import HEADER_TIMESTAMP, timestamp_header

log = logging.getLogger(__name__)

AT_ONCE = 500  #: largest number of records in one transaction

_FIRST_ANSWER_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Selects dead letters; without arguments, all.

    Raises:
        InvalidOption: ``reason`` or ``error`` is not a regular expression.
    """

    reason: str = ""  #: regular expression to search in the reason (max-deliveries, rejected)
    error: str = ""  #: regular expression to search in the handler's error
    since_ms: int | None = None  #: messages produced at or after this time, in ms since 1970
    until_ms: int | None = None  #: messages produced before this time, in ms since 1970

    def __post_init__(self) -> None:
        for option, pattern in (("reason", self.reason), ("error", self.error)):
            try:
                re.compile(pattern)
            except re.error as why:
                raise InvalidOption(
                    option,
                    pattern,
                    f"it is no regular expression ({why})",
                    "put a backslash before a character that is to stand for itself",
                ) from why

    def takes(self, reason: str, timestamp_ms: int, *, error: str = "") -> bool:
        """True if the filter selects a dead letter with this reason, message timestamp and error.

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
    """Counts of a redrive."""

    sent: int  #: messages appended to their queue topics
    passed: int  #: dead letters that the filter excludes or whose queue topic is gone
    #: dead letters redriven earlier, or whose message was redriven from another dead letter
    before: int = field(default=0, compare=False)

    def __str__(self) -> str:
        earlier = f", {self.before} were redriven before" if self.before else ""
        return (
            f"{self.sent} messages are in their queues again, {self.passed} dead letters were passed over"
            f"{earlier}"
        )


def redrive(
    kafka: Mapping[str, str],
    topic: str,
    only: DeadLetterFilter | None = None,
    *,
    rate: float | None = None,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
) -> Redriven:
    """Appends the dead letters of ``topic`` to the queue topics and partitions that they came from.

    Key, value and the message's own headers are unchanged. The timestamp is new, so that the retention of the
    queue topic does not remove an old message. The original timestamp is in the header ``cursorq-timestamp``.
    Every subscription of the queue topic receives a new message, as in SQS's redrive. The dead letters stay
    in ``topic``.

    Each dead letter is redriven once, regardless of filters. The cursors topic records which ones were
    redriven, in one transaction with the messages. A redrive that is started again continues after the last
    transaction and appends no message twice, for read_committed consumers. A dead letter that was written
    twice because of a tracker crash is also redriven once. At most ``rate`` messages per second are appended.
    The redrive ends with the last dead letter present at its start.

    Raises:
        NoDeadLetter: a record of the topic does not name the message that it came from.
        RedriveFenced: another redrive of the topic was started.
        TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    run = _Redrive(kafka, topic, only or DeadLetterFilter(), rate, cursors_topic)
    try:
        return run.run()
    except TrackerFenced as fenced:
        raise RedriveFenced(topic) from fenced
    finally:
        run.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Letter:
    """A parsed dead letter."""

    message: Message
    offset: int  #: offset of the dead letter
    topic: str  #: queue topic of the message
    partition: int
    subscription: str
    origin: int  #: offset of the message in its queue topic
    reason: str
    error: str
    original_ms: int | None
    headers: Headers  #: headers of the message itself

    @property
    def id(self) -> int:
        return letter_id(
            topic=self.topic,
            partition=self.partition,
            offset=self.origin,
            subscription=self.subscription,
            original_ms=self.original_ms,
        )

    def record(self) -> Record:
        """Returns the record for the queue topic."""
        message = self.message
        headers = [*self.headers, *timestamp_header(self.original_ms)]
        return Record(self.topic, self.partition, message.key(), message.value(), headers)


def _letter(message: Message) -> _Letter:
    headers = headers_of(message)
    # The dead-letter headers begin at the last reason header. Earlier headers with the same names belong to
    # the message.
    begin = max((at for at, (name, _) in enumerate(headers) if name == HEADER_REASON), default=len(headers))
    own = {name: value or b"" for name, value in headers[begin:] if name in OWN_HEADERS}

    def text(name: str) -> str:
        return own.get(name, b"").decode(errors="replace")

    try:
        topic, partition = own[HEADER_TOPIC].decode(), int(own[HEADER_PARTITION])
        origin = int(own[HEADER_OFFSET])
        reason = own[HEADER_REASON].decode(errors="replace")
    except (KeyError, ValueError) as why:
        where = (message.topic() or "", message.partition() or 0, offset_of(message))
        raise NoDeadLetter(*where, f"its headers have no valid {why}") from why
    return _Letter(
        message=message,
        offset=offset_of(message),
        topic=topic,
        partition=partition,
        subscription=text(HEADER_SUBSCRIPTION),
        origin=origin,
        reason=reason,
        error=text(HEADER_ERROR),
        original_ms=original_ms_of(message),
        headers=[
            # a timestamp header remains from an earlier redrive
            *(one for one in headers[:begin] if one[0] != HEADER_TIMESTAMP),
            *(one for one in headers[begin:] if one[0] not in OWN_HEADERS),
        ],
    )


class _Redrive:
    def __init__(
        self,
        kafka: Mapping[str, str],
        topic: str,
        only: DeadLetterFilter,
        rate: float | None,
        cursors_topic: str,
    ) -> None:
        self._topic, self._only, self._rate, self._cursors_topic = topic, only, rate, cursors_topic
        self._topics = ClusterAdmin(client_config(kafka, "admin"), timeout_ms=PATIENCE_MS).meet()
        self._reader = client_config(kafka, "consumer") | {"isolation.level": "read_committed"}
        self._producer = TransactionalProducer(client_config(kafka, "producer"), f"cursorq-redrive-{topic}")
        self._store: RedrivenOffsets | None = None
        self._done: dict[int, OffsetSet] = {}  # committed redriven offsets, by partition
        self._seen: set[int] = set()  # ids of redriven messages
        self._queues: dict[str, int] = {}  # partition count by queue topic; 0 if the topic is gone
        self._began = time.monotonic()
        self._sent = self._passed = self._before = 0

    def run(self) -> Redriven:
        # A short timeout for the first request: an operator at a terminal should not wait for minutes if the
        # broker is unavailable from the start.
        first = self._topics.within(Deadline.after_ms(_FIRST_ANSWER_MS))
        info = first.describe([self._topic])[self._topic]
        self._topics.ensure_cursors(self._cursors_topic)
        partitions = [(self._topic, number) for number in range(info.partitions)]
        self._producer.open(Deadline.after_ms(PATIENCE_MS))
        ends = self._topics.end_offsets(partitions, committed=True)
        begins = self._topics.beginning_offsets(partitions)
        self._store = RedrivenOffsets(self._reader, self._cursors_topic, info)
        self._done = self._store.read()
        for number, offsets in self._done.items():
            self._remember(number, offsets.starting_at(begins[self._topic, number]))
        for (_, number), end in ends.items():
            begin = begins[self._topic, number]
            for messages in self._read(number, begin, end):
                self._append(number, messages, gone=OffsetSet.of((0, begin)))
        return Redriven(sent=self._sent, passed=self._passed, before=self._before)

    def close(self) -> None:
        self._producer.discard()
        if self._store is not None:
            self._store.close()

    def _remember(self, number: int, offsets: OffsetSet) -> None:
        """Records the ids of redriven messages. Other dead letters of them may precede or follow."""
        if offsets.first is None or offsets.last is None:
            return
        for messages in self._read(number, offsets.first, offsets.last + 1):
            self._seen.update(_letter(one).id for one in messages if offset_of(one) in offsets)

    def _read(self, number: int, start: int, end: int) -> Iterator[Sequence[Message]]:
        most = AT_ONCE if self._rate is None else max(1, min(AT_ONCE, int(self._rate)))
        with borrowed_consumer(self._reader) as consumer:
            for messages in read_range(consumer, self._topic, number, start, end, on_removed=_forgotten):
                for first in range(0, len(messages), most):
                    yield messages[first : first + most]

    def _append(self, number: int, messages: Sequence[Message], *, gone: OffsetSet) -> None:
        """Writes the messages and the record of their redrive in one transaction."""
        letters = self._wanted(number, messages)
        if not letters:
            return
        after = self._done[number] | gone | OffsetSet.from_offsets(letter.offset for letter in letters)
        assert self._store is not None
        records = [letter.record() for letter in letters] + self._store.records(number, after)
        deadline = Deadline.after_ms(PATIENCE_MS)
        while True:
            try:
                self._producer.commit(records, [], deadline)
                break
            except Uncertain as failed:
                self._producer.wait(failed, deadline)
                self._producer.open(deadline)
                now = self._store.read()[number]
                if now == after:
                    break  # the commit succeeded, but its response was lost
                if now != self._done[number]:
                    raise RedriveFenced(self._topic) from failed  # another redrive has committed since
        self._done[number] = after
        self._sent += len(letters)
        if self._rate is not None:
            time.sleep(max(0.0, self._began + self._sent / self._rate - time.monotonic()))

    def _wanted(self, number: int, messages: Sequence[Message]) -> list[_Letter]:
        """Returns the dead letters to redrive now."""
        wanted: list[_Letter] = []
        for message in messages:
            if offset_of(message) in self._done[number] or (letter := _letter(message)).id in self._seen:
                self._before += 1
            elif self._takes(letter):
                self._seen.add(letter.id)
                wanted.append(letter)
            else:
                self._passed += 1
        return wanted

    def _takes(self, letter: _Letter) -> bool:
        if not self._only.takes(letter.reason, letter.original_ms or 0, error=letter.error):
            return False
        if letter.partition >= self._partitions_of(letter.topic):
            log.warning(
                "The queue partition of a dead letter does not exist. The dead letter is skipped. "
                "event=queue_partition_missing topic=%s partition=%s",
                letter.topic,
                letter.partition,
            )
            return False
        return True

    def _partitions_of(self, topic: str) -> int:
        if topic not in self._queues:
            found = self._topics.existing([topic]).get(topic)
            self._queues[topic] = 0 if found is None else found.partitions
        return self._queues[topic]


def _forgotten(first: int, after: int) -> None:
    log.warning(
        "Retention removed dead letters before they were redriven. event=dead_letters_expired "
        "first=%s last=%s",
        first,
        after,
    )
