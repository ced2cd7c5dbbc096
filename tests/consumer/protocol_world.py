"""A consumer group, a tracker and topics as lists, and the two front ends of the consumer protocol.

The rules under test are the real ones, for a query's planner and for the plain client. So is the state
machine of the tracker. Time passes when the world says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any

from spark_cursor_source.consumer.assignment import PartitionAssignment
from spark_cursor_source.consumer.client_assignment import ClientAssignment
from spark_cursor_source.consumer.client_member import ClientMember
from spark_cursor_source.consumer.key_order import KeyOrder
from spark_cursor_source.consumer.known_topics import KnownTopics
from spark_cursor_source.consumer.limits import ConsumerLimits
from spark_cursor_source.consumer.lost_members import LostMembers
from spark_cursor_source.consumer.pending import ClientRedeliveries, PlannedRedeliveries
from spark_cursor_source.consumer.running_phase import RunningPhase
from spark_cursor_source.consumer.session import TrackerAddress, TrackerSession
from spark_cursor_source.consumer.starts import Starts
from spark_cursor_source.core.batch import BatchPlan, Delivery, RedeliveryRecord, SourceOffset, TopicPartition
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.key_order import NO_KEYS, KeyGate, key_hash
from spark_cursor_source.core.limits import NO_LIMITS, Limits
from spark_cursor_source.core.marker import (
    Block,
    End,
    EndLeased,
    EndPause,
    Hello,
    Leave,
    Marker,
    MemberLost,
    Pause,
    Release,
    RestoreState,
    SaveState,
    Seek,
    SetLimits,
    Start,
)
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.tracker import CellTracker, Redeliver
from spark_cursor_source.errors import MarkersNotDurable, NoTracker
from spark_cursor_source.kafka.admin import LogEnd, TopicInfo
from spark_cursor_source.options.source import SourceOptions

TOPIC, SUBSCRIPTION = "t", "s"
PARTITIONS = 3
REDELIVERY_PARTITIONS = 2  # two cells share a partition of the redeliveries topic
LEASE_MS = 60_000
CELLS = [Cell(subscription=SUBSCRIPTION, topic=TOPIC, partition=number) for number in range(PARTITIONS)]
TRACKER = TrackerAddress(markers_topic="m", cursors_topic="c", timeout_ms=600_000)

#: partition, offset and delivery count of a delivery of one message
OneDelivery = tuple[int, int, int]


@dataclass
class World:
    """What is durable, the group's decisions, and the judge of every Start."""

    messages: int  # of each partition
    policy: RedeliveryPolicy
    now_ms: int = 0
    log: list[tuple[Marker, int]] = field(default_factory=list)
    read: int = 0  # markers that the tracker has read
    cursors: dict[Cell, CursorSnapshot] = field(default_factory=dict)
    records: dict[int, list[RedeliveryRecord]] = field(
        default_factory=lambda: {number: [] for number in range(REDELIVERY_PARTITIONS)}
    )
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    assigned: set[int] = field(default_factory=lambda: set(range(PARTITIONS)))
    revoked: set[int] = field(default_factory=set)  # since the front's last look
    #: the front stands still between what it finds and what it does about it, as this decides
    standstills: Random | None = None
    paused: set[int] = field(default_factory=set)
    trouble: str | None = None  # of the client's next write: its markers are "lost" or "unconfirmed"
    runs: int = 0  # of the front end
    others: int = 0  # runs of other members so far
    living: set[str] = field(default_factory=set)  # runs of other members that are in the group
    releases: bool = False  # the front ends the leases of members that are not in the group
    released_leases: int = 0  # of such members
    restored: int = 0  # returns to a snapshot
    limits: Limits = NO_LIMITS  # that an operator has set last
    held: list[Delivery] = field(default_factory=list)  # by the application, or by tasks
    foreign: frozenset[int] = frozenset()  # offsets of another queue
    skips_foreign: bool = False  # a client skips them, a query leases and ends them
    ended: set[tuple[int, int]] = field(default_factory=set)  # acked, or dead after the last delivery
    acks_by_batch: bool = False  # the front acks each batch as a whole
    #: of the batch in progress: messages that the application has released or left
    exceptions: dict[Cell, OffsetSet] = field(default_factory=dict)
    # -- what the judge knows
    announced: dict[str, set[OneDelivery]] = field(default_factory=dict)  # by run id; a Start takes it away
    suspects: dict[str, set[OneDelivery]] = field(default_factory=dict)  # by run id
    past_runs: dict[Cell, frozenset[str]] = field(default_factory=dict)  # runs that do not know of a Seek
    first_starts: Counter[tuple[int, int]] = field(default_factory=Counter)
    suspect_waits_since_ms: int = 0
    #: outcome of a message that a query handles by itself
    outcome: Callable[[], str] = lambda: "ack"
    started_again: int = 0
    started_alone: int = 0

    # ---- what the front ends see: the brokers

    def send(self, markers: Sequence[Marker]) -> int:
        self.log += [(marker, self.now_ms) for marker in markers]
        return self.now_ms

    def now_s(self) -> float:
        return self.now_ms / 1000

    def ends(self) -> dict[int, int]:
        return {number: len(records) for number, records in self.records.items()}

    # ---- what happens

    def rebalance(self, chance: Random) -> None:
        """The group takes partitions away or gives them back. Another member may use one meanwhile."""
        number = chance.randrange(PARTITIONS)
        if number in self.assigned:
            self.revoke(number)
            if chance.random() < 0.7:
                self.use_elsewhere(number, chance)
        else:
            self.assigned.add(number)

    def revoke(self, number: int) -> None:
        self.assigned.discard(number)
        self.revoked.add(number)

    def stand_still(self) -> None:
        """The front does nothing for a while: a partition may go to another member and come back."""
        chance = self.standstills
        if chance is None or chance.random() < 0.8:
            return
        if any(isinstance(marker, Pause) for marker, _ in self.log[self.read :]):
            return  # the front obeys a pause from its next look on
        number = chance.randrange(PARTITIONS)
        if number in self.assigned:
            self.revoke(number)
            self.use_elsewhere(number, chance)
            self.assigned.add(number)

    def take_over(self, chance: Random) -> None:
        """Another run greets a partition of this member, such as a run that stood still."""
        self.use_elsewhere(chance.randrange(PARTITIONS), chance)

    def use_elsewhere(self, number: int, chance: Random) -> None:
        self.others += 1
        run_id, cell = f"other-{self.others}", CELLS[number]
        if chance.random() < 0.5:
            self.living.add(run_id)
        self.send([Hello(cell=cell, run_id=run_id, position=0)])
        self.track(chance, everything=True)
        position = self.cursors[cell].read_position
        if chance.random() < 0.5 and position < self.messages:
            offsets = OffsetSet.of((position, position + 1))
            self.first_starts[number, position] += 1
            start = Start(cell=cell, offsets=offsets, lease_ms=LEASE_MS, delivery_count=1, run_id=run_id)
            self.send([start])

    def leave_group(self, chance: Random) -> None:
        """The other members leave the group, whatever they have leased."""
        self.living.clear()

    def end_leases(self, markers: Sequence[MemberLost]) -> int:
        """The front ends the leases of members that it does not see in the group."""
        for marker in markers:
            assert marker.lost_run_id not in self.living, "a member that lives is taken for a lost one"
            cursor = self.cursors[marker.cell]
            assert cursor.owner == marker.run_id, "the tracker does not know yet who owns the cell"
            self.released_leases += sum(lease.run_id == marker.lost_run_id for lease, _ in cursor.leases)
        return self.send(markers)

    def lost_members(self, session: TrackerSession) -> LostMembers | None:
        """What a front end does about members that have left the group."""
        if not self.releases:
            return None

        def living() -> frozenset[str]:
            return frozenset({session.run_id, *self.living})

        return LostMembers(Cursors(self), session, living, self.end_leases, look_ms=0)

    def seek(self, chance: Random) -> None:
        """An operator moves a read position. What runs start that do not know of it is nothing."""
        number, position = chance.randrange(PARTITIONS), chance.randint(0, self.messages)
        cell = CELLS[number]
        self._note_past_runs(cell)
        self.send([Seek(cell=cell, position=position)])
        for offset in range(self.messages):
            self.first_starts.pop((number, offset), None)
            if offset < position or (self.skips_foreign and offset in self.foreign):
                self.ended.add((number, offset))
            else:
                self.ended.discard((number, offset))

    def save(self, chance: Random) -> None:
        """An operator takes a snapshot of a partition."""
        self.send([SaveState(cell=chance.choice(CELLS), name="a")])

    def restore(self, chance: Random) -> None:
        """An operator returns to the snapshot, or to the state before the last return."""
        self.track(chance, everything=True)
        saved = [(cell, one) for cell, cursor in self.cursors.items() for one in cursor.saved]
        if not saved:
            return
        cell, state = chance.choice(saved)
        self._note_past_runs(cell)
        self.send([RestoreState(cell=cell, name=state.name)])
        self.restored += 1
        for offset in range(self.messages):
            place = cell.partition, offset
            if offset >= state.read_position:
                self.first_starts.pop(place, None)
            is_skipped = self.skips_foreign and offset in self.foreign
            if is_skipped or (offset < state.read_position and offset not in state.offsets):
                self.ended.add(place)
            else:
                self.ended.discard(place)

    def _note_past_runs(self, cell: Cell) -> None:
        runs = [marker.run_id for marker, _ in self.log if isinstance(marker, Hello) and marker.cell == cell]
        self.past_runs[cell] = frozenset(runs)

    def disturb(self, chance: Random) -> None:
        """The next write of a client gets no answer. A query would fail and be restarted."""
        self.trouble = chance.choice(["lost", "unconfirmed"])

    def pause(self, chance: Random) -> None:
        self.paused ^= {chance.randrange(PARTITIONS)}

    def pause_subscription(self, chance: Random) -> None:
        """An operator pauses a partition, or ends the pause."""
        cell = chance.choice(CELLS)
        cursor = self.cursors.get(cell)
        is_paused = cursor is not None and cursor.paused_ms is not None
        self.send([EndPause(cell=cell) if is_paused else Pause(cell=cell)])

    def limit(self, chance: Random) -> None:
        """An operator sets the limits of the subscription."""
        limits = Limits(rate=chance.choice([None, 0.5, 2.0]), max_outstanding=chance.choice([None, 1, 3]))
        self.set_limits(limits)

    def set_limits(self, limits: Limits) -> None:
        self.limits = limits
        self.send([SetLimits(cell=cell, limits=limits) for cell in CELLS])

    def let_time_pass(self, chance: Random) -> None:
        """Some seconds, or so long that every lease is over. The tracker does not stand still for so long."""
        self.track(chance, everything=True)
        self.now_ms += chance.choice([500, 3_000, LEASE_MS + 2_000])
        if chance.random() < 0.3:
            self.held.clear()

    def settle(self, chance: Random) -> None:
        """The application acks, releases, undoes or forgets what it holds."""
        held, self.held = self.held, []
        if self.acks_by_batch:
            self.settle_exceptions(held, chance)
            return
        for delivery in held:
            match chance.choice(["ack", "ack", "release", "undo", "forget", "hold"]):
                case "ack":
                    self.ack(delivery)
                case "release":
                    self.send([released(delivery)])
                case "undo" if delivery.delivery_count == 1:  # a later delivery counts, received or not
                    self.send([replace(released(delivery), delay_ms=None, due_ms=self.now_ms)])
                case "hold":
                    self.held.append(delivery)

    def settle_exceptions(self, held: Sequence[Delivery], chance: Random) -> None:
        """The application releases or leaves some messages of the batch, and has then handled all of it."""
        for delivery in held:
            words = {offset: chance.choice(["ack", "ack", "release", "leave"]) for offset in delivery.offsets}
            released_, left = (
                OffsetSet.from_offsets([offset for offset, said in words.items() if said == word])
                for word in ("release", "leave")
            )
            cell, count = delivery.cell, delivery.delivery_count
            if released_:
                self.send([replace(released(delivery), offsets=released_)])
            if left:
                self.send([Leave(cell=cell, offsets=left, delivery_count=count)])
            self.exceptions[cell] = self.exceptions.get(cell, EMPTY) | released_ | left

    def ack_batch(self, starts: Sequence[Start]) -> None:
        """The source acks a batch, whose exceptions the application has settled."""
        for start in starts:
            self.send(
                [
                    EndLeased(
                        cell=start.cell,
                        offsets=start.offsets,
                        run_id=start.run_id,
                        delivery_count=start.delivery_count,
                    )
                ]
            )
            acked = start.offsets - self.exceptions.get(start.cell, EMPTY)
            self.ended |= {(start.cell.partition, offset) for offset in acked}
        self.exceptions = {}

    def ack(self, delivery: Delivery) -> None:
        self.send([End(cell=delivery.cell, offsets=delivery.offsets)])
        self.ended |= {(delivery.cell.partition, offset) for offset in delivery.offsets}

    def repeat(self, chance: Random) -> None:
        """The tracker announces once more what it has just announced, as after a crash of its own."""
        records = self.records[chance.randrange(REDELIVERY_PARTITIONS)]
        if records and records[-1].redeliver.delivery_count:
            records.append(replace(records[-1], offset=len(records)))

    def track(self, chance: Random, *, everything: bool = False) -> None:
        """A batch of the tracker: some markers or all there are; in the latter case, time passes too."""
        stop = len(self.log) if everything or chance.random() < 0.6 else min(self.read + 1, len(self.log))
        for cell in CELLS:
            tracker = CellTracker.resume(self.cursors.get(cell), cell=cell, policy=self.policy)
            for marker_offset in range(self.read, stop):
                marker, at_ms = self.log[marker_offset]
                if marker.cell == cell:
                    tracker.apply(marker, at_ms=at_ms, marker_offset=marker_offset)
            for decision in tracker.advance(self.now_ms if stop == len(self.log) else None):
                if isinstance(decision, Redeliver):
                    self.announce(decision)
                else:
                    self.ended |= {(cell.partition, offset) for offset in decision.offsets}
            if (cursor := tracker.snapshot()) is not None:
                self.cursors[cell] = cursor
        self.read = stop

    def announce(self, redeliver: Redeliver) -> None:
        number = redeliver.cell.partition % REDELIVERY_PARTITIONS
        records = self.records[number]
        records.append(RedeliveryRecord(partition=number, offset=len(records), redeliver=redeliver))
        cell, count = redeliver.cell, redeliver.delivery_count + 1
        some = {(cell.partition, offset, count) for offset in redeliver.offsets}
        is_waiting = any(self.announced[run_id] & suspects for run_id, suspects in self.suspects.items())
        self.announced.setdefault(redeliver.run_id, set()).update(some)
        suspects = self.suspects.setdefault(redeliver.run_id, set())
        if redeliver.alone:
            self.suspect_waits_since_ms = self.suspect_waits_since_ms if is_waiting else self.now_ms
            suspects |= some
        else:
            suspects -= some

    # ---- the judge

    def judge(self, starts: Sequence[Start]) -> None:
        """Checks Start markers that one front end writes at once."""
        for start in starts:
            number, count = start.cell.partition, start.delivery_count
            assert number in self.assigned, "started without owning the cell"
            assert number not in self.paused, "started although paused"
            assert self.cursors[start.cell].paused_ms is None, "started although an operator has paused it"
            permits = self.announced.get(start.run_id, set())
            some = {(number, offset, count) for offset in start.offsets}
            again = (
                some & permits
            )  # messages that were released as never delivered share a Start with new ones
            permits -= again
            self.started_again += len(again)
            suspects = self.suspects.get(start.run_id, set())
            assert start.alone == bool(some & suspects), "a suspect is started as such, and nothing else"
            assert not start.alone or some <= suspects & again, "a suspect goes with others"
            new = some - again
            assert not new or count == 1, f"nobody announced {new} to {start.run_id}"
            if start.run_id in self.past_runs.get(start.cell, ()):
                new = set()
            self.first_starts.update((number, offset) for _, offset, _ in new)
            assert all(self.first_starts[number, offset] == 1 for _, offset, _ in new), "new twice"
            self.held.append(Delivery(cell=start.cell, offsets=start.offsets, delivery_count=count))
        if any(start.alone for start in starts):
            self.started_alone += 1
            assert all(start.alone for start in starts), "a suspect is not alone"
            assert len({start.cell for start in starts}) == 1, "suspects of several cells at once"

    @property
    def done(self) -> bool:
        return len(self.ended) == PARTITIONS * self.messages

    @property
    def is_read(self) -> bool:
        """True if the tracker knows that everything is read and nothing is outstanding."""
        cursors = self.cursors.values()
        return all(one.read_position == self.messages and not one.outstanding for one in cursors)


