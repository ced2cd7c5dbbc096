"""Copies of messages in dead-letter topics: complete, and confirmed before the tracker drops a message."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, cast

from confluent_kafka import KafkaError, Message

from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.tracker import DeadLetter
from spark_cursor_source.errors import CopiesNotDurable, KafkaFailure, LaterCursorVersion
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import facts, shown
from spark_cursor_source.kafka.range_consumer import place_of
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.kafka.reading import offset_of
from spark_cursor_source.kafka.record_headers import headers_of
from spark_cursor_source.topics.copies import (
    OF_ONE_MESSAGE,
    MessageCopier,
    original_ms_of,
    reading_rounds,
)
from spark_cursor_source.topics.dead_letter_topics import DeadLetterTopics, readable
from spark_cursor_source.topics.dead_letters import dead_letter_headers, first_delivery_ms
from spark_cursor_source.topics.rescue import Rescue, RescuedMessage
from spark_cursor_source.topics.retry_pauses import Place, RetryPauses, Withheld, log_withheld

log = logging.getLogger(__name__)

_GRACE_MS = 3_000  # time for the client to report that the timeout of a copy has passed
_MOST_TOPICS = 3  # number of unresponsive topics that one batch waits for


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """Counts of copied and missing messages, and the dead letters that could not be copied."""

    copied: int = 0
    lost: int = 0
    withheld: tuple[Withheld, ...] = ()


@dataclass(slots=True)
class _Held:
    offsets: OffsetSet
    why: str
    place: Place | None  #: the topic that failed; None if only these messages failed
    tried: bool


@dataclass(slots=True)
class _Letter:
    """A dead-letter decision in progress."""

    decision: DeadLetter
    target: str
    found: list[int] = field(default_factory=list)  # offsets of messages that were read from the queue topic
    unanswered: set[int] = field(default_factory=set)  # offsets in `found` whose copy is not confirmed yet
    copied: int = 0
    held: list[_Held] = field(default_factory=list)

    @property
    def rest(self) -> OffsetSet:
        """Offsets of messages that are neither read nor held."""
        held = OffsetSet.union(one.offsets for one in self.held)
        return self.decision.offsets - OffsetSet.from_offsets(self.found) - held

    def hold(
        self, why: str, place: Place | None = None, *, offsets: OffsetSet | None = None, tried: bool = True
    ) -> None:
        """Holds messages back for a later try: ``offsets``, or the rest."""
        withheld = self.rest if offsets is None else offsets
        if withheld:
            self.held.append(_Held(withheld, why, place, tried))


class DeadLetterCopier:
    """Reads messages by their id and writes them to dead-letter topics. Creates missing topics.

    Messages that cannot be read or written are withheld with a reason and do not block others. Each topic has
    ``patience_ms``. A topic that failed is skipped for a while, with an increasing backoff.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: ClusterAdmin,
        policy_for: Callable[[str], RedeliveryPolicy],
        *,
        patience_ms: int,
        rescue: Rescue | None = None,
    ) -> None:
        self._rescue = None if rescue is None else rescue.within(patience_ms)
        self._topics = topics
        self._patience_ms = patience_ms
        self._targets = DeadLetterTopics(topics)
        self._policy_for = policy_for
        # Reads delivered messages even if their transaction was aborted, because the subscription has
        # received them.
        self._reader = RangeReader(config, committed=False, stall_timeout_ms=patience_ms)
        # Reads undelivered messages as a consumer would: committed records only.
        self._reader_of_undelivered = RangeReader(config, committed=True, stall_timeout_ms=patience_ms)
        self._copies = MessageCopier(
            config, patience_ms=patience_ms + _GRACE_MS, settings={"message.timeout.ms": patience_ms}
        )
        self._troubles = RetryPauses()
        self._refused: list[tuple[Message, _Letter, KafkaError]] = []

    def copy(self, decisions: Sequence[DeadLetter]) -> Copied:
        """Copies the messages. Returns after brokers have confirmed every copy that is not withheld.

        A message that is no longer in its topic is logged and counted.
        """
        letters = [_Letter(one, self._target(one)) for one in decisions if one.offsets]
        budget = Deadline.after_ms(_MOST_TOPICS * self._patience_ms)
        lost = 0
        try:
            for topic, reader, of_topic in self._by_topic(letters):
                lost += self._copy_topic(topic, reader, of_topic, budget)
            self._flush(letters)
        except BaseException:
            self._copies.discard()
            self._targets.forget()
            self._refused.clear()
            raise
        self._learn(letters, spent_ms=budget.spent_ms)
        withheld = [
            self._troubles.withheld(letter.decision, held.offsets, held.why, held.place, tried=held.tried)
            for letter in letters
            for held in letter.held
        ]
        log_withheld(withheld)
        return Copied(copied=sum(letter.copied for letter in letters), lost=lost, withheld=tuple(withheld))

    def close(self) -> None:
        """Closes the clients."""
        self._reader.close()
        self._reader_of_undelivered.close()
        self._copies.discard()

    def _by_topic(self, letters: Iterable[_Letter]) -> list[tuple[str, RangeReader, list[_Letter]]]:
        """Groups the letters by queue topic. Topics with a recent failure come last."""
        topics: dict[tuple[bool, str, bool], list[_Letter]] = {}
        for letter in letters:
            topic = letter.decision.cell.topic
            places = (Place("read", topic), Place("write", letter.target))
            doubtful = any(self._troubles.is_known(place) for place in places)
            topics.setdefault((doubtful, topic, letter.decision.delivery_count > 0), []).append(letter)
        return [
            (topic, self._reader if delivered else self._reader_of_undelivered, of_topic)
            for (_, topic, delivered), of_topic in sorted(topics.items())
        ]

    def _copy_topic(
        self, topic: str, reader: RangeReader, letters: Iterable[_Letter], budget: Deadline
    ) -> int:
        """Queues the copies of messages from one topic. Returns the number of missing messages."""
        tried = [letter for letter in letters if self._is_to_be_tried(letter)]
        if budget.over:
            for letter in tried:
                letter.hold(f"no time was left: {budget.spent_ms} ms were spent on others", tried=False)
            return 0
        source = Place("read", topic)
        wanted = {
            number: OffsetSet.union(one.decision.offsets for one in of)
            for number, of in _by_partition(tried).items()
        }
        try:
            there, leaderless = readable(self._in_time(), topic, wanted)
        except KafkaFailure as failed:
            for letter in tried:
                letter.hold(facts(failed), source)
            return 0
        for letter in tried:
            if letter.decision.cell.partition in leaderless:
                letter.hold(f"partition {letter.decision.cell.partition} of topic '{topic}' has no leader")
        rescued = self._rescued(topic, tried, there)
        found = {number: there[number] | rescued.get(number, EMPTY) for number in there}
        self._find_targets([one for one in tried if one.rest], topic, found)
        ready = [letter for letter in tried if letter.rest]
        self._read_rescued(topic, ready, rescued)
        try:
            self._read(topic, reader, ready, there)
        except KafkaFailure as failed:
            for letter in ready:
                letter.hold(facts(failed), source, offsets=letter.rest)
            return 0
        return sum(_lost(letter.decision, letter.rest) for letter in ready)

    def _in_time(self) -> ClusterAdmin:
        """Returns a client for one topic, or for the dead-letter topics of one, from now on."""
        return self._topics.within(Deadline.after_ms(self._patience_ms))

    def _is_to_be_tried(self, letter: _Letter) -> bool:
        if letter.target == letter.decision.cell.topic:  # each copy would be a new message, and die again
            letter.hold("deadLetterTopic of the tracker names the queue topic itself")
            return False
        for place in (Place("read", letter.decision.cell.topic), Place("write", letter.target)):
            why = self._troubles.why_not_yet(place, letter.decision)
            if why is not None:
                letter.hold(why, place, tried=False)
                return False
        return True

    def _find_targets(self, letters: Iterable[_Letter], topic: str, there: Mapping[int, OffsetSet]) -> None:
        """Ensures that each dead-letter topic exists if at least one message for it exists."""
        wanted: dict[str, list[_Letter]] = {}
        for letter in letters:
            if letter.decision.offsets & there.get(letter.decision.cell.partition, EMPTY):
                wanted.setdefault(letter.target, []).append(letter)
        topics = self._in_time()
        for target, of_target in wanted.items():
            try:
                self._targets.ensure([target], like=topic, topics=topics)
            except KafkaFailure as failed:
                for letter in of_target:
                    letter.hold(facts(failed), Place("write", target))

    def _read_rescued(self, topic: str, letters: Iterable[_Letter], rescued: Mapping[int, OffsetSet]) -> None:
        """Queues the copies of messages from the rescue topic. Holds those that cannot be read."""
        of_partition = _by_partition(letters)
        for number in rescued.keys() & of_partition.keys():
            assert self._rescue is not None
            by_offset = _ByOffset(of_partition[number])
            try:
                for messages in self._rescue.messages(topic, number, rescued[number]):
                    for message in messages:
                        self._copy_to_all(message, by_offset)
            except (KafkaFailure, LaterCursorVersion) as failed:
                place = Place("read", self._rescue.topic)
                for letter in of_partition[number]:
                    letter.hold(facts(failed), place, offsets=letter.rest & rescued[number])

    def _read(
        self,
        topic: str,
        reader: RangeReader,
        letters: Iterable[_Letter],
        there: Mapping[int, OffsetSet],
    ) -> None:
        of_partition = _by_partition(letters)
        wanted = {
            number: OffsetSet.union(one.decision.offsets for one in of) & there.get(number, EMPTY)
            for number, of in of_partition.items()
        }
        by_offset = {number: _ByOffset(of) for number, of in of_partition.items()}
        for ranges in reading_rounds(wanted):
            for message in reader.read(topic, ranges):
                self._copy_to_all(message, by_offset[place_of(message)[0]])

    def _copy_to_all(self, message: Message | RescuedMessage, letters: _ByOffset) -> None:
        """Copies a message for each letter that it belongs to."""
        offset = offset_of(cast("Message", message))
        for letter in letters.at(offset):
            letter.found.append(offset)
            self._copy(cast("Message", message), letter)

    def _rescued(
        self, topic: str, letters: Iterable[_Letter], there: Mapping[int, OffsetSet]
    ) -> dict[int, OffsetSet]:
        """Returns the offsets of each partition that are only in the rescue topic.

        Holds those that are not in the queue topic if the rescue topic cannot be read.
        """
        if self._rescue is None:
            return {}
        place = Place("read", self._rescue.topic)
        missing: list[tuple[_Letter, OffsetSet]] = []
        for letter in letters:
            number = letter.decision.cell.partition
            if number not in there or not (offsets := letter.decision.offsets - there[number]):
                continue
            why = self._troubles.why_not_yet(place, letter.decision)
            if why is None:
                missing.append((letter, offsets))
            else:
                letter.hold(why, place, offsets=offsets, tried=False)
        wanted: dict[int, list[OffsetSet]] = {}
        for letter, offsets in missing:
            wanted.setdefault(letter.decision.cell.partition, []).append(offsets)
        if not wanted:
            return {}
        try:
            found = self._rescue.has(topic, {number: OffsetSet.union(of) for number, of in wanted.items()})
        except (KafkaFailure, LaterCursorVersion) as failed:
            for letter, offsets in missing:
                letter.hold(facts(failed), place, offsets=offsets)
            return {}
        self._troubles.succeeded(place)
        return found

    def _target(self, decision: DeadLetter) -> str:
        policy = self._policy_for(decision.cell.subscription)
        return policy.dead_letter_topic_for(
            topic=decision.cell.topic, subscription=decision.cell.subscription
        )

    def _copy(self, message: Message, letter: _Letter) -> None:
        decision, offset = letter.decision, offset_of(message)

        def told(error: KafkaError | None) -> None:
            if offset not in letter.unanswered:
                return  # it is held already, and its producer was closed
            letter.unanswered.discard(offset)
            if error is None:
                letter.copied += 1
            else:
                self._refused.append((message, letter, error))

        letter.unanswered.add(offset)
        self._copies.add(
            letter.target,
            self._targets.partition_for(letter.target, decision.cell.partition),
            key=message.key(),
            value=message.value(),
            headers=[
                *headers_of(message),
                *dead_letter_headers(
                    decision,
                    offset,
                    first_delivery_ms=first_delivery_ms(decision, message),
                    original_ms=original_ms_of(message),
                ),
            ],
            told=told,
        )

    def _flush(self, letters: Iterable[_Letter]) -> None:
        """Waits for the brokers' responses. Holds refused messages."""
        answered = self._await_answers(letters)
        refused, self._refused = self._refused, []
        # A broker rejects a whole produce batch because of one record, so each refused message is retried
        # alone, unless the wait for answers has closed the producer.
        again = Deadline.after_ms(self._patience_ms)
        for message, letter, error in refused:
            if answered and error.code() in OF_ONE_MESSAGE and not again.over:
                self._copy(message, letter)
                answered = self._await_answers([letter])
            else:
                self._refused.append((message, letter, error))
        for message, letter, error in self._refused:
            place = None if error.code() in OF_ONE_MESSAGE else Place("write", letter.target)
            offset = offset_of(message)
            letter.hold(shown(error), place, offsets=OffsetSet.of((offset, offset + 1)))
        if self._refused:
            # The next copy looks up the topics again.
            self._copies.discard()
            self._targets.forget()
        self._refused.clear()

    def _await_answers(self, letters: Iterable[_Letter]) -> bool:
        """Returns False if answers are missing. The messages are held then, and the producer is closed."""
        try:
            self._copies.flush()
            return True
        except CopiesNotDurable as failed:
            for letter in letters:
                offsets = OffsetSet.from_offsets(letter.unanswered)
                letter.hold(failed.why, Place("write", letter.target), offsets=offsets)
                letter.unanswered.clear()
            self._copies.discard()
            self._targets.forget()
            return False

    def _learn(self, letters: Iterable[_Letter], *, spent_ms: int) -> None:
        """Records topics that failed, and clears topics that succeeded."""
        failed: dict[Place, tuple[str, int]] = {}
        for letter in letters:
            for held in letter.held:
                if held.place is not None and held.tried:
                    _, tries = failed.get(held.place, ("", 0))
                    failed[held.place] = (held.why, max(tries, letter.decision.tries))
            if letter.copied:
                for place in (Place("read", letter.decision.cell.topic), Place("write", letter.target)):
                    self._troubles.succeeded(place)
        for place, (why, tries) in failed.items():
            self._troubles.failed(place, why, tries_before=tries, spent_ms=spent_ms)


