"""Queue topics and partitions that a query reads, kept up to date while it runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from spark_cursor_source.core.batch import SourceOffset, TopicPartition
from spark_cursor_source.errors import QueueTopicEndsEarlier, QueueTopicRecreated, TopicNotFound
from spark_cursor_source.kafka.admin import ClusterAdmin, TopicInfo
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.options.topics import Assign, Subscribe, SubscribePattern
from spark_cursor_source.topics.positions import starting_positions
from spark_cursor_source.topics.streams import StreamStates

log = logging.getLogger(__name__)
DISCOVERY_S = 2.0  #: poll interval in seconds of an idle query for new partitions
_BEHIND_MS = 3_000  # how long in ms a log end may be below the read position before it counts as data loss


class SourceTopics:
    """Queue partitions of a query and the ids of their topics."""

    def __init__(
        self, options: SourceOptions, topics: ClusterAdmin, *, may_be_recreated: bool = True
    ) -> None:
        """Without ``may_be_recreated``, a recreated topic is always an error."""
        self._options = options
        self._may_be_recreated = may_be_recreated and not options.fail_on_data_loss
        self._topics = topics
        self._expected_ids: dict[str, str] = {}
        self._gone: dict[str, str] = {}  # deleted topics and their ids
        self._recreated: set[str] = set()
        self._discovered = 0.0
        self._told_of: dict[TopicPartition, int] = {}  # positions beyond a log end that are already logged
        self.partitions: tuple[TopicPartition, ...] = ()
        self.topic_ids: Mapping[str, str] = {}
        self._states = StreamStates(options.kafka, options.streams_topic, topics, timeout_ms=PATIENCE_MS)

    def resume(self, start: SourceOffset) -> None:
        """Resumes from positions of topics with the ids in ``start``.

        Raises:
            TopicNotFound, QueueTopicRecreated: see :meth:`refresh`.
            QueueTopicEndsEarlier: a topic ends before its position for a while, like a topic that was
                recreated.
        """
        self._expected_ids |= start.topic_ids
        self.refresh()
        self._check_ends(self.here(start).queue)

    def here(self, offset: SourceOffset) -> SourceOffset:
        """Returns the offset without positions of topics that were recreated."""
        remade = {name for name, was in offset.topic_ids.items() if self.topic_ids.get(name, was) != was}
        if not remade:
            return offset
        return replace(
            offset,
            queue={tp: at for tp, at in offset.queue.items() if tp[0] not in remade},
            origins={tp: at for tp, at in offset.origins.items() if tp[0] not in remade},
            topic_ids={name: id for name, id in offset.topic_ids.items() if name not in remade},
        )

    def is_of_another(self, topic: str, cursor_id: str | None) -> bool:
        """True if a cursor belongs to a deleted topic instead of the present topic of the same name.

        ``cursor_id`` is the topic id in the cursor, or None if the cursor has none.
        """
        if not self._may_be_recreated:
            return False
        return topic in self._recreated if cursor_id is None else cursor_id != self.topic_ids.get(topic)

    def discover(self) -> bool:
        """Refreshes partitions and paused streams once per discovery interval. True if it did."""
        now = time.monotonic()
        if now - self._discovered < DISCOVERY_S:
            return False
        self._discovered = now
        self.refresh()
        self._states.refresh()
        return True

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """Partitions paused at the last :meth:`discover`. No batch is planned from them."""
        return self._states.paused(self.partitions)

    def close(self) -> None:
        """Closes the clients."""
        self._states.close()

    def refresh(self) -> None:
        """Reads the present partitions from the broker.

        With ``failOnDataLoss=false``, a known topic that was deleted is skipped with a warning. A recreated
        topic is read with its new id.

        Raises:
            TopicNotFound: a topic that is subscribed by name, or was read before, does not exist.
            QueueTopicRecreated: a topic has another id than the topic of the known positions.
        """
        selection = self._options.topics
        match selection:
            case Subscribe(topics=names):
                wanted = list(names)
            case SubscribePattern(pattern=pattern):
                wanted = [name for name in self._topics.matching(pattern) if self._options.selects(name)]
                # A known topic that no longer exists must be reported by name instead of being forgotten.
                wanted = sorted({*wanted, *self._expected_ids})
            case Assign(partitions=assigned):
                wanted = sorted({topic for topic, _ in assigned})
        self._options.check_names(wanted)
        self._look_for_gone(wanted)
        infos = self._describe([name for name in wanted if name not in self._gone])
        for name, info in infos.items():
            expected = self._expected_ids.get(name)
            if expected is not None and expected != info.topic_id:
                self._meet_anew(name, expected, info.topic_id)
        if isinstance(selection, Assign):
            self.partitions = tuple(tp for tp in selection.partitions if tp[0] in infos)
        else:
            self.partitions = tuple(
                (name, partition) for name in sorted(infos) for partition in range(infos[name].partitions)
            )
        self.topic_ids = {name: info.topic_id for name, info in infos.items()}
        self._expected_ids |= self.topic_ids

    def _meet_anew(self, name: str, was: str, now: str) -> None:
        if not self._may_be_recreated:
            raise QueueTopicRecreated(name, was, now)
        self._recreated.add(name)
        self._told_of = {tp: at for tp, at in self._told_of.items() if tp[0] != name}
        log.warning(
            "The queue topic was recreated. Unacknowledged messages of the earlier topic are "
            "lost, and the new topic is read from its beginning. event=queue_topic_recreated "
            "topic=%s subscription=%s was=%s now=%s",
            name,
            self._options.subscription,
            was,
            now,
        )

    def _look_for_gone(self, wanted: Collection[str]) -> None:
        """Detects deleted topics that were created again."""
        gone = self._gone.keys() & set(wanted)
        if not gone or not self._may_be_recreated:
            return
        # A broker may list a deleted topic for a moment.
        for name, info in self._topics.existing(gone).items():
            if info.topic_id != self._gone[name]:
                self._expected_ids[name] = self._gone.pop(name)

    def _describe(self, wanted: Collection[str]) -> dict[str, TopicInfo]:
        try:
            return self._topics.describe(wanted)
        except TopicNotFound as missing:
            gone = set(missing.topics)
            if self._options.fail_on_data_loss or not gone <= self._expected_ids.keys():
                raise
        for name in sorted(gone):
            self._gone[name] = self._expected_ids.pop(name)
            log.warning(
                "The queue topic was deleted, and its unacknowledged messages with it. "
                "event=queue_topic_deleted topic=%s subscription=%s",
                name,
                self._options.subscription,
            )
        return self._describe([name for name in wanted if name not in gone])

    def starting_positions(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the start positions of a new subscription from ``startingOffsets`` and related options."""
        return starting_positions(self._options.starting_offsets, partitions, self._topics)

    def beginnings(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the beginning offset of each partition."""
        return self._topics.beginning_offsets(partitions) if partitions else {}

    def watch_ends(self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """Detects a log end below the read position. An unclean leader election can lose the last records.

        Raises:
            QueueTopicEndsEarlier: the end stays below the position for a while, and ``failOnDataLoss`` is
                set.
        """
        behind = {tp: positions[tp] for tp, end in ends.items() if end < positions.get(tp, 0)}
        doubtful = {tp: at for tp, at in behind.items() if self._told_of.get(tp) != at}
        if doubtful:
            ids = self.topic_ids
            self.refresh()  # raises or logs if the topic was deleted or created again
            same = {tp for tp in doubtful if self.topic_ids.get(tp[0]) == ids[tp[0]]}
            self._check_ends({tp: doubtful[tp] for tp in same})

    def _check_ends(self, positions: Mapping[TopicPartition, int]) -> None:
        present = [tp for tp in positions if tp in self.partitions]
        deadline = Deadline.after_ms(_BEHIND_MS)
        while True:
            ends = self._topics.end_offsets(present, committed=False)
            beyond = sorted(tp for tp, end in ends.items() if positions[tp] > end)
            if not beyond:
                return
            if deadline.over:  # a new leader's end may lag for a moment
                break
            deadline.pause(0.5)
        for tp in beyond:
            lost = QueueTopicEndsEarlier(*tp, positions[tp], ends[tp])
            if self._options.fail_on_data_loss:
                raise lost
            self._told_of[tp] = positions[tp]
            log.warning(
                "The queue topic ends before the position of the subscription. "
                "event=queue_ends_earlier why=%s",
                lost,
            )
