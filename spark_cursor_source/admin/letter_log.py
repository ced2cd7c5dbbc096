"""Reader of a dead-letter topic that knows which dead letters were redriven or deleted."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.kafka.admin import ClusterAdmin, Partition, TopicInfo
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.consumers import borrowed_consumer
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.range_consumer import read_range
from spark_cursor_source.topics.dead_letters import DeadLetterRecord, read_letter
from spark_cursor_source.topics.redriven import RedrivenOffsets
from spark_cursor_source.wire.redriven import SettledLetters

log = logging.getLogger(__name__)

AT_ONCE = 500  #: largest number of dead letters in one list
WAITING, REDRIVEN, DELETED = "waiting", "redriven", "deleted"  #: states of a dead letter

_FIRST_ANSWER_MS = 10_000


class LetterLog:
    """Dead letters of one topic with their states. Not thread-safe.

    A dead letter that a tracker wrote twice because of a crash has the state of its first copy.
    """

    def __init__(self, kafka: Mapping[str, str], topic: str, cursors_topic: str) -> None:
        self._topic, self._cursors_topic = topic, cursors_topic
        self.topics = ClusterAdmin(client_config(kafka, "admin"), timeout_ms=PATIENCE_MS).meet()
        self._reader = client_config(kafka, "consumer") | {"isolation.level": "read_committed"}
        self._store: RedrivenOffsets | None = None
        self._bounds: dict[Partition, tuple[int, int]] = {}
        self.settled: dict[int, SettledLetters] = {}  #: redriven and deleted dead letters, by partition
        self.seen: set[int] = set()  #: ids of these dead letters, and of others that must count once

    def describe(self) -> TopicInfo:
        """Return the id and the partitions of the topic.

        Raises:
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        # A short timeout for the first request: an operator at a terminal should not wait for minutes if the
        # broker is unavailable from the start.
        first = self.topics.within(Deadline.after_ms(_FIRST_ANSWER_MS))
        return first.describe([self._topic])[self._topic]

    def load(self, info: TopicInfo) -> None:
        """Read the present ends, and which dead letters are settled."""
        self._bounds = self.topics.bounds([(self._topic, number) for number in range(info.partitions)])
        self.settled = {number: SettledLetters() for number in range(info.partitions)}
        if self.topics.existing([self._cursors_topic]):
            self._store = RedrivenOffsets(self._reader, self._cursors_topic, info)
            self.settled = self._store.read()
        for number, settled in self.settled.items():
            self._remember(number, settled.offsets.starting_at(self.begin(number)))

    @property
    def store(self) -> RedrivenOffsets:
        """The store of settled dead letters; the cursors topic exists."""
        assert self._store is not None
        return self._store

    def begin(self, number: int) -> int:
        """Return the first offset of a partition."""
        return self._bounds[self._topic, number][0]

    def end(self, number: int) -> int:
        """Return the end of a partition at :meth:`load`."""
        return self._bounds[self._topic, number][1]

    def walk(self, *, at_once: int = AT_ONCE) -> Iterator[tuple[int, list[DeadLetterRecord]]]:
        """Yield the dead letters of each partition up to its end, with their states.

        The caller adds the ids of dead letters to :attr:`seen` whose copies must not count.

        Raises:
            NoDeadLetter: a record of the topic is not a dead letter.
        """
        for number in sorted(self.settled):
            for letters in self.read(number, self.begin(number), self.end(number), at_once=at_once):
                yield number, [self._with_state(one) for one in letters]

    def at(self, number: int, offset: int) -> DeadLetterRecord | None:
        """Return the dead letter at an offset with its state; None: there is none."""
        if number not in self.settled or not self.begin(number) <= offset < self.end(number):
            return None
        found = [one for some in self.read(number, offset, offset + 1) for one in some]
        return self._with_state(found[0]) if found else None

    def read(
        self, number: int, start: int, end: int, *, at_once: int = AT_ONCE
    ) -> Iterator[list[DeadLetterRecord]]:
        """Yield the dead letters of a range of a partition, without their states."""
        with borrowed_consumer(self._reader) as consumer:
            for messages in read_range(consumer, self._topic, number, start, end, on_removed=_forgotten):
                for first in range(0, len(messages), at_once):
                    yield [read_letter(one) for one in messages[first : first + at_once]]

    def close(self) -> None:
        """Close the clients."""
        if self._store is not None:
            self._store.close()

    def _with_state(self, letter: DeadLetterRecord) -> DeadLetterRecord:
        settled = self.settled[letter.partition]
        if letter.offset in settled.deleted:
            return replace(letter, state=DELETED)
        if letter.offset in settled.offsets or letter.id in self.seen:
            return replace(letter, state=REDRIVEN)
        return letter

    def _remember(self, number: int, offsets: OffsetSet) -> None:
        """Record the ids of settled dead letters. Copies of them may precede or follow."""
        if offsets.first is None or offsets.last is None:
            return
        for letters in self.read(number, offsets.first, offsets.last + 1):
            self.seen.update(one.id for one in letters if one.offset in offsets)


def _forgotten(first: int, after: int) -> None:
    log.warning(
        "Retention removed dead letters before they were read. event=dead_letters_expired first=%s last=%s",
        first,
        after,
    )
