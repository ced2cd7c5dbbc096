"""One plain client in a subscription: its partitions, its redeliveries and its Start markers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from spark_cursor_source.consumer.client_assignment import ClientAssignment
from spark_cursor_source.consumer.limits import ConsumerLimits
from spark_cursor_source.consumer.pending import ClientRedeliveries
from spark_cursor_source.consumer.starts import Starts
from spark_cursor_source.core.admission import Turns
from spark_cursor_source.core.batch import Delivery, TopicPartition
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.core.suspect_turns import SuspectTurns, Turn
from spark_cursor_source.errors import NoTracker
from spark_cursor_source.kafka.deadline import Pace
from spark_cursor_source.topics.cursors import CursorTable

_COUNT_MS = 2_000  # poll interval for new partitions of the redeliveries topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Partitions that this client no longer reads."""

    cells: frozenset[Cell]
    #: their deliveries that no application has received, each with the broker time in ms of its Start marker,
    #: or None if unknown
    unread: tuple[tuple[Delivery, int | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Unread:
    """A redelivery that is started and not read yet."""

    piece: Slice
    began_ms: int | None  #: broker time in ms of its Start marker, or None if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Numbers of messages that may be delivered next."""

    suspects: int = 0
    again: int = 0  #: other redeliveries
    new: int = 0  #: new messages, as far as it is known that there are some
    most_new: int = 0  #: new messages that may be fetched and delivered


class ClientMember:
    """Decides which messages a plain client delivers next, and writes their Start markers.

    The member follows the protocol of a query's planner. It writes a Hello for each assigned partition, and
    reads the partition after the tracker's answer. It delivers only the redeliveries announced to its own
    run. A client has no batches: it starts one redelivery, or the new messages of one fetch, at a time. Not
    thread-safe.
    """

    def __init__(
        self,
        assignment: ClientAssignment,
        pending: ClientRedeliveries,
        cursors: CursorTable,
        starts: Starts,
        *,
        lease_ms: int,
        on_start: Callable[[Start], None],
        limits: ConsumerLimits,
    ) -> None:
        self._pending, self._cursors = pending, cursors
        self._count = Pace(_COUNT_MS)
        self._starts, self._on_start, self._limits = starts, on_start, limits
        self.assignment = assignment
        #: by partition; no other redelivery of the partition is started before it is read
        self.unread: dict[int, Unread] = {}
        self._turns = Turns()
        self._suspects = SuspectTurns(lease_ms=lease_ms)

    # -- partitions ------------------------------------------------------------------------------------

    def drop_lost(self) -> Lost:
        """Gives up the partitions that were sought or belong to another member now."""
        return self.drop(self.assignment.lost())

    def drop(self, partitions: Collection[TopicPartition]) -> Lost:
        """Gives up these partitions."""
        cells = self.assignment.give_up(partitions)
        unread: list[tuple[Delivery, int | None]] = []
        for cell in cells:
            if (left := self.unread.pop(cell.partition, None)) is not None:
                piece = left.piece
                delivery = Delivery(cell=cell, offsets=piece.offsets, delivery_count=piece.delivery_count)
                unread.append((delivery, left.began_ms))
        unread += [(delivery, None) for delivery in self._starts.forget(cells)]
        return Lost(cells=cells, unread=tuple(unread))

    def greet(self) -> dict[int, int]:
        """Sends Hello for new partitions. Returns the start positions of partitions answered since.

        Raises:
            NoTracker: the tracker has not answered within its timeout.
        """
        if not self._pending.has_begun:
            # Announcements to this run come after its first Hello.
            self._pending.begin(self._pending.ends())
        self.assignment.greet()
        try:
            return self.assignment.resume_answered()
        except NoTracker:
            # The next round writes a new Hello: a rebuilt tracker may have lost the first one.
            self.drop(self.assignment.waiting)
            raise

    # -- deliveries ------------------------------------------------------------------------------------

    def read_announcements(self) -> None:
        """Reads the announcements written since the last call.

        Raises:
            RedeliveriesTopicRecreated: the topic was deleted and created again.
        """
        if self._count.is_time():
            self._pending.count_partitions()
            self._pending.forget_ended(self.assignment.cells, self._cursors)
        if self._pending.has_begun:
            self._pending.read(self._pending.ends())

    def next(
        self, now_ms: int, *, room: int, paused: Collection[int], is_holding: bool, new_came: bool
    ) -> Quota | None:
        """Returns what may be delivered next, by the turns of a query's planner; None: nothing yet.

        ``is_holding`` is true if messages are leased and not settled, ``new_came`` if the last fetch returned
        new messages.
        """
        self._limits.follow(self.assignment.limits)
        budget = self._limits.budget(room)
        if not budget:
            return None
        paused = self.unread.keys() | paused
        suspects = self._pending.waiting(paused, alone=True)
        others = self._pending.waiting(paused, alone=False)
        turn = self._suspects.next(
            now_ms, suspect=bool(suspects), held=is_holding, others=new_came or bool(others)
        )
        if turn is Turn.WAIT:
            return None
        if turn is Turn.SUSPECT:
            return Quota(suspects=budget)
        left = self._limits.room(self.assignment.next)
        most_new = budget if left is None else min(budget, left)
        again, new = self._turns.share(budget, again=others, new=most_new if new_came else min(most_new, 1))
        if not again + most_new:
            return None
        self._turns.planned(alone=False)
        return Quota(again=again, new=new, most_new=min(most_new, budget - again))

    def start_again(self, most: int, paused: Collection[int], *, alone: bool) -> bool:
        """Starts up to ``most`` messages of a waiting redelivery. False if none are waiting.

        With ``alone``, starts suspects. Otherwise starts other redeliveries. :attr:`unread` then has the
        messages to read.
        """
        record = self._pending.take(most, self.unread.keys() | paused, alone=alone)
        if record is None:
            return False
        redeliver = record.redeliver
        delivery = Delivery(
            cell=redeliver.cell, offsets=redeliver.offsets, delivery_count=redeliver.delivery_count + 1
        )
        try:
            with self.assignment.steady():
                if delivery.cell.topic_partition not in self.assignment.still_held():
                    return True  # the tracker announces this redelivery to the next owner
                self._start([delivery], alone=alone)
        except BaseException:
            self._pending.put_back(record)
            raise
        piece = Slice(
            topic=delivery.cell.topic,
            partition=delivery.cell.partition,
            offsets=delivery.offsets,
            delivery_count=delivery.delivery_count,
        )
        self.unread[piece.partition] = Unread(piece, self._starts.began_ms)
        return True

    def start_new(self, fetched: Mapping[int, OffsetSet]) -> tuple[list[int], Lost]:
        """Starts new messages, by partition. Returns the started partitions, and those that are lost."""
        with self.assignment.steady():
            held = self.assignment.still_held()
            deliveries = [
                Delivery(cell=cell, offsets=offsets, delivery_count=1)
                for number, offsets in fetched.items()
                if (cell := self.assignment.cell_of(number)).topic_partition in held
            ]
            self._start(deliveries)
        ends = {delivery.cell.topic_partition: (delivery.offsets.last or 0) + 1 for delivery in deliveries}
        self.assignment.advance(ends)
        fetched_from = {self.assignment.cell_of(number).topic_partition for number in fetched}
        return [number for _, number in ends], self.drop(fetched_from - ends.keys())

    def unconfirmed(self, cell: Cell) -> OffsetSet:
        """Returns the offsets of a cell whose Start markers may have been written without confirmation."""
        return self._starts.unconfirmed(cell)

    def close(self) -> None:
        """Commits the positions, leaves the group and closes the consumer of the redeliveries topic."""
        self.assignment.close()
        self._pending.close()

    def _start(self, deliveries: Sequence[Delivery], *, alone: bool = False) -> None:
        starts = self._starts.write(deliveries, alone=alone)
        counts = [(len(one.offsets), one.delivery_count) for one in deliveries]
        new = sum(number for number, count in counts if count == 1)
        self._limits.took(new=new, again=sum(number for number, _ in counts) - new)
        self._pending.started(deliveries)
        for start in starts:
            self._on_start(start)
