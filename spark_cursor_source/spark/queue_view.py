"""Which partitions of which queue topics a query reads, kept up to date while it runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping

from spark_cursor_source.core.planning import SourceOffset, TopicPartition
from spark_cursor_source.core.source_options import SourceOptions
from spark_cursor_source.core.topic_selection import Assign, Subscribe, SubscribePattern
from spark_cursor_source.errors import QueueTopicEndsEarlier, QueueTopicRecreated, TopicNotFound
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.positions import starting_positions
from spark_cursor_source.kafka.stream_states import StreamStates
from spark_cursor_source.kafka.topics import TopicInfo, Topics

log = logging.getLogger(__name__)
DISCOVERY_S = 2.0  #: how often an idle query looks for new partitions
_BEHIND_MS = 3_000  # so long an end may be below what was read before


class QueueView:
    """The queue partitions of a query and the ids of their topics."""

    def __init__(self, options: SourceOptions, topics: Topics) -> None:
        self._options = options
        self._topics = topics
        self._expected_ids: dict[str, str] = {}
        self._gone: set[str] = set()
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
        self._check_ends(start.queue)

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
        infos = self._describe([name for name in wanted if name not in self._gone])
        for name, info in infos.items():
            expected = self._expected_ids.get(name)
            if expected is not None and expected != info.topic_id:
                raise QueueTopicRecreated(name, expected, info.topic_id)
        if isinstance(selection, Assign):
            self.partitions = tuple(tp for tp in selection.partitions if tp[0] in infos)
        else:
            self.partitions = tuple(
                (name, partition) for name in sorted(infos) for partition in range(infos[name].partitions)
            )
        self.topic_ids = {name: info.topic_id for name, info in infos.items()}
        self._expected_ids |= self.topic_ids

    def _describe(self, wanted: Collection[str]) -> dict[str, TopicInfo]:
        try:
            return self._topics.describe(wanted)
        except TopicNotFound as missing:
            gone = set(missing.topics)
            if self._options.fail_on_data_loss or not gone <= self._expected_ids.keys():
                raise
        for name in sorted(gone):
            # For good: one that is made under this name later is another topic, with other messages.
            self._gone.add(name)
            del self._expected_ids[name]
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
            self.refresh()  # which says so where the topic was deleted or created again
            self._check_ends(doubtful)

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
