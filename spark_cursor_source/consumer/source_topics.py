"""Which partitions of which queue topics a query reads, kept up to date while it runs."""

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
DISCOVERY_S = 2.0  #: how often an idle query looks for new partitions
_BEHIND_MS = 3_000  # so long an end may be below what was read before


class SourceTopics:
    """The queue partitions of a query and the ids of their topics."""

    def __init__(
        self, options: SourceOptions, topics: ClusterAdmin, *, may_be_recreated: bool = True
    ) -> None:
        """Without ``may_be_recreated``, a topic that was created again is an error in any case."""
        self._options = options
        self._may_be_recreated = may_be_recreated and not options.fail_on_data_loss
        self._topics = topics
        self._expected_ids: dict[str, str] = {}
        self._gone: dict[str, str] = {}  # topics that were deleted, and the ids that they had
        self._recreated: set[str] = set()
        self._discovered = 0.0
        self._told_of: dict[TopicPartition, int] = {}  # positions beyond an end, of which the log knows
        self.partitions: tuple[TopicPartition, ...] = ()
        self.topic_ids: Mapping[str, str] = {}
        self._states = StreamStates(options.kafka, options.streams_topic, topics, timeout_ms=PATIENCE_MS)

    def resume(self, start: SourceOffset) -> None:
        """Go on from these positions, which are those of topics with these ids.

        Raises:
            TopicNotFound, QueueTopicRecreated: as :meth:`refresh`.
            QueueTopicEndsEarlier: a topic has ended before its position for a while, as one made anew does.
        """
        self._expected_ids |= start.topic_ids
        self.refresh()
        self._check_ends(self.here(start).queue)

    def here(self, offset: SourceOffset) -> SourceOffset:
        """The offset without the positions of topics that were created again since."""
        remade = {name for name, was in offset.topic_ids.items() if self.topic_ids.get(name, was) != was}
        if not remade:
            return offset
        return replace(
            offset,
            queue={tp: at for tp, at in offset.queue.items() if tp[0] not in remade},
            origins={tp: at for tp, at in offset.origins.items() if tp[0] not in remade},
            topic_ids={name: one for name, one in offset.topic_ids.items() if name not in remade},
        )

    def is_of_another(self, topic: str, cursor_id: str | None) -> bool:
        """Whether a cursor is one of a topic that was deleted, and not of the one that is read now.

        ``cursor_id`` is the id of the topic that the cursor tells; None where it tells none.
        """
        if not self._may_be_recreated:
            return False
        return topic in self._recreated if cursor_id is None else cursor_id != self.topic_ids.get(topic)

    def discover(self) -> bool:
        """:meth:`refresh`, and a look at what is paused, once in a while; whether it was time."""
        now = time.monotonic()
        if now - self._discovered < DISCOVERY_S:
            return False
        self._discovered = now
        self.refresh()
        self._states.refresh()
        return True

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that nothing is to be planned of, as of the last :meth:`discover`."""
        return self._states.paused(self.partitions)

    def close(self) -> None:
        """End the clients."""
        self._states.close()

    def refresh(self) -> None:
        """Ask the broker which partitions there are now.

        With ``failOnDataLoss=false`` a topic that was read before and is gone is left out, with a warning.
        One that was created again is taken up, with another id.

        Raises:
            TopicNotFound: a topic that is read by name, or was read before, does not exist.
            QueueTopicRecreated: a topic is another one than that of the positions at hand.
        """
        selection = self._options.topics
        match selection:
            case Subscribe(topics=names):
                wanted = list(names)
            case SubscribePattern(pattern=pattern):
                wanted = [name for name in self._topics.matching(pattern) if self._options.selects(name)]
                # A topic that was read before and is gone is missed by name, not forgotten.
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
            "queue_topic_recreated topic=%s subscription=%s was=%s now=%s: what was not acked of the earlier"
            " topic is lost, and the new one is read from its beginning",
            name,
            self._options.subscription,
            was,
            now,
        )

    def _look_for_gone(self, wanted: Collection[str]) -> None:
        """Expect those of the topics that were gone and have been created again."""
        gone = self._gone.keys() & set(wanted)
        if not gone or not self._may_be_recreated:
            return
        # For a moment a broker may still show the one that it has deleted.
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
                "queue_topic_gone topic=%s subscription=%s: it was deleted, and with it what was not acked",
                name,
                self._options.subscription,
            )
        return self._describe([name for name in wanted if name not in gone])

    def starting_positions(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where a new subscription begins, by the option startingOffsets and its like."""
        return starting_positions(self._options.starting_offsets, partitions, self._topics)

    def beginnings(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the log of each begins."""
        return self._topics.beginning_offsets(partitions) if partitions else {}

    def watch_ends(self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        """Notice that a log ends before where reading goes on: an election may have lost its last records.

        Raises:
            QueueTopicEndsEarlier: it does so for a while, and data loss is to fail the query.
        """
        behind = {tp: positions[tp] for tp, end in ends.items() if end < positions.get(tp, 0)}
        doubtful = {tp: at for tp, at in behind.items() if self._told_of.get(tp) != at}
        if doubtful:
            ids = self.topic_ids
            self.refresh()  # which says so where the topic was deleted or created again
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
            if deadline.over:  # a new leader may be behind for a moment
                break
            deadline.pause(0.5)
        for tp in beyond:
            lost = QueueTopicEndsEarlier(*tp, positions[tp], ends[tp])
            if self._options.fail_on_data_loss:
                raise lost
            self._told_of[tp] = positions[tp]
            log.warning("queue_ends_earlier: %s", lost)
