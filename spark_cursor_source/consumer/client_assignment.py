"""Queue partitions held by a plain client, and the offsets that it skips."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from spark_cursor_source.consumer.assignment import Assignment
from spark_cursor_source.consumer.known_topics import KnownTopics
from spark_cursor_source.consumer.lost_members import LostMembers
from spark_cursor_source.consumer.membership import Membership
from spark_cursor_source.consumer.session import TrackerSession
from spark_cursor_source.consumer.tracker_watch import TrackerWatch
from spark_cursor_source.core.batch import TopicPartition
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, Marker, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import QueueTopicRecreated, TopicNotFound
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import Pace

_DISCOVER_MS = 2_000  # poll interval for partitions and their ownership
_LOOK_MS = 500  # poll interval for the group assignment
_COMMIT_MS = 1_000
_SKIPPED_MS = 1_000  # lease of skipped offsets, which are ended at once


class ClientAssignment(Assignment):
    """Partitions of a plain client. It reads one topic, shares it, and has no checkpoint.

    The caller acts on the results: revoked partitions (:meth:`lost`) and start positions from the tracker
    (:meth:`resume_answered`). It names partitions by number.
    """

    def __init__(
        self,
        topics: ClusterAdmin,
        membership: Membership,
        run: TrackerSession,
        write: Callable[[Sequence[Marker]], object],
        *,
        group: str,
        topic: str,
        known: KnownTopics,
        subscription: str,
        watch: TrackerWatch,
        lost_members: LostMembers | None = None,
        discover_ms: int = _DISCOVER_MS,
        look_ms: int = _LOOK_MS,
        commit_ms: int = _COMMIT_MS,
    ) -> None:
        super().__init__(subscription, membership, run)
        self._topics, self._write, self._watch = topics, write, watch
        self._lost_members = lost_members  # None: leases of lost members run out
        self._group, self._topic, self._known = group, topic, known
        self._partitions: tuple[TopicPartition, ...] = ()
        self._examined: dict[TopicPartition, int] = {}  # position after the offsets of the last fetch
        self._assigned: frozenset[TopicPartition] = frozenset()  # partitions assigned at the last poll
        self._discover, self._look, self._commit = Pace(discover_ms), Pace(look_ms), Pace(commit_ms)
        self.steady = membership.steady  #: keeps :meth:`still_held` constant inside the block

    @property
    def is_reading(self) -> bool:
        """True if at least one partition may be read."""
        return bool(self._next)

    @property
    def paused(self) -> frozenset[int]:
        """Partitions that an operator has paused. The state is at most two seconds old."""
        return frozenset(cell.partition for cell in self._paused_cells)

    def cell_of(self, number: int) -> Cell:
        """Returns the cell of a partition of the topic."""
        return self.cell(self._topic, number)

    def still_held(self) -> frozenset[TopicPartition]:
        """Returns the held partitions that the group has not taken away."""
        return self._kept(self._membership.assigned_partitions(self._partitions))

    def lost(self) -> frozenset[TopicPartition]:
        """Returns the held partitions that were sought, or that the group has taken away.

        Raises:
            TopicNotFound, QueueTopicRecreated: the topic was deleted, and perhaps created again.
        """
        lost: frozenset[TopicPartition] = frozenset()
        if self._discover.is_time():
            self._look_for_partitions()
            self._watch.look()
            # After a Seek, or a Hello of another run, the partition restarts from the tracker's state.
            lost = frozenset(cell.topic_partition for cell in self._run.taken_over())
            self._look_for_commands(self._partitions)
        if self._look.is_time() or not self._held:
            self._assigned = self._membership.assigned_partitions(self._partitions)
            lost |= self._held - self._kept(self._assigned)
        if self._lost_members is not None:
            self._lost_members.look(self.cell(*tp) for tp in self._held - lost)
        return lost

    def _look_for_partitions(self) -> None:
        try:
            info = self._known.refresh([self._topic])[self._topic]
        except (TopicNotFound, QueueTopicRecreated):
            # Positions in the deleted topic must not be committed for the new one.
            self._give_up(self._held)
            raise
        self._partitions = tuple((info.name, number) for number in range(info.partitions))

    def greet(self) -> None:
        """Sends Hello for newly assigned partitions."""
        if not self._assigned - self._held:
            return
        new = sorted(self._membership.assigned_partitions(self._partitions) - self._held)
        begin = self._topics.beginning_offsets(new) | self._topics.committed(self._group, new)
        self._run.greet({self.cell(*tp): begin[tp] for tp in new}, self._known.ids)
        self._held |= frozenset(new)

    def resume_answered(self) -> dict[int, int]:
        """Returns the start positions of partitions that the tracker has answered since the last call.

        Raises:
            NoTracker: the tracker has not answered within its timeout.
        """
        return {tp[1]: at for tp, at in self._resume_answered().items()} if self.waiting else {}

    def give_up(self, gone: Collection[TopicPartition]) -> frozenset[Cell]:
        """Stops reading these partitions. Returns the cells of those that were held."""
        left = self._held & frozenset(gone)
        self._give_up(left)
        for tp in left:
            self._examined.pop(tp, None)
        return frozenset(self.cell(*tp) for tp in left)

    def examined(self, number: int, position: int) -> None:
        """Records that all offsets below a position are fetched. Those that are not started are skipped."""
        if (self._topic, number) in self._next:
            self._examined[self._topic, number] = position

    def report_positions(self) -> None:
        """Reports positions, with skipped offsets, to the tracker and to Kafka lag tools at intervals."""
        if not self._commit.is_time():
            return
        with self.steady():
            mine = self.still_held()
            examined = {
                tp: position
                for tp, position in self._examined.items()
                if tp in mine and position > self._next[tp]
            }
            # Below the tracker's read position, an End could ack a message that a Start without confirmation
            # has leased.
            skipped = {
                tp: past for tp, past in examined.items() if past > self._run.read_position(self.cell(*tp))
            }
            if skipped:
                self._write([marker for tp, past in skipped.items() for marker in self._skip(tp, past)])
        self.advance(examined)
        self._membership.try_commit(self._next)

    def close(self) -> None:
        """Commits the positions and leaves the group."""
        self._membership.try_commit(self._next)
        self._membership.close()

    def _skip(self, tp: TopicPartition, past: int) -> Iterator[Marker]:
        """Yields Start and End markers for the last skipped offset; lower ones end with it."""
        last, cell = OffsetSet.of((past - 1, past)), self.cell(*tp)
        run_id = self._run.id_of(cell)
        yield Start(cell=cell, offsets=last, lease_ms=_SKIPPED_MS, delivery_count=1, run_id=run_id)
        yield End(cell=cell, offsets=last)
