"""Work of a tracker without Spark on the markers partitions that its group has assigned to it."""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from spark_cursor_source.core.rescue import check_every_ms
from spark_cursor_source.errors import (
    MarkersGone,
    QueueTopicEndsEarlier,
    TopicNotFound,
    TrackerOwnedByAnother,
)
from spark_cursor_source.interop import lease_table_wire
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline, Pace
from spark_cursor_source.kafka.tail_consumer import Fetched, TailConsumer
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.topics.tracker_progress import (
    REPLICA,
    TrackerProgress,
    is_replica,
    other_kind,
    read_progress,
)
from spark_cursor_source.tracker.backlog import MarkerBacklog
from spark_cursor_source.tracker.claim import claim_partitions, fence_replicas
from spark_cursor_source.tracker.counts import TrackerCounts
from spark_cursor_source.tracker.decisions import DecisionLog, carry_out
from spark_cursor_source.tracker.environment import TrackerEnvironment
from spark_cursor_source.tracker.fold import MarkerFold
from spark_cursor_source.tracker.marker_clocks import monotonic_ms
from spark_cursor_source.tracker.memory import CellsInMemory, TableInMemory
from spark_cursor_source.tracker.outbox import Outbox, Share
from spark_cursor_source.tracker.partition_state import PartitionState
from spark_cursor_source.tracker.rows import DecidedRow, FoldedRow, rewrite_row, tick_row

log = logging.getLogger(__name__)

_OBSERVE_MS = 1_000  # interval of the observation of queues and breakers
_REFRESH_MS = 5_000  # interval of the check for a recreated cursors topic
_SETTLE_MS = 1_000  # limit of the wait for the last markers before a deadline is judged
_AGAIN_MS = 100  # pause after an open transaction has hidden markers
_AT_ONCE = 5_000
_CONNECT_S = 1.0
_WAIT_S = 0.02


@dataclass(slots=True)
class _Partition:
    """State of one markers partition."""

    fold: MarkerFold
    state: PartitionState
    cells: CellsInMemory
    table: TableInMemory
    position: int
    committed: int  #: position of the last batch
    first_new: int  #: end of the partition when it was assigned
    moved: bool = False  #: markers were read that the next batch contains
    oldest_ms: int | None = None  #: append time of the first of these markers
    rows: list[FoldedRow] = field(default_factory=list)

    @classmethod
    def of(cls, number: int, position: int, end: int, options: TrackerOptions) -> _Partition:
        cells, table = CellsInMemory(), TableInMemory()
        return cls(
            fold=MarkerFold(number, options.markers_topic, options.reappend),
            state=PartitionState(options.policy_for, cells, table),
            cells=cells,
            table=table,
            position=position,
            committed=position,
            first_new=end,
        )

    @property
    def has_news(self) -> bool:
        """True if markers or the end of a transaction were read since the last batch."""
        return self.position > self.committed

    def next_event_ms(self) -> int | None:
        """Returns the time of the earliest event."""
        times = (self.cells.next_event_ms(), self.table.next_event_ms())
        return min((at_ms for at_ms in times if at_ms is not None), default=None)


