"""Which partitions of a queue a consumer has, since when the tracker knows it, and how far it is."""

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

_DISCOVER_MS = 2_000  # how often it is asked which partitions there are, and whose
_PART_MS = 500  # how often the group is asked for this consumer's part
_COMMIT_MS = 1_000
_PASSED_MS = 1_000  # the lease of what is passed over, which is ended at once

Partition = tuple[str, int]


@dataclass(slots=True)
class AssignedPartition:
    """A partition that this consumer has, and how far it is."""

    cell: Cell
    position: int | None = None  #: the next offset to start; None until the tracker has answered
    passed: int = 0  #: what was looked at beyond it and is not ours


class ClientAssignment:
    """Greets the tracker for each partition that the group gives to this consumer; one thread's.

    What it hears is for its owner to carry out: partitions that were :meth:`lost`, and those whose
    positions the tracker has told (:meth:`heard`).
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
        self._part: set[int] = set()  # as of the last look
        self._discover, self._look, self._commit = Pace(_DISCOVER_MS), Pace(_PART_MS), Pace(_COMMIT_MS)
        self.steady = self._membership.steady  #: what :meth:`mine` says stays so inside of this

    def __contains__(self, number: int) -> bool:
        return number in self._followed

    def __getitem__(self, number: int) -> AssignedPartition:
        return self._followed[number]

    @property
    def cells(self) -> set[Cell]:
        """Those of the partitions at hand."""
        return {one.cell for one in self._followed.values()}

    @property
    def waiting(self) -> list[int]:
        """The partitions of which the tracker has not said where they begin."""
        return [number for number, one in self._followed.items() if one.position is None]

    @property
    def is_reading(self) -> bool:
        return len(self.waiting) < len(self._followed)

    def cell(self, number: int) -> Cell:
        return Cell(subscription=self._subscription, topic=self._topic, partition=number)

    def assigned(self) -> set[int]:
        """The partitions that the group has given to this consumer."""
        return {number for _, number in self._membership.assigned_partitions(self._partitions)}

    def lost(self) -> set[int]:
        """The partitions that were sought, or are another's by now."""
        lost: set[int] = set()
        if self._discover.is_time():
            info = self._topics.describe([self._topic])[self._topic]
            self._partitions = tuple((info.name, number) for number in range(info.partitions))
            self._topic_ids = {info.name: info.topic_id}
            self._watch.look()
            # After a Seek, or where another has said Hello: from what the tracker knows then.
            lost = {cell.partition for cell in self._run.taken_over()}
        if self._look.is_time() or not self._followed:
            self._part = self.assigned()
            lost |= self._followed.keys() - self._part
        return lost

    def greet(self) -> None:
        """Say Hello for the partitions that came to this consumer."""
        if not self._part - self._followed.keys():
            return
        new = sorted(self.assigned() - self._followed.keys())
        places = [(self._topic, number) for number in new]
        begin = self._topics.beginning_offsets(places) | self._topics.committed(self._group, places)
        cells = {number: self.cell(number) for number in new}
        self._run.greet({cells[n]: begin[self._topic, n] for n in new}, self._topic_ids)
        self._followed |= {number: AssignedPartition(cell) for number, cell in cells.items()}

    def heard(self) -> dict[int, int]:
        """Where the partitions begin that the tracker has answered for since the last call.

        Raises:
            NoTracker: it has not, for too long.
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
        """Follow these no more; the cells of those that were followed."""
        cells = {self._followed.pop(number).cell for number in numbers if number in self._followed}
        self._run.give_up(cells)
        return cells

    def tell_how_far(self) -> None:
        """Let lag tools, and the tracker, see what was passed over, too; once in a while."""
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
        """Commit how far it is, and leave the group."""
        self._membership.try_commit(self._positions())
        self._membership.close()

    def _positions(self) -> dict[Partition, int]:
        return {
            (self._topic, number): one.position
            for number, one in self._followed.items()
            if one.position is not None
        }

    def _pass_over(self, one: AssignedPartition) -> Iterator[Marker]:
        """The last of the offsets that nobody is to have, started and ended: those below it follow."""
        last = OffsetSet.of((one.passed - 1, one.passed))
        run_id = self._run.id_of(one.cell)
        yield Start(cell=one.cell, offsets=last, lease_ms=_PASSED_MS, delivery_count=1, run_id=run_id)
        yield End(cell=one.cell, offsets=last)
