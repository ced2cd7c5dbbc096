"""Copies of messages to the dead-letter topics: whole, and confirmed before anything forgets them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Message

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.tracker import DeadLetter
from spark_cursor_source.kafka.copies import (
    Copies,
    Headers,
    headers_of,
    original_ms_of,
    reading_rounds,
    still_there,
)
from spark_cursor_source.kafka.dead_letter_topics import DeadLetterTopics
from spark_cursor_source.kafka.records import offset_of, place_of
from spark_cursor_source.kafka.tail import TailReader
from spark_cursor_source.kafka.topics import Topics
from spark_cursor_source.wire.due import due
from spark_cursor_source.wire.original_time import HEADER_TIMESTAMP

logger = logging.getLogger(__name__)

#: headers of a dead letter, after the message's own; their values are text
HEADER_REASON = "cursorq-reason"
HEADER_DELIVERY_COUNT = "cursorq-delivery-count"
HEADER_TOPIC = "cursorq-topic"
HEADER_PARTITION = "cursorq-partition"
HEADER_OFFSET = "cursorq-offset"
HEADER_SUBSCRIPTION = "cursorq-subscription"
HEADER_ERROR = "cursorq-error"  #: this and the following only where they are known
HEADER_FIRST_DELIVERY = "cursorq-first-delivery"
HEADER_LAST_DELIVERY = "cursorq-last-delivery"
OWN_HEADERS = (
    HEADER_REASON,
    HEADER_DELIVERY_COUNT,
    HEADER_TOPIC,
    HEADER_PARTITION,
    HEADER_OFFSET,
    HEADER_SUBSCRIPTION,
    HEADER_ERROR,
    HEADER_FIRST_DELIVERY,
    HEADER_LAST_DELIVERY,
    HEADER_TIMESTAMP,
)  #: all of them, in this order; the first begins ours, even where the message has headers of these names


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """How many messages were copied, and how many were not there any more."""

    copied: int
    lost: int


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
        self._topics = topics
        self._targets = DeadLetterTopics(topics)
        self._policy_for = policy_for
        # The record itself, whatever became of its transaction: this subscription was given it.
        self._reader = TailReader(config, committed=False)
        # What nobody was given yet is what a reader would be given.
        self._reader_of_undelivered = TailReader(config, committed=True)
        self._copies = Copies(config, patience_ms=patience_ms)

    def copy(self, decisions: Sequence[DeadLetter]) -> Copied:
        """Copy the messages; when this returns the brokers have confirmed every copy.

        A message that is not there any more is logged and counted.

        Raises:
            CopiesNotDurable: copies are not confirmed; some may be written all the same.
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        wanted: dict[tuple[str, bool], dict[int, _Partition]] = {}
        for decision in decisions:
            if decision.offsets:
                cell = decision.cell
                of_topic = wanted.setdefault((cell.topic, decision.delivery_count > 0), {})
                of_topic.setdefault(cell.partition, _Partition()).decisions.append(decision)
        copied = lost = 0
        try:
            for (topic, delivered), partitions in sorted(wanted.items()):
                reader = self._reader if delivered else self._reader_of_undelivered
                written, missing = self._copy_topic(reader, topic, partitions)
                copied, lost = copied + written, lost + missing
            self._copies.flush()
        except BaseException:
            self._copies.discard()
            self._targets.forget()
            raise
        return Copied(copied=copied, lost=lost)

    def close(self) -> None:
        """End the clients."""
        self._reader.close()
        self._reader_of_undelivered.close()
        self._copies.discard()

    def _copy_topic(
        self, reader: TailReader, topic: str, partitions: Mapping[int, _Partition]
    ) -> tuple[int, int]:
        every = {number: partition.offsets for number, partition in partitions.items()}
        wanted = still_there(self._topics, topic, every)
        if wanted:
            names = {self._target(one) for partition in partitions.values() for one in partition.decisions}
            self._targets.ensure(names, like=topic)
        found: dict[int, list[int]] = {number: [] for number in partitions}
        copied = 0
        for ranges in reading_rounds(wanted):
            for message in reader.read(topic, ranges):
                number, offset = place_of(message)
                for decision in partitions[number].decisions:
                    if offset in decision.offsets:
                        self._copy(message, decision)
                        found[number].append(offset)
                        copied += 1
        lost = sum(
            _lost(decision, OffsetSet.from_offsets(found[number]))
            for number, partition in partitions.items()
            for decision in partition.decisions
        )
        return copied, lost

    def _target(self, decision: DeadLetter) -> str:
        policy = self._policy_for(decision.cell.subscription)
        return policy.dead_letter_topic_for(
            topic=decision.cell.topic, subscription=decision.cell.subscription
        )

    def _copy(self, message: Message, decision: DeadLetter) -> None:
        target = self._target(decision)
        self._copies.add(
            target,
            self._targets.partition_for(target, decision.cell.partition),
            key=message.key(),
            value=message.value(),
            headers=[
                *headers_of(message),
                *dead_letter_headers(
                    decision,
                    offset_of(message),
                    first_delivery_ms=_first_delivery_ms(decision, message),
                    original_ms=original_ms_of(message),
                ),
            ],
        )


def dead_letter_headers(
    decision: DeadLetter, offset: int, *, first_delivery_ms: int | None, original_ms: int | None
) -> Headers:
    """What a dead letter says of itself, beside the message's own headers."""
    cell = decision.cell
    values = (
        decision.reason,
        decision.delivery_count,
        cell.topic,
        cell.partition,
        offset,
        cell.subscription,
        decision.error or None,
        first_delivery_ms,
        decision.last_delivery_ms,
        original_ms,
    )
    known = zip(OWN_HEADERS, values, strict=True)
    return [(name, str(value).encode()) for name, value in known if value is not None]


def _first_delivery_ms(decision: DeadLetter, message: Message) -> int | None:
    if decision.delivery_count <= 1:
        return decision.last_delivery_ms
    first_ms = decision.first_deliveries.at(offset_of(message))
    due_ms = due(headers_of(message), message.timestamp()[1]).at_ms
    if first_ms is not None and due_ms is not None and first_ms < due_ms:
        return None  # its turn had come, but it was not due; nobody noted when it was delivered after that
    return first_ms


def _lost(decision: DeadLetter, found: OffsetSet) -> int:
    if not decision.delivery_count:
        return 0  # never delivered: nobody has seen a message there, and gaps of the log are none
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