def released(delivery: Delivery) -> Release:
    return Release(
        cell=delivery.cell, offsets=delivery.offsets, delivery_count=delivery.delivery_count, delay_ms=0
    )


# ---- parts of the brokers, as lists


class Cursors:
    """The cursors topic."""

    def __init__(self, world: World) -> None:
        self._world = world

    def refresh(self) -> bool:
        return True

    def get(self, cell: Cell) -> CursorSnapshot | None:
        return self._world.cursors.get(cell)


class Log:
    """The redeliveries topic."""

    def __init__(self, world: World) -> None:
        self._world = world

    def between(self, starts: Mapping[int, int], stops: Mapping[int, int]) -> list[RedeliveryRecord]:
        return [
            record
            for number, stop in sorted(stops.items())
            for record in self._world.records[number][starts.get(number, 0) : stop]
        ]

    def scan(
        self, starts: Mapping[int, int], stops: Mapping[int, int], wanted: Callable[[Redeliver], bool]
    ) -> list[RedeliveryRecord]:
        return [record for record in self.between(starts, stops) if wanted(record.redeliver)]

    def discard(self, before: Mapping[int, int]) -> None: ...

    def __len__(self) -> int:
        return 0

    def close(self) -> None: ...


class RedeliveriesTopic:
    """Partitions of the redeliveries topic."""

    topic, topic_id = "r", "r-1"

    def __init__(self, world: World) -> None:
        self.ends = world.ends
        self.all = [(self.topic, number) for number in range(REDELIVERY_PARTITIONS)]

    def count(self) -> None: ...