def _by_partition(letters: Iterable[_Letter]) -> dict[int, list[_Letter]]:
    found: dict[int, list[_Letter]] = {}
    for letter in letters:
        found.setdefault(letter.decision.cell.partition, []).append(letter)
    return found


class _ByOffset:
    """Letters of one partition by the offsets of their messages, for messages in ascending order.

    Each rejection with a reason of its own is a letter, so a batch may have as many letters as messages.
    """

    def __init__(self, letters: Iterable[_Letter]) -> None:
        self._coming = deque(
            sorted(
                ((*span, letter) for letter in letters for span in letter.decision.offsets.iter_ranges()),
                key=itemgetter(0),
            )
        )
        self._begun: list[tuple[int, _Letter]] = []  # the ranges that begin before the message: end, letter

    def at(self, offset: int) -> list[_Letter]:
        """Returns the letters that the message at an offset belongs to."""
        while self._coming and self._coming[0][0] <= offset:
            _, stop, letter = self._coming.popleft()
            self._begun.append((stop, letter))
        self._begun = [one for one in self._begun if one[0] > offset]
        return [letter for _, letter in self._begun]


def _lost(decision: DeadLetter, missing: OffsetSet) -> int:
    if not decision.delivery_count:
        return 0  # not counted: no consumer has received these offsets, and gaps in the log are not messages
    if missing:
        log.error(
            "Messages are no longer in the queue topic, so no dead letter is written for them. "
            "event=dead_letters_lost messages=%s cell=%s reason=%s offsets=%r",
            len(missing),
            decision.cell,
            decision.reason,
            missing,
        )
    return len(missing)