class Replica:
    """Tracks the cells of its markers partitions, from their cursors on.

    A change of the assignment ends it, and another replica continues from the cursors. Each batch is one
    transaction, which the brokers reject if the assignment has changed.
    """

    def __init__(
        self,
        options: TrackerOptions,
        at: TrackerEnvironment,
        partitions: frozenset[int],
        member: Callable[[], Any],
        *,
        take_over: bool,
        fence: Iterable[int],
        log_of: DecisionLog,
        counts: TrackerCounts,
    ) -> None:
        """Takes the partitions over from their earlier owners.

        ``fence`` are the partitions that another tracker may have owned until now.

        Raises:
            TrackerOwnedByAnother: a Spark query owns the partitions, and ``take_over`` is False.
            TrackerFenced: another tracker takes them over too; try again.
            MarkersGone, MarkersTopicRecreated, MarkersPartitionsChanged: see these errors.
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        self.partitions = partitions
        self._options, self._at, self._log, self._counts = options, at, log_of, counts
        self._id = f"{REPLICA}{uuid.uuid4().hex}"
        self._batch_id = 0
        self._outbox = Outbox.of(options, query_id=self._id, share=Share(partitions, member))
        consumer = client_config(options.kafka, "consumer")
        self._tail = TailConsumer(
            consumer,
            options.markers_topic,
            isolation="read_committed",
            on_removed=self._on_removed,
        )
        self._backlog = MarkerBacklog(consumer | {"isolation.level": "read_committed"}, options.markers_topic)
        try:
            claimed = self._claim(member, take_over)
            own = client_config(options.kafka, "producer")
            fence_replicas(own, options.markers_topic, set(fence) - claimed, member=member)
            self._of = self._resume(self._outbox.open(take_over=False))
        except BaseException:
            self.close()
            raise
        self._pace = Deadline.after_ms(0)
        self._settle_after = Deadline.after_ms(0)
        self._observe, self._refresh = Pace(_OBSERVE_MS), Pace(_refresh_ms(options))
        self._cursors_id = at.cursors.topic_id
        self._rewrite = False
        self._observes = self._has_to_observe()
        at.rescue(partitions)

    def gather(self, most_s: float) -> bool:
        """Reads new markers. Waits for them, for the next event or for ``most_s``.

        Returns True if a batch may be due.
        """
        self._look_around()
        wait_s = self._wait_s(self._pace.left_s(most=most_s) if self._has_news() else most_s)
        if self._room() > 0 and self._backlog.partitions:
            self._read_backlog()
        elif (room := min(_AT_ONCE, self._room())) > 0:
            if self._read(room, wait_s):  # the first record comes alone
                self._read(room, 0)
        else:
            time.sleep(wait_s)
        if not self._has_news():
            self._counts.idle()
        return self._is_due() or (self._pace.over and self._has_news())

    def work(self) -> bool:
        """Executes a batch if markers were read or an event is due. Returns False if nothing was to do.

        Raises:
            TrackerFenced: the assignment has changed, or another tracker has taken over.
            KafkaUnavailable, NotAuthorized, KafkaRefused: a control topic failed. The replica must be closed.
        """
        began = time.monotonic()
        settled = self._settled()
        batch = sorted(n for n, one in self._of.items() if one.has_news or n in settled or self._rewrite)
        if not batch:
            return False
        self._pace = Deadline.after_ms(self._options.trigger_ms or 0)
        for number, now_ms in settled.items():
            self._counts.late((now_ms - (self._of[number].next_event_ms() or now_ms)) / 1000)
        kinds, lag_s = self._kinds(batch), self._lag_s(batch)
        decided = self._log.read(row for n in batch for row in self._advanced(n, settled.get(n)))
        carry_out(self._outbox, decided, self._batch_id)
        self._log.tell(decided)
        self._counts.batch(decided, kinds, seconds=time.monotonic() - began, lag_s=lag_s)
        self._batch_id += 1
        self._rewrite = False
        return True

    def close(self) -> None:
        """Closes the clients. The uncommitted state is dropped."""
        self._at.rescue(())
        self._backlog.close()
        self._tail.close()
        self._outbox.close()

    # -- start -----------------------------------------------------------------------------------------

    def _claim(self, member: Callable[[], Any], take_over: bool) -> set[int]:
        """Claims the partitions that no replica owns, and returns them. No replica works before the claim."""

        def check(progress: TrackerProgress) -> None:
            for owner in progress.owners.values():
                if owner is not None and not is_replica(owner) and not take_over:
                    kind = other_kind(owner, is_query=False)
                    raise TrackerOwnedByAnother(self._options.markers_topic, owner, other_kind=kind)

        topic = self._options.markers_topic
        # Not stable: a tracker that died in a transaction is fenced later.
        others = read_progress(self._at.topics, topic, stable=False)
        if all(is_replica(others.owners.get(number)) for number in range(self._at.partitions)):
            return set()
        check(others)
        config, name = client_config(self._options.kafka, "producer"), f"{REPLICA}claim"
        return claim_partitions(config, self._at.topics, topic, name, check=check, member=member)

    def _resume(self, progress: TrackerProgress) -> dict[int, _Partition]:
        at, options = self._at, self._options
        at.cursors.refresh_all(Deadline.after_ms(PATIENCE_MS))
        # Without cursors nothing was read. The first read would then open a connection while leases expire.
        at.cursors.connect(_CONNECT_S)
        at.look()
        at.check_markers_topic()
        first = at.first_positions(progress.next_markers)
        ends = at.ends.look(self.partitions).readable
        at.check_log({n: first[n] for n in self.partitions}, ends, resumed=False)
        of = {n: _Partition.of(n, first[n], ends[n], options) for n in self.partitions}
        for cell, number, event_ms in at.cells.of(self.partitions):
            if cell in at.cursors.torn:
                continue
            if (stored := at.cursors.value(cell.key)) is not None:
                of[number].cells.put(cell.key, stored, event_ms)
        for cell in at.cursors.torn:
            if (held := of.get(cell.control_partition(at.partitions))) is not None:
                held.state.hold(cell.key)
        for number, stored in (at.tables.values() if at.tables is not None else {}).items():
            if number in of:
                of[number].table.put(stored, lease_table_wire.decode(stored).next_event_ms)
        at.clocks.resume(self.partitions, {})
        at.clocks.look(ends)
        waiting = {n: cell for n, cell in at.waiting().items() if n in self.partitions}
        if waiting:
            at.watch.ask_time(waiting)
        if options.reappend is not None:
            self._backlog.begin({n: (one.position, one.first_new) for n, one in of.items()})
        behind = self._backlog.partitions
        self._tail.follow({n: one.position for n, one in of.items() if n not in behind})
        log.info(
            "The tracker continues from the cursors. event=tracker_assigned topic=%s partitions=%s cells=%d",
            options.markers_topic,
            ",".join(map(str, sorted(self.partitions))),
            sum(len(one.cells) for one in of.values()),
        )
        return of

    # -- markers and time ------------------------------------------------------------------------------

    def _read(self, most: int, wait_s: float) -> bool:
        """Takes new markers in. Returns False if there were none within ``wait_s``."""
        try:
            found = self._tail.read(most, wait_s)
        except QueueTopicEndsEarlier as early:
            raise MarkersGone(early.topic, early.partition, early.position, (0, early.end)) from early
        self._take_in(found)
        return bool(found)

    def _read_backlog(self) -> None:
        """Takes in markers that were there at the start, as many as the next batch may contain."""
        while self._room() > 0 and self._backlog.partitions:
            number, records = self._backlog.read()
            one = self._of[number]
            if records is None:
                self._tail.follow({number: one.position})
                continue
            one.fold.add_columns(records, self._at.clocks.read_between([number]).get(number))
            one.rows += one.fold.ready()
            if not one.moved:
                one.oldest_ms = records.column("timestamp")[0].value // 1000
            one.moved = True
            one.position = records.column("offset")[-1].as_py() + 1

    def _take_in(self, found: Iterable[Fetched]) -> None:
        clocks, read_at = self._at.clocks, monotonic_ms()
        for fetched in found:
            one = self._of[fetched.partition]
            if fetched.messages:
                last = fetched.messages[-1]
                _, at_ms = last.timestamp()
                epoch = last.leader_epoch()
                clocks.observe(fetched.partition, at_ms=at_ms, epoch=epoch, read_at=read_at)
                between = clocks.read_between([fetched.partition]).get(fetched.partition)
                one.fold.add_messages(fetched.messages, between)
                one.rows += one.fold.ready()
                if not one.moved:
                    one.oldest_ms = fetched.messages[0].timestamp()[1]
                one.moved = True
            one.position = fetched.stop
            if one.position > one.first_new:
                clocks.fresh.add(fetched.partition)

    def _has_news(self) -> bool:
        return self._rewrite or any(one.has_news for one in self._of.values())

    def _room(self) -> int:
        """Returns the number of markers that the next batch may still contain."""
        waiting = sum(one.fold.gathered + len(one.rows) for one in self._of.values())
        return max(0, self._options.max_markers_per_trigger - waiting)

    def _wait_s(self, most_s: float) -> float:
        now = self._at.clocks.now(monotonic_ms())
        events = [
            max(event_ms - now[n], 0) / 1000
            for n, one in self._of.items()
            if (event_ms := one.next_event_ms()) is not None and n in now
        ]
        soonest = min(events, default=most_s)
        if not soonest:
            soonest = self._settle_after.left_s()
        return min(most_s, soonest + 0.001)

    def _is_due(self) -> bool:
        return self._settle_after.over and bool(self._due(self._at.clocks.now(monotonic_ms())))

    def _due(self, now: dict[int, int]) -> set[int]:
        """Returns the partitions with a due event. None is due before its backlog is read."""
        return {
            n
            for n in now.keys() & self._of.keys() - self._backlog.partitions
            if (event_ms := self._of[n].next_event_ms()) is not None and event_ms < now[n]
        }

    def _settled(self) -> dict[int, int]:
        """Returns the broker time of the partitions with a due event that are read up to that time."""
        # The time is taken before the ends are read. So every marker appended before that time is below the
        # ends, or hidden by an open transaction.
        now = self._at.clocks.now(monotonic_ms())
        due = self._due(now) if self._settle_after.over else set()
        if not due:
            return {}
        ends = self._at.ends.look(due)
        until = Deadline.after_ms(_SETTLE_MS)
        while not until.over and any(self._of[n].position < ends.readable[n] for n in due & ends.whole):
            self._read(_AT_ONCE, _WAIT_S)
        settled = {n for n in due & ends.whole if self._of[n].position >= ends.readable[n]}
        self._at.clocks.note_all_read({n: now[n] for n in settled})
        if settled != due:
            self._settle_after = Deadline.after_ms(_AGAIN_MS)
        return {n: now[n] for n in settled}

    def _advanced(self, number: int, now_ms: int | None) -> Iterator[DecidedRow]:
        one = self._of[number]
        rows = [*one.rows, *one.fold.rows(), tick_row(number, one.position, now_ms, self._id, "")]
        if self._rewrite:
            rows.append(rewrite_row(number))
        one.rows, one.moved, one.committed = [], False, one.position
        return one.state.advance(number, rows)

    def _kinds(self, batch: Iterable[int]) -> Counter[str]:
        kinds: Counter[str] = Counter()
        for number in batch:
            kinds.update(self._of[number].fold.kinds)
            self._of[number].fold.kinds.clear()
        return kinds

    def _lag_s(self, batch: Iterable[int]) -> float | None:
        """Returns the age of the oldest new marker of the partitions, or None without new markers."""
        now = self._at.clocks.now(monotonic_ms())
        oldest = {n: self._of[n].oldest_ms for n in batch if n in now and self._of[n].moved}
        return max((max(now[n] - at_ms, 0) / 1000 for n, at_ms in oldest.items() if at_ms), default=None)

    # -- observation -----------------------------------------------------------------------------------

    def _has_to_observe(self) -> bool:
        """True if a TTL or a breaker needs a look at queues and at the cells of other replicas."""
        options = self._options
        policies = [options.policy, *(policy for _, policy in options.subscription_policies)]
        if any(one.message_ttl_ms is not None or one.breaker.limit is not None for one in policies):
            return True
        return self._at.cells.has_open_breaker()

    def _look_around(self) -> None:
        if self._observes and self._observe.is_time():
            self._look_at_queues()
        elif self._refresh.is_time():
            self._look_at_cursors()
        if self._cursors_id != self._at.cursors.topic_id:
            self._at.tell_recreated(self._cursors_id)
            self._cursors_id, self._rewrite = self._at.cursors.topic_id, True

    def _look_at_cursors(self) -> None:
        try:
            self._at.look()
        except TopicNotFound:
            # The only other copy of the state is in this process, so it must go on and write it again.
            self._at.topics.ensure_cursors(self._options.cursors_topic)

    def _look_at_queues(self) -> None:
        at = self._at
        self._look_at_cursors()
        at.observe(partitions=self.partitions)
        # The letters of a breaker are counted over all partitions, also those of other replicas.
        at.clocks.resume(range(at.partitions), {})
        at.clocks.look(at.ends.look().readable)

    def _on_removed(self, partition: int, first: int, up_to: int) -> None:
        raise MarkersGone(self._options.markers_topic, partition, first, (up_to, up_to))


def _refresh_ms(options: TrackerOptions) -> int:
    """Returns the interval of the looks at cursors. A rescue needs to know of new subscriptions at once."""
    before_ms = options.rescue_before_ms
    return _REFRESH_MS if before_ms is None else min(_OBSERVE_MS, check_every_ms(before_ms))
