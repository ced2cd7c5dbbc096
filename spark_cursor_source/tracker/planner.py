"""The driver side of the tracker: plans how far each batch reads, and at which broker time."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from spark_cursor_source.core.tracker_offset import TrackerOffset, limit_markers
from spark_cursor_source.errors import TrackerOwnedByAnother, TrackerProgressLost
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline, Pace
from spark_cursor_source.kafka.transaction import end_transactions
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.topics.tracker_progress import (
    TrackerProgress,
    is_replica,
    other_kind,
    read_progress,
    read_progress_of_others,
    tracker_group,
)
from spark_cursor_source.tracker.claim import claim_partitions, fence_replicas
from spark_cursor_source.tracker.environment import TrackerEnvironment
from spark_cursor_source.tracker.marker_clocks import monotonic_ms
from spark_cursor_source.wire import tracker_offset_json

log = logging.getLogger(__name__)
COMMIT_EVERY_MS = 24 * 3_600_000  #: longest interval in ms between two offset commits of an idle tracker


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersSlice:
    """Input of one task: markers of one partition, and the broker time to advance to after them, if any."""

    partition: int
    start: int
    stop: int
    now_ms: int | None  #: leases with a deadline before this expire; None if more markers must be read first
    tracker_id: str
    identity: str = ""  #: identity of the batch, to recognize a repetition
    read_between: tuple[int, int] | None = None  #: see :class:`TrackerOffset`
    rewrite: bool = False  #: True if all cursors are written again, because their topic was deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class AllCursors:
    """The task of a new checkpoint, or of a state that is rebuilt: reads all cursors."""

    partitions: int  #: partition count of the markers topic
    reset: int = 0  #: number of markers partitions that clear their state first


class TrackerPlanner:
    """Plans the tracker's batches: how far to read, and at which broker time."""

    def __init__(self, options: TrackerOptions, policies: str | None = None) -> None:
        """``policies`` is the digest of all policies if ``options`` contain only those of the source."""
        self._options = options
        self._policies = options.policies_digest if policies is None else policies
        self._at = TrackerEnvironment(options)
        self._commits = Pace(COMMIT_EVERY_MS)
        self._commits.is_time()  # starts the interval: the first commit is one interval after the start
        self._checked = False
        self._done: TrackerProgress | None = None  # the progress that was committed before the start
        self._asked_time = False
        self._bounded = False
        self._bounds: dict[int, int] | None = None  # of a bounded run: the ends at its start
        self._has_read = False  # a bounded run has planned a batch at or after them

    def bound_by_now(self) -> None:
        """Implements Trigger.AvailableNow: the next :meth:`latest_offset` fixes how far the run reads."""
        self._bounded = True

    def initial_offset(self) -> TrackerOffset:
        """Returns the offset where a tracker without a checkpoint begins.

        The offset follows the markers that the cursors include. It may be too low while another tracker still
        commits. That is safe, because each cursor records which markers it includes.
        """
        positions = self._progress(stable=False).next_markers
        return TrackerOffset(
            tracker_id=uuid.uuid4().hex,
            next=self._at.first_positions(positions),
            resumed=False,
            cursors_id=self._at.cursors.topic_id,
        )

    def latest_offset(self, start: TrackerOffset) -> TrackerOffset:
        """Returns the end of the next batch, or ``start`` if no marker waits and no event is due.

        Raises:
            TrackerOwnedByAnother: another tracker has committed progress, and the option to take over is not
                set.
            TrackerProgressLost: the brokers have committed less progress than this checkpoint holds.
            MarkersGone: markers were removed before they were read.
            MarkersTopicRecreated: the cursors refer to an earlier markers topic of this name.
        """
        self._check_owner(start, known=start)
        # The time is taken before the ends are read. So every marker appended before that time is below the
        # ends, or hidden by an open transaction.
        at = self._at
        at.clocks.resume(range(at.partitions), start.now_ms)
        now = at.clocks.now(monotonic_ms())
        at.look()
        self._ask_time()
        at.observe()
        found = at.ends.look()
        ends = found.readable
        if self._is_over(start, ends):
            return start
        at.clocks.look(ends)
        at.check_log(start.next, ends, resumed=start.resumed)
        reached = limit_markers(start.next, ends, self._options.max_markers_per_trigger)
        moved = frozenset(p for p in ends if reached[p] > start.next.get(p, 0))
        between = at.clocks.read_between(moved)
        caught_up = {p for p in found.whole & now.keys() if reached[p] >= ends[p]}
        at.clocks.note_all_read({p: now[p] for p in caught_up})
        due = at.due(now)
        if self._commits.is_time():
            # This batch only commits offsets: brokers expire the offsets of a group that is idle for a week.
            due |= frozenset(now)
        settled = (moved | due) & caught_up
        end = TrackerOffset(
            tracker_id=start.tracker_id,
            next=reached,
            now_ms=now,
            settled=settled,
            read_between=between,
            cursors_id=at.cursors.topic_id,
        )
        if end.rewrites(start):
            at.tell_recreated(start.cursors_id)
            return end
        if not start.resumed or moved or settled:
            return end
        return start

    def tasks(self, start: TrackerOffset, end: TrackerOffset) -> list[MarkersSlice | AllCursors]:
        """Returns the inputs of a batch's tasks.

        Raises:
            TrackerOwnedByAnother, TrackerProgressLost: see :meth:`latest_offset`, which Spark does not call
                before a replayed batch.
        """
        self._check_owner(start, known=end)
        if self._was_decided_otherwise(end):
            log.warning(
                "The repeated batch was committed under other policies, so the state is rebuilt from "
                "the cursors. event=tracker_rebuilt topic=%s",
                self._options.markers_topic,
            )
            return [AllCursors(partitions=self._at.partitions, reset=self._at.partitions)]
        identity, rewrite = self._identity(end), end.rewrites(start)
        # The first batch has work in all partitions, so it commits progress. The checkpoint of a tracker that
        # took over without a commit would be refused at the next start.
        slices: list[MarkersSlice | AllCursors] = [
            MarkersSlice(
                partition=p,
                start=start.next.get(p, 0),
                stop=stop,
                now_ms=end.now_ms.get(p) if p in end.settled else None,
                tracker_id=end.tracker_id,
                identity=identity,
                read_between=end.read_between.get(p),
                rewrite=rewrite,
            )
            for p, stop in end.next.items()
            if stop > start.next.get(p, 0) or p in end.settled or rewrite or not start.resumed
        ]
        return slices if start.resumed else [AllCursors(partitions=self._at.partitions), *slices]

    def close(self) -> None:
        self._at.close()

    def _check_owner(self, start: TrackerOffset, *, known: TrackerOffset) -> None:
        """Checks once that no other tracker has committed progress beyond this checkpoint.

        ``initial_offset`` does not check. If the tracker died in its first batch, Spark calls
        ``initial_offset`` again, which returns another tracker id. The progress of that first batch would
        look like another tracker's.
        """
        if self._checked:
            return
        topics, topic = self._at.topics, self._options.markers_topic
        config = client_config(self._options.kafka, "producer")
        others = read_progress_of_others(topics, topic)
        self._check_progress(others, start, known)
        while any(map(is_replica, others.owners.values())):
            # Before the claim, to end the transactions of trackers that died in them, and after it, because
            # only trackers that start after the claim know of it.
            fence_replicas(config, topic, range(self._at.partitions))
            claim_partitions(config, topics, topic, known.tracker_id, check=lambda _: None)
            fence_replicas(config, topic, range(self._at.partitions))
            others = self._progress(stable=True)  # a replica may have committed before it was fenced
        # Fences all other trackers. Also ends the transaction of a tracker that died in a batch, which would
        # otherwise delay reading the stable positions.
        end_transactions(config, tracker_group(topic), Deadline.after_ms(PATIENCE_MS))
        self._done = self._progress(stable=True)
        self._check_progress(self._done, start, known)
        self._at.look()
        self._at.check_markers_topic()
        self._at.rescue(range(self._at.partitions))
        self._checked = True

    def _identity(self, end: TrackerOffset) -> str:
        return f"{tracker_offset_json.digest(end)}.{self._policies}"

    def _was_decided_otherwise(self, end: TrackerOffset) -> bool:
        """True if this batch was executed before this start, under other policies."""
        if self._done is None or self._done.query_id != end.tracker_id:
            return False
        read, _, policies = self._done.identity.partition(".")
        return policies not in ("", self._policies) and read == tracker_offset_json.digest(end)

    def _check_progress(self, done: TrackerProgress, start: TrackerOffset, known: TrackerOffset) -> None:
        ours = done.query_id in (None, known.tracker_id)
        if start.resumed:
            # Resuming from a state older than the committed progress would restore old leases.
            batches = {tracker_offset_json.digest(start), tracker_offset_json.digest(known)}
            # Digests are compared too, because a batch caused only by the passing of time moves no position.
            other = bool(done.identity) and done.identity.partition(".")[0] not in batches
            beyond = any(at > known.next.get(p, 0) for p, at in done.next_markers.items())
            behind = any(at < start.next.get(p, 0) for p, at in done.next_markers.items())
            if ours and other and behind and not beyond:
                raise TrackerProgressLost(self._options.markers_topic)
            if not ours or beyond or other:
                raise self._owned_by(done.query_id or "", stale=True)
        elif not ours and not self._options.take_over:
            raise self._owned_by(done.query_id or "")

    def _owned_by(self, owner: str, *, stale: bool = False) -> TrackerOwnedByAnother:
        kind = other_kind(owner, is_query=True)
        return TrackerOwnedByAnother(self._options.markers_topic, owner, stale, kind)

    def _is_over(self, start: TrackerOffset, ends: Mapping[int, int]) -> bool:
        """True once a bounded run has read the markers that were there at its start, and what is due then.

        One batch follows the one that reads them. In a run that begins with waiting events, it is the first
        that knows the present time.
        """
        if not self._bounded:
            return False
        if self._bounds is None:
            self._bounds = dict(ends)
            return False
        if any(start.next.get(p, 0) < end for p, end in self._bounds.items()):
            return False
        had_read, self._has_read = self._has_read, True
        return had_read

    def _ask_time(self) -> None:
        """Once per run, appends markers without effect to learn the broker time if events wait for it.

        Without an append, a clock that starts again continues from the last time of the previous run instead
        of the present time.
        """
        if self._asked_time:
            return
        self._asked_time = True
        waiting = self._at.waiting()
        if waiting and self._at.watch.ask_time(waiting):
            self._at.clocks.fresh |= waiting.keys()

    def _progress(self, *, stable: bool) -> TrackerProgress:
        return read_progress(self._at.topics, self._options.markers_topic, stable=stable)