class Group:
    """The membership of a query or a client, as the world assigns it, and the committed positions."""

    def __init__(self, world: World) -> None:
        self._world = world

    def assigned_partitions(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        return frozenset(tp for tp in partitions if tp[1] in self._world.assigned)

    wait_for_assignment = assigned_partitions

    def take_revoked(self) -> frozenset[TopicPartition]:
        revoked = frozenset((TOPIC, number) for number in self._world.revoked)
        self._world.revoked.clear()
        return revoked

    @contextmanager
    def steady(self) -> Iterator[None]:
        yield

    def confirm(self, *, in_doubt: bool = False) -> bool:
        return False

    def try_commit(self, positions: Mapping[TopicPartition, int]) -> bool:
        self._world.committed |= positions
        return True

    def keep(self, positions: Mapping[TopicPartition, int]) -> bool:
        return self.try_commit(positions)

    def known(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: at for tp, at in self._world.committed.items() if tp in partitions}

    def follow(self, positions: Mapping[TopicPartition, int], *, force: bool, wait: bool) -> None:
        self.try_commit(positions)

    def close(self) -> None: ...


class Queue:
    """The queue topic: for a query and, as the admin client, for a plain client."""

    partitions = tuple((TOPIC, number) for number in range(PARTITIONS))
    topic_ids: Mapping[str, str] = {TOPIC: "t-1"}

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset((TOPIC, number) for number in self._world.paused)

    def beginnings(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    beginning_offsets = beginnings

    def discover(self) -> bool:
        return True

    def refresh(self) -> None: ...

    def unless_deleted(self, read: Callable[[], Any]) -> Any:
        return read()

    def watch_ends(self, positions: object, ends: object, epochs: object) -> None: ...

    def log_ends(
        self, places: Collection[TopicPartition], *, committed: bool
    ) -> dict[TopicPartition, LogEnd]:
        ends = self._world.ends()
        found = {tp: self._world.messages if tp[0] == TOPIC else ends[tp[1]] for tp in places}
        return {tp: LogEnd(end, None) for tp, end in found.items()}

    def is_of_another(self, topic: str, cursor_id: str | None) -> bool:
        return False

    def describe(self, topics: Collection[str]) -> dict[str, TopicInfo]:
        return {TOPIC: TopicInfo(name=TOPIC, topic_id="t-1", partitions=PARTITIONS)}

    existing = describe

    def committed(self, group: str, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return Group(self._world).known(places)


class Watch:
    """Nobody watches the tracker here."""

    def look(self) -> None: ...


class AlwaysNews:
    """The ends are looked at in every step."""

    def begin(self, ends: object) -> None: ...

    def wait(self, wait_s: float) -> bool:
        return True

    def stop(self) -> None: ...


# ---- the two front ends


class SparkFront:
    """A query's run: what ``Planner`` does at each trigger, after its start and without replays."""

    options: Mapping[str, str] = {"subscriptionType": "shared"}

    def __init__(self, world: World) -> None:
        self._world = world
        self._start = SourceOffset(queue=dict.fromkeys(Queue.partitions, 0), redeliveries=world.ends())
        self.restart()

    def restart(self) -> None:
        """Begins a run at the end of the last batch."""
        world = self._world
        world.runs += 1
        cursors, queue, group = Cursors(world), Queue(world), Group(world)
        options = SourceOptions.parse(
            {
                "kafka.bootstrap.servers": "127.0.0.1:1",
                "subscribe": TOPIC,
                "subscription": SUBSCRIPTION,
                **self.options,
            }
        )
        session = TrackerSession(f"query-{world.runs}", TRACKER, cursors, world.send, now_s=world.now_s)
        of_the_broker: Any = (queue, group, group)
        table: Any = cursors
        places: Any = RedeliveriesTopic(world)
        assignment = PartitionAssignment(options, *of_the_broker, session, table)
        self._parts: Any = SimpleNamespace(
            options=options,
            topics=queue,
            queue=queue,
            cursors=cursors,
            group=group,
            session=session,
            tracker=Watch(),
            assignment=assignment,
            pending=PlannedRedeliveries(Log(world), places, assignment, session),
            here=lambda offset: offset,
            appends=AlwaysNews(),
            key_order=None,
            lost_members=world.lost_members(session),
        )
        self._batch: list[Start] = []
        world.exceptions = {}
        self._phase = RunningPhase(self._parts, now_s=world.now_s, sleep=lambda wait_s: None)
        self._starts = Starts(world.send, session.id_of, lease_ms=LEASE_MS)
        self._parts.pending.begin(world.ends())

    def step(self, budget: int) -> None:
        """One trigger, and the batch that it plans."""
        if self._world.held and (self._world.acks_by_batch or budget % 2):
            return  # the batch in progress goes on
        if self._world.acks_by_batch:
            self._world.ack_batch(self._batch)
            self._batch = []
        try:
            end = self._phase.next_end(self._start, max_offsets=budget)
        except NoTracker:
            self.restart()  # two Seeks overtook two Hellos: the query ends with this error and is restarted
            return
        if end == self._start:
            return
        self._world.stand_still()
        batch = self._phase.content(self._start, end)
        self._batch = self._starts.write(batch.deliveries, alone=batch.alone)
        self._world.judge(self._batch)
        self._parts.pending.started(batch.deliveries)
        self._phase.planned(batch)
        self._start = end


class BatchFront(SparkFront):
    """A query that acks each batch as a whole, and whose sink settles the exceptions."""

    def __init__(self, world: World) -> None:
        world.acks_by_batch = True
        super().__init__(world)


class MarkersTopic:
    """The markers topic, of one partition."""

    def __init__(self, world: World) -> None:
        self._world, self._next = world, 0

    def begin_at(self, number: int, position: int) -> None:
        self._next = min(position, self._next)

    def read(self, numbers: object) -> Iterator[tuple[Marker, int]]:
        start, self._next = self._next, len(self._world.log)
        for at in range(start, self._next):
            yield self._world.log[at][0], at

    def close(self) -> None: ...


class OrderedFront(SparkFront):
    """A query with ordering=key, and what its tasks do: they handle the messages of a batch one by one.

    Messages with even offsets have one key, those with odd ones another.
    """

    options: Mapping[str, str] = {"subscriptionType": "key_shared", "ordering": "key"}

    def __init__(self, world: World) -> None:
        self.passed: set[tuple[int, int]] = set()  # handled with success at least once
        self.blocked = 0
        super().__init__(world)

    def restart(self) -> None:
        super().restart()
        markers, cursors = MarkersTopic(self._world), Cursors(self._world)
        of_the_broker: Any = markers, self._parts.session, cursors
        self._parts.key_order = self._order = KeyOrder(
            *of_the_broker,
            lambda cell, offsets: {offset: key_hash(key_of(offset)) for offset in offsets},
            partitions=1,
            answer_ms=0,
        )

    def step(self, budget: int) -> None:
        self._batch = []
        super().step(budget)
        if not self._batch:
            return
        deliveries = tuple(
            Delivery(cell=start.cell, offsets=start.offsets, delivery_count=start.delivery_count)
            for start in self._batch
        )
        batch, lost = self._order.answered(BatchPlan(deliveries=deliveries))
        deliveries = batch.deliveries
        keys = self._order.blocked(batch, self._parts.pending.taken)
        self._world.send([released(one) for one in lost])
        self._world.held.clear()
        for cell in {delivery.cell for delivery in deliveries}:
            counts = {
                offset: delivery.delivery_count
                for delivery in deliveries
                if delivery.cell == cell
                for offset in delivery.offsets
            }
            self._handle(cell, counts, KeyGate(keys.get((cell.topic, cell.partition), NO_KEYS)))

    def _handle(self, cell: Cell, counts: Mapping[int, int], gate: KeyGate) -> None:
        held: dict[bytes, int] = {}
        for offset, count in sorted(counts.items()):
            key, only = key_of(offset), OffsetSet.of((offset, offset + 1))
            behind = gate.blocker(offset, key_hash(key))
            behind = held.get(key) if behind is None else behind
            if behind is not None:
                self.blocked += 1
                block = Block(cell=cell, offsets=only, behind=(behind,), delivery_count=count)
                self._world.send([block])
                if count > 1:  # what the tracker announces twice may come again: the delivery was cancelled
                    run_id = self._parts.session.id_of(cell)
                    self._world.announced.setdefault(run_id, set()).add((cell.partition, offset, count))
            elif not self._call(Delivery(cell=cell, offsets=only, delivery_count=count), offset):
                held[key] = offset

    def _call(self, delivery: Delivery, offset: int) -> bool:
        """The handler. It acks the message, releases it, or leaves it to its lease."""
        number, world = delivery.cell.partition, self._world
        gone = self.passed | world.ended
        for earlier in range(offset % 2, offset, 2):
            assert (number, earlier) in gone, f"{offset} of partition {number} passes {earlier}"
        match world.outcome():
            case "ack":
                world.ack(delivery)
                self.passed.add((number, offset))
                return True
            case "release":
                world.send([released(delivery)])
        return False


def key_of(offset: int) -> bytes:
    return b"even" if offset % 2 == 0 else b"odd"


class ClientFront:
    """A plain client: what its feed does in each round, without the messages themselves."""

    def __init__(self, world: World) -> None:
        self._world = world
        world.skips_foreign = True
        world.ended |= {(number, offset) for number in range(PARTITIONS) for offset in world.foreign}
        self.restart()

    def restart(self) -> None:
        """Begins the life of a new client."""
        world = self._world
        world.runs += 1
        queue: Any = Queue(world)
        group: Any = Group(world)
        watch: Any = Watch()
        places: Any = RedeliveriesTopic(world)
        self._run = TrackerSession(
            f"client-{world.runs}", TRACKER, Cursors(world), self._send, now_s=world.now_s
        )
        assignment = ClientAssignment(
            queue,
            group,
            self._run,
            self._send,
            group="g",
            topic=TOPIC,
            known=KnownTopics(queue, subscription=SUBSCRIPTION),
            subscription=SUBSCRIPTION,
            watch=watch,
            lost_members=world.lost_members(self._run),
            discover_ms=0,
            look_ms=0,
            commit_ms=0,
        )
        self._written: list[Start] = []
        self._member = ClientMember(
            assignment,
            ClientRedeliveries(Log(world), places, assignment, self._run),
            Cursors(world),
            Starts(self._send, self._run.id_of, lease_ms=LEASE_MS),
            lease_ms=LEASE_MS,
            on_start=self._written.append,
            limits=ConsumerLimits(SUBSCRIPTION, Cursors(world), longest_s=1.0, now_s=world.now_s),
        )
        self._assignment = assignment
        self._positions: dict[int, int] = {}
        self._new_came = False

    def _send(self, markers: Sequence[Marker]) -> int:
        trouble, self._world.trouble = self._world.trouble, None
        if trouble == "lost":
            raise MarkersNotDurable("m", len(markers), "no answer")
        at_ms = self._world.send(markers)
        if trouble == "unconfirmed":
            raise MarkersNotDurable("m", len(markers), "no answer")
        return at_ms

    def step(self, budget: int) -> None:
        """One round of the feed. ``budget`` is the room in its buffer."""
        with suppress(NoTracker, MarkersNotDurable):  # the feed retries
            self._round(budget)

    def _round(self, budget: int) -> None:
        world, member = self._world, self._member
        member.read_announcements()
        self._drop(member.drop_lost())
        self._positions |= member.greet()
        self._assignment.report_positions()
        paused = world.paused | self._assignment.paused
        quota = member.next(
            world.now_ms,
            room=budget,
            paused=paused,
            is_holding=bool(world.held),
            new_came=self._new_came,
        )
        if quota is None:
            return
        if quota.suspects:
            waited_ms = world.now_ms - world.suspect_waits_since_ms
            was_holding = bool(world.held)
            if member.start_again(quota.suspects, paused, alone=True) and self._judge():
                assert not was_holding or waited_ms >= LEASE_MS, "a suspect goes beside others"
            return
        came_again = member.start_again(quota.again, paused, alone=False)
        self._judge()
        if quota.most_new and (quota.new or not came_again):
            self._fetch(quota.most_new)

    def _fetch(self, room: int) -> None:
        foreign = OffsetSet.from_offsets(sorted(self._world.foreign))
        paused = self._world.paused | self._assignment.paused
        at = {number: place for number, place in self._positions.items() if number not in paused}
        fetched: dict[int, OffsetSet] = {}
        for number, place in at.items():
            if size := min(room, self._world.messages - place):
                fetched[number] = OffsetSet.of((place, place + size))
                room -= size
        self._new_came = bool(fetched)
        if not fetched:
            return
        wanted = {number: self._wanted(number, some) - foreign for number, some in fetched.items()}
        ours = {number: some for number, some in wanted.items() if some}
        self._world.stand_still()
        self._drop(self._member.start_new(ours)[1])
        for number, offsets in fetched.items():
            self._assignment.examined(number, (offsets.last or 0) + 1)
            if number in self._positions:
                self._positions[number] = (offsets.last or 0) + 1
        self._judge()

    def _wanted(self, number: int, offsets: OffsetSet) -> OffsetSet:
        """What the feed starts of fetched messages; others came again after an unconfirmed Start."""
        known = self._world.cursors.get(CELLS[number])
        if known is None:
            return offsets
        unconfirmed = self._member.unconfirmed(CELLS[number]) & known.leased
        return offsets.starting_at(known.read_position) | (offsets & unconfirmed)

    def _judge(self) -> bool:
        self._member.unread.clear()
        written = list(self._written)
        self._written.clear()
        self._world.judge(written)
        return bool(written)

    def _drop(self, lost: Any) -> None:
        for cell in lost.cells:
            self._positions.pop(cell.partition, None)
        for delivery, _ in lost.unread:
            self._world.send([released(delivery)])


FRONTS = [SparkFront, BatchFront, ClientFront]
