"""Queue topics and partitions that a query reads, kept up to date while it runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from spark_cursor_source.consumer.known_topics import KnownTopics
from spark_cursor_source.core.batch import SourceOffset, TopicPartition
from spark_cursor_source.errors import InvalidOption, QueueTopicEndsEarlier, TopicGone, TopicNotFound
from spark_cursor_source.kafka.admin import ClusterAdmin, epochs_of
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.truncation import LogPlace, truncated_ends
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.options.topics import Assign, FromPositions, Subscribe, SubscribePattern
from spark_cursor_source.topics.data_loss import report_truncation
from spark_cursor_source.topics.positions import check_named, starting_positions
from spark_cursor_source.topics.streams import StreamStates

log = logging.getLogger(__name__)
DISCOVERY_S = 2.0  #: poll interval in seconds of an idle query for new partitions
_BEHIND_MS = 3_000  # how long in ms a log end may be below the read position before it counts as data loss
_AnswerT = TypeVar("_AnswerT")


class SourceTopics:
    """Queue partitions of a query and the ids of their topics."""

    def __init__(self, options: SourceOptions, topics: ClusterAdmin, *, begins_anew: bool = True) -> None:
        """Without ``begins_anew``, a recreated topic is always an error."""
        self._options = options
        self._topics = topics
        tolerant = not options.fail_on_data_loss
        self._known = KnownTopics(
            topics,
            subscription=options.subscription,
            skips_deleted=tolerant,
            begins_anew=tolerant and begins_anew,
        )
        self._discovered = 0.0
        self._told_of: dict[TopicPartition, int] = {}  # positions beyond a log end that are already logged
        self._reached: dict[TopicPartition, LogPlace] = {}  # log ends, each with its leader epoch
        self.partitions: tuple[TopicPartition, ...] = ()
        self._states = StreamStates(options.kafka, options.streams_topic, topics, timeout_ms=PATIENCE_MS)

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Ids of the present topics."""
        return self._known.ids

    def resume(self, start: SourceOffset) -> None:
        """Resumes from positions of topics with the ids in ``start``.

        Raises:
            TopicNotFound, QueueTopicRecreated: see :meth:`refresh`.
            QueueTopicEndsEarlier: a topic ends before its position for a while, like a topic that was
                recreated.
        """
        self._known.expect(start.topic_ids)
        self.refresh()
        here = self.here(start)
        self._check_ends(here.queue)
        reached = {
            tp: LogPlace(here.queue[tp], epoch)
            for tp, epoch in here.epochs.items()
            if tp in here.queue and tp in self.partitions
        }
        self._reached |= reached
        found = self._topics.log_ends(reached, committed=False)
        self._check_epochs(here.queue, {tp: end.offset for tp, end in found.items()}, epochs_of(found))

    def here(self, offset: SourceOffset) -> SourceOffset:
        """Returns the offset without positions of topics that were recreated."""
        remade = self._known.remade(offset.topic_ids)
        if not remade:
            return offset
        return replace(
            offset,
            queue={tp: at for tp, at in offset.queue.items() if tp[0] not in remade},
            origins={tp: at for tp, at in offset.origins.items() if tp[0] not in remade},
            topic_ids={name: id for name, id in offset.topic_ids.items() if name not in remade},
            epochs={tp: epoch for tp, epoch in offset.epochs.items() if tp[0] not in remade},
        )

    def is_of_another(self, topic: str, cursor_id: str | None) -> bool:
        """True if a cursor belongs to a deleted topic. See :meth:`KnownTopics.is_of_another`."""
        return self._known.is_of_another(topic, cursor_id)

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
        """Reads the present partitions from the broker, by the rule of :class:`KnownTopics`.

        Raises:
            TopicNotFound: a topic that is subscribed by name, or was read before, does not exist.
            QueueTopicRecreated: a topic has another id than the topic of the known positions.
        """
        selection = self._options.topics
        match selection:
            case Subscribe(topics=names):
                wanted = list(names)
            case SubscribePattern(pattern=pattern):
                # A known topic that no longer exists must be reported by name instead of being forgotten. One
                # that the pattern no longer selects is not read.
                found = {*self._topics.matching(pattern), *self._known.names}
                wanted = sorted(name for name in found if self._options.selects(name))
            case Assign(partitions=assigned):
                wanted = sorted({topic for topic, _ in assigned})
        self._options.check_names(wanted)
        before = self._known.ids
        infos = self._known.refresh(wanted)
        present = self._known.ids
        self._told_of = {
            tp: at for tp, at in self._told_of.items() if before.get(tp[0]) == present.get(tp[0])
        }
        if isinstance(selection, Assign):
            self.partitions = tuple(tp for tp in selection.partitions if tp[0] in infos)
        else:
            self.partitions = tuple(
                (name, partition) for name in sorted(infos) for partition in range(infos[name].partitions)
            )

    def unless_deleted(self, read: Callable[[], _AnswerT]) -> _AnswerT | None:
        """Returns what ``read`` returns, or None if a topic was deleted or recreated meanwhile.

        Raises:
            TopicNotFound, TopicGone, QueueTopicRecreated: that is not allowed, see :class:`KnownTopics`.
        """
        known = self.topic_ids
        try:
            return read()
        except (TopicNotFound, TopicGone):
            self.refresh()  # raises the right error if the missing topic matters
            if self.topic_ids == known:
                raise
            return None

    def starting_positions(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the start positions of a new subscription from ``startingOffsets`` and related options.

        As in Spark's Kafka source, a given offset beyond the end of its partition is an error, or with
        ``failOnDataLoss=false`` the partition is read from its end.

        Raises:
            InvalidOption: a given offset is beyond the end, and new messages below it would never be
                delivered. Or a position is given to a partition that is not read.
        """
        wanted = self._options.starting_offsets
        check_named(wanted, self.partitions)
        found = starting_positions(wanted, partitions, self._topics)
        # Any other start is a position that the brokers have told.
        ends = self._ends_before(found) if isinstance(wanted, FromPositions) else {}
        for tp, end in ends.items():
            if self._options.fail_on_data_loss:
                raise InvalidOption(
                    "startingOffsets",
                    found[tp],
                    f"topic '{tp[0]}' partition {tp[1]} ends at offset {end}",
                    f"give an offset up to {end}, or set failOnDataLoss=false to start at the end",
                )
            log.warning(
                "A start offset is beyond the end of its partition, which is read from its end. "
                "event=start_beyond_end topic=%s partition=%d given=%d end=%d",
                *tp,
                found[tp],
                end,
            )
        return found | ends

    def beginnings(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the beginning offset of each partition."""
        return self._topics.beginning_offsets(partitions) if partitions else {}

    def watch_ends(
        self,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        epochs: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Detects records below the read position that an unclean leader election has lost.

        The log end is below the position then. Or new records have the offsets of the lost ones, which the
        leader ``epochs`` of the ends show.

        Raises:
            QueueTopicEndsEarlier: records are lost, and ``failOnDataLoss`` is set. An end below the position
                must stay there for a while.
        """
        behind = {tp: positions[tp] for tp, end in ends.items() if end < positions.get(tp, 0)}
        doubtful = {tp: at for tp, at in behind.items() if self._told_of.get(tp) != at}
        if doubtful:
            ids = self.topic_ids
            self.refresh()  # raises or logs if the topic was deleted or created again
            same = {tp for tp in doubtful if self.topic_ids.get(tp[0]) == ids[tp[0]]}
            self._check_ends({tp: doubtful[tp] for tp in same})
        self._check_epochs(positions, ends, epochs or {})

    def _check_epochs(
        self,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        epochs: Mapping[TopicPartition, int],
    ) -> None:
        """Checks partitions with a new leader: the log still has what it had under the earlier leader."""
        places = {
            tp: LogPlace(min(reached.offset, positions.get(tp, reached.offset)), reached.epoch)
            for tp, epoch in epochs.items()
            if (reached := self._reached.get(tp)) is not None and reached.epoch < epoch
        }
        found: Mapping[TopicPartition, int | None] = {}
        if places:
            config = client_config(self._options.kafka, "consumer")
            found = truncated_ends(config, places, Deadline.after_ms(PATIENCE_MS))
        for tp, end in sorted(found.items()):
            if end is not None and end < places[tp].offset:
                self._tell_of_lost(tp, places[tp].offset, end)
        for tp, epoch in epochs.items():
            if tp not in places or tp in found:
                self._reached[tp] = LogPlace(ends[tp], epoch)

    def _check_ends(self, positions: Mapping[TopicPartition, int]) -> None:
        for tp, end in self._ends_before(positions).items():
            self._tell_of_lost(tp, positions[tp], end)

    def _ends_before(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Returns the log ends that are before these positions, and stay there for a while."""
        present = [tp for tp in positions if tp in self.partitions]
        deadline = Deadline.after_ms(_BEHIND_MS)
        while True:
            ends = self._topics.end_offsets(present, committed=False)
            beyond = sorted(tp for tp, end in ends.items() if positions[tp] > end)
            if not beyond or deadline.over:  # a new leader's end may lag for a moment
                return {tp: ends[tp] for tp in beyond}
            deadline.pause(0.5)

    def _tell_of_lost(self, tp: TopicPartition, position: int, end: int) -> None:
        if self._told_of.get(tp) != position:
            lost = QueueTopicEndsEarlier(*tp, position, end)
            report_truncation(lost, fail=self._options.fail_on_data_loss)
            self._told_of[tp] = position
