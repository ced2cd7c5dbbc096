"""Dead letters back to the queue topics that they came from."""

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
from spark_cursor_source.kafka.range_consumer import offset_of, read_range
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

AT_ONCE = 500  #: records of one transaction, at most

_FIRST_ANSWER_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Which dead letters; without anything, all.

    Raises:
        InvalidOption: ``reason`` or ``error`` is no regular expression.
    """

    reason: str = ""  #: a regular expression that is found in the reason: max-deliveries, rejected
    error: str = ""  #: a regular expression that is found in what the handler said
    since_ms: int | None = None  #: messages of this instant or later (the time when they were produced)
    until_ms: int | None = None  #: messages before this instant

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
    """The counts of a redrive."""

    sent: int  #: messages that are in their queue topics again
    passed: int  #: dead letters that the filter does not take, or whose queue topic is gone
    before: int = field(
        default=0, compare=False
    )  #: redriven earlier, or other dead letters of such a message

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
    """Append the dead letters of ``topic`` to the queue topics and partitions that they came from.

    Key, value and the message's own headers are what they were. The timestamp is new, so that the queue's
    retention does not remove a message for its age; the one that it had is in the header
    ``cursorq-timestamp``. Every subscription of the queue sees a new message (SQS's redrive). The dead
    letters stay where they are.

    A dead letter is redriven once, whatever filter takes it: which ones were is kept in the cursors topic,
    and written in one transaction with the messages. A redrive that is started again, after whatever end,
    goes on where it was and appends nothing twice, for readers of committed records. A dead letter that a
    crash of the tracker has written twice is redriven once, too. At most ``rate`` messages a second are
    appended. It ends with the last dead letter there was when it began.

    Raises:
        NoDeadLetter: a record of the topic does not say where it came from.
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
    """A dead letter, taken apart."""

    message: Message
    offset: int  #: where it is itself
    topic: str  #: where the message was
    partition: int
    subscription: str
    origin: int  #: the offset that the message had
    reason: str
    error: str
    original_ms: int | None
    headers: Headers  #: the message's own

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
        """The message, for its queue topic."""
        message = self.message
        headers = [*self.headers, *timestamp_header(self.original_ms)]
        return Record(self.topic, self.partition, message.key(), message.value(), headers)


def _letter(message: Message) -> _Letter:
    headers = headers_of(message)
    # Ours begin with the last reason: the message may have headers of these names, which are its own.
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
            *(one for one in headers[:begin] if one[0] != HEADER_TIMESTAMP),  # it was redriven before
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
        self._done: dict[int, OffsetSet] = {}  # as it is committed, by partition
        self._seen: set[int] = set()  # ids of what was redriven
        self._queues: dict[str, int] = {}  # queue topic -> its partitions, 0: it is gone
        self._began = time.monotonic()
        self._sent = self._passed = self._before = 0

    def run(self) -> Redriven:
        # Nobody waits for minutes, at a terminal, to be told of a broker that was not there to begin with.
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
        """Note which messages were redriven: another dead letter of one may stand before it or behind it."""
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
        """The messages and the note that they were redriven, in one transaction."""
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
                    break  # a commit that was not answered had succeeded
                if now != self._done[number]:
                    raise RedriveFenced(self._topic) from failed  # and it has gone on meanwhile
        self._done[number] = after
        self._sent += len(letters)
        if self._rate is not None:
            time.sleep(max(0.0, self._began + self._sent / self._rate - time.monotonic()))

    def _wanted(self, number: int, messages: Sequence[Message]) -> list[_Letter]:
        """The dead letters that are to be redriven now."""
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
            log.warning("%s-%s is gone: its dead letter is passed over", letter.topic, letter.partition)
            return False
        return True

    def _partitions_of(self, topic: str) -> int:
        if topic not in self._queues:
            found = self._topics.existing([topic]).get(topic)
            self._queues[topic] = 0 if found is None else found.partitions
        return self._queues[topic]


def _forgotten(first: int, after: int) -> None:
    log.warning("retention has removed dead letters: offsets %s to %s", first, after)
