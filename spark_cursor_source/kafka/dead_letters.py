"""Copies of messages to the dead-letter topics: whole, and confirmed before anything forgets them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, Message, Producer

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.tracker import DeadLetter
from spark_cursor_source.errors import CopiesNotDurable, NotAuthorized
from spark_cursor_source.kafka.client_roles import abandon, producer_config
from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.dead_letter_headers import headers_of
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.failures import Complaints, error_of, shown
from spark_cursor_source.kafka.tail import TailReader
from spark_cursor_source.kafka.topics import Topics

logger = logging.getLogger(__name__)

_POLL_S = 0.05
_READ_THROUGH = 2_000  # so many records in between are read rather than sought over
_ROOM_FOR_HEADERS = 64 << 10
_NO_LIMIT = 1_000_000_000  # the client's; the brokers' is what counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """How many messages were copied, and how many were not there any more."""

    copied: int
    lost: int


@dataclass(slots=True)
class _Unconfirmed:
    """Copies on their way to the brokers."""

    pending: int = 0
    failed: int = 0
    topic: str = ""
    why: str = ""

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        self.pending -= 1
        if error is not None:
            self.failed += 1
            self.topic, self.why = message.topic() or "", shown(error)


@dataclass(slots=True)
class _Partition:
    """What is to be copied from one partition."""

    decisions: list[DeadLetter] = field(default_factory=list)

    @property
    def offsets(self) -> OffsetSet:
        return OffsetSet.union(decision.offsets for decision in self.decisions)


class DeadLetterCopier:
    """Reads messages by their id and writes them to the dead-letter topics, which it makes where needed."""

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: Topics,
        policy_for: Callable[[str], RedeliveryPolicy],
        *,
        patience_ms: int,
    ) -> None:
        self._patience_ms = patience_ms
        self._topics = topics
        self._policy_for = policy_for
        # The record itself, whatever became of its transaction: this subscription was given it.
        self._reader = TailReader(config, committed=False)
        self._complaints = Complaints()
        self._producer_config = producer_config(
            config,
            {
                "error_cb": self._complaints,
                "linger.ms": 5,
                "message.max.bytes": _NO_LIMIT,
                "message.timeout.ms": patience_ms,
            },
        )
        self._producer: Producer | None = None
        self._partitions: dict[str, int] = {}  # dead-letter topic -> its partitions

    def copy(self, decisions: Sequence[DeadLetter]) -> Copied:
        """Copy the messages; when this returns the brokers have confirmed every copy.

        A message that is not there any more is logged and counted.

        Raises:
            CopiesNotDurable: copies are not confirmed; some may be written all the same.
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        wanted: dict[str, dict[int, _Partition]] = {}
        for decision in decisions:
            if decision.offsets:
                cell = decision.cell
                of_topic = wanted.setdefault(cell.topic, {})
                of_topic.setdefault(cell.partition, _Partition()).decisions.append(decision)
        copied = lost = 0
        unconfirmed = _Unconfirmed()
        try:
            for topic, partitions in sorted(wanted.items()):
                written, missing = self._copy_topic(topic, partitions, unconfirmed)
                copied, lost = copied + written, lost + missing
            self._flush(unconfirmed)
        except BaseException:
            self._discard_producer()
            raise
        return Copied(copied=copied, lost=lost)

    def close(self) -> None:
        """End the clients."""
        self._reader.close()
        self._discard_producer()

    def _copy_topic(
        self, topic: str, partitions: Mapping[int, _Partition], unconfirmed: _Unconfirmed
    ) -> tuple[int, int]:
        origin = self._topics.existing([topic]).get(topic)
        there = 0 if origin is None else origin.partitions
        readable = [number for number in partitions if number < there]
        spans = self._spans(topic, {number: partitions[number].offsets for number in readable})
        if origin is not None:
            self._ensure_targets(topic, there, partitions.values())
        found: dict[int, list[int]] = {number: [] for number in partitions}
        copied = 0
        for ranges in _rounds(spans):
            for message in self._reader.read(topic, ranges):
                number, offset = message.partition(), message.offset()
                assert number is not None
                assert offset is not None
                for decision in partitions[number].decisions:
                    if offset in decision.offsets:
                        self._produce(message, decision, unconfirmed)
                        found[number].append(offset)
                        copied += 1
        lost = sum(
            _lost(decision, OffsetSet.from_offsets(found[number]))
            for number, partition in partitions.items()
            for decision in partition.decisions
        )
        return copied, lost

    def _spans(self, topic: str, wanted: Mapping[int, OffsetSet]) -> dict[int, list[tuple[int, int]]]:
        """What is to be read of each partition, as far as it is there."""
        partitions = [(topic, number) for number in wanted]
        begins = self._topics.beginning_offsets(partitions)
        ends = self._topics.end_offsets(partitions, committed=False)
        return {
            number: _spans(offsets.starting_at(begins[topic, number]).below(ends[topic, number]))
            for number, offsets in wanted.items()
        }

    def _ensure_targets(self, topic: str, partitions: int, wanted: Iterable[_Partition]) -> None:
        names = {self._target(decision) for one in wanted for decision in one.decisions}
        unknown = sorted(names - self._partitions.keys())
        if not unknown:
            return
        found = self._topics.existing(unknown)
        missing = [name for name in unknown if name not in found]
        if missing:
            settings = self._settings_like(topic)
            self._topics.create(dict.fromkeys(missing, (partitions, settings)))
            found |= self._topics.describe(missing)
            logger.info("dead-letter topics %s made with %s partitions", missing, partitions)
        self._partitions |= {name: info.partitions for name, info in found.items()}

    def _settings_like(self, topic: str) -> dict[str, object]:
        """Of a dead-letter topic that takes whatever the queue topic took."""
        try:
            most = int(self._topics.settings(topic).get("max.message.bytes") or 0)
        except NotAuthorized:
            most = 0  # the brokers' default, then
        settings: dict[str, object] = {
            "message.timestamp.type": "CreateTime",
            "cleanup.policy": "delete",
            # A copy is as old as its message: the brokers' default might remove it at once.
            "retention.ms": -1,
        }
        if most:
            settings["max.message.bytes"] = most + _ROOM_FOR_HEADERS
        return settings

    def _target(self, decision: DeadLetter) -> str:
        policy = self._policy_for(decision.cell.subscription)
        return policy.dead_letter_topic_for(
            topic=decision.cell.topic, subscription=decision.cell.subscription
        )

    def _produce(self, message: Message, decision: DeadLetter, unconfirmed: _Unconfirmed) -> None:
        if self._producer is None:
            self._producer = open_client(Producer, self._producer_config)
        target = self._target(decision)
        kind, timestamp_ms = message.timestamp()
        deadline = Deadline.after_ms(self._patience_ms)
        unconfirmed.pending += 1
        while True:
            try:
                self._producer.produce(
                    target,
                    message.value(),
                    message.key(),
                    partition=decision.cell.partition % self._partitions[target],
                    timestamp=0 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
                    headers=[*(message.headers() or []), *headers_of(decision, message)],
                    on_delivery=unconfirmed.on_delivery,
                )
                return
            except BufferError as full:
                if deadline.over:
                    raise self._not_durable(target, unconfirmed, "the producer's queue is full") from full
                self._producer.poll(_POLL_S)
            except KafkaException as raised:
                raise self._not_durable(target, unconfirmed, shown(error_of(raised))) from raised

    def _flush(self, unconfirmed: _Unconfirmed) -> None:
        deadline = Deadline.after_ms(self._patience_ms)
        try:
            while self._producer is not None and unconfirmed.pending and not deadline.over:
                self._producer.flush(deadline.left_s(most=1.0))
        except KafkaException as raised:
            raise self._not_durable("", unconfirmed, shown(error_of(raised))) from raised
        if unconfirmed.pending or unconfirmed.failed:
            heard = self._complaints.during(deadline)
            said = f" (the last that was heard: {shown(heard)})" if heard is not None else ""
            raise self._not_durable("", unconfirmed, f"no answer in {deadline.spent_ms} ms{said}")

    def _not_durable(self, topic: str, unconfirmed: _Unconfirmed, why: str) -> CopiesNotDurable:
        self._partitions.clear()  # a topic that was deleted is made again
        return CopiesNotDurable(
            unconfirmed.topic or topic, unconfirmed.pending + unconfirmed.failed, unconfirmed.why or why
        )

    def _discard_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            abandon(producer)


def _spans(offsets: OffsetSet) -> list[tuple[int, int]]:
    """Few ranges that hold all the offsets: what lies close together is read in one go."""
    spans: list[tuple[int, int]] = []
    for start, stop in offsets.iter_ranges():
        if spans and start - spans[-1][1] <= _READ_THROUGH:
            spans[-1] = (spans[-1][0], stop)
        else:
            spans.append((start, stop))
    return spans


def _rounds(spans: Mapping[int, list[tuple[int, int]]]) -> Iterator[dict[int, tuple[int, int]]]:
    """The first range of each partition, then the second of each, and so on."""
    for at_once in zip_longest(*spans.values()):
        yield {number: span for number, span in zip(spans, at_once, strict=True) if span is not None}


def _lost(decision: DeadLetter, found: OffsetSet) -> int:
    missing = decision.offsets - found
    if missing:
        logger.error(
            "%s messages of %s are not in the topic any more and have no dead letter (%s): offsets %r",
            len(missing),
            decision.cell,
            decision.reason,
            missing,
        )
    return len(missing)
