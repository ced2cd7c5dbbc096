"""Queue partitions assigned to a plain consumer, their session with the tracker and their positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from spark_cursor_source.consumer.membership import GroupConfig, Membership
from spark_cursor_source.consumer.session import TrackerSession
from spark_cursor_source.consumer.tracker_watch import TrackerWatch
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, Marker, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import Pace

_DISCOVER_MS = 2_000  # poll interval for partitions and their ownership
_PART_MS = 500  # poll interval for the group assignment
_COMMIT_MS = 1_000
_PASSED_MS = 1_000  # lease of skipped offsets, which are ended at once

Partition = tuple[str, int]


@dataclass(slots=True)
class AssignedPartition:
    """A partition assigned to this consumer, and its position."""

    cell: Cell
    position: int | None = None  #: next offset to lease; None until the tracker has answered
    passed: int = 0  #: position after the examined offsets that this consumer skips


class ClientAssignment:
    """Sends Hello to the tracker for each partition assigned to this consumer. Not thread-safe.

    The caller acts on the results: revoked partitions (:meth:`lost`) and start positions from the tracker
    (:meth:`heard`).
    """

    def __init__(
        self,
        config: Mapping[str, str],
        topics: ClusterAdmin,
        part: GroupConfig,
        run: TrackerSession,
        write: Callable[[Sequence[Marker]], object],
        *,
        subscription: str,
        watch: TrackerWatch,
    ) -> None:
        self._topics, self._run, self._write = topics, run, write
        self._group, self._topic, self._subscription = part.group, part.queue, subscription
        self._watch = watch
        self._membership = Membership(config, topics, part)
        self._partitions: tuple[Partition, ...] = ()
        self._topic_ids: Mapping[str, str] = {}
        self._followed: dict[int, AssignedPartition] = {}
        self._part: set[int] = set()  # partitions assigned at the last poll
        self._discover, self._look, self._commit = Pace(_DISCOVER_MS), Pace(_PART_MS), Pace(_COMMIT_MS)
        self.steady = self._membership.steady  #: keeps :meth:`assigned` constant inside the block

    def __contains__(self, number: int) -> bool:
        return number in self._followed

    def __getitem__(self, number: int) -> AssignedPartition:
        return self._followed[number]

    @property
    def cells(self) -> set[Cell]:
        """Cells of the followed partitions."""
        return {one.cell for one in self._followed.values()}

    @property
    def waiting(self) -> list[int]:
        """Partitions without an answer from the tracker."""
        return [number for number, one in self._followed.items() if one.position is None]

    @property
    def is_reading(self) -> bool:
        return len(self.waiting) < len(self._followed)

    def cell(self, number: int) -> Cell:
        return Cell(subscription=self._subscription, topic=self._topic, partition=number)

    def assigned(self) -> set[int]:
        """Returns the partitions that the group assigns to this consumer."""
        return {number for _, number in self._membership.assigned_partitions(self._partitions)}

    def lost(self) -> set[int]:
        """Returns the followed partitions that were sought or belong to another member now."""
        lost: set[int] = set()
        if self._discover.is_time():
            info = self._topics.describe([self._topic])[self._topic]
            self._partitions = tuple((info.name, number) for number in range(info.partitions))
            self._topic_ids = {info.name: info.topic_id}
            self._watch.look()
            # After a Seek, or a Hello of another run, the partition restarts from the tracker's state.
            lost = {cell.partition for cell in self._run.taken_over()}
        if self._look.is_time() or not self._followed:
            self._part = self.assigned()
            lost |= self._followed.keys() - self._part
        return lost

    def greet(self) -> None:
        """Sends Hello for newly assigned partitions."""
        if not self._part - self._followed.keys():
            return
        new = sorted(self.assigned() - self._followed.keys())
        places = [(self._topic, number) for number in new]
        begin = self._topics.beginning_offsets(places) | self._topics.committed(self._group, places)
        cells = {number: self.cell(number) for number in new}
        self._run.greet({cells[n]: begin[self._topic, n] for n in new}, self._topic_ids)
        self._followed |= {number: AssignedPartition(cell) for number, cell in cells.items()}

    def heard(self) -> dict[int, int]:
        """Returns the start positions of partitions that the tracker has answered since the last call.

        Raises:
            NoTracker: the tracker has not answered within its timeout.
        """
        waiting = self.waiting
        if not waiting:
            return {}
        self._run.listen()
        answers, begin = self._run.answers, dict[int, int]()
        for number in waiting:
            one = self._followed[number]
            if one.cell in answers:
                one.position = one.passed = begin[number] = answers[one.cell].read_position
        return begin

    def leave(self, numbers: Iterable[int]) -> set[Cell]:
        """Stops following these partitions. Returns the cells of those that were followed."""
        cells = {self._followed.pop(number).cell for number in numbers if number in self._followed}
        self._run.give_up(cells)
        return cells

    def tell_how_far(self) -> None:
        """Reports positions, with skipped offsets, to the tracker and to Kafka lag tools at intervals."""
        if not self._commit.is_time():
            return
        with self.steady():
            mine = self.assigned()
            passed = [
                one
                for number, one in self._followed.items()
                if number in mine and one.position is not None and one.passed > one.position
            ]
            if passed:
                self._write([marker for one in passed for marker in self._pass_over(one)])
        for one in passed:
            one.position = one.passed
        self._membership.try_commit(self._positions())

    def close(self) -> None:
        """Commits the positions and leaves the group."""
        self._membership.try_commit(self._positions())
        self._membership.close()

    def _positions(self) -> dict[Partition, int]:
        return {
            (self._topic, number): one.position
            for number, one in self._followed.items()
            if one.position is not None
        }

    def _pass_over(self, one: AssignedPartition) -> Iterator[Marker]:
        """Yields Start and End markers for the last skipped offset; lower ones end with it."""
        last = OffsetSet.of((one.passed - 1, one.passed))
        run_id = self._run.id_of(one.cell)
        yield Start(cell=one.cell, offsets=last, lease_ms=_PASSED_MS, delivery_count=1, run_id=run_id)
        yield End(cell=one.cell, offsets=last)
