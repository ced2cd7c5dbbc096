"""Planning of a query's batches, as Spark's stream reader asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spark_cursor_source.core.batch import SourceOffset, TopicPartition
from spark_cursor_source.core.key_order import BlockedKeys
from spark_cursor_source.core.limits import NO_LIMITS, Limits
from spark_cursor_source.core.read_report import ReportTo
from spark_cursor_source.core.slices import Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """Tasks of a batch whose Start markers the brokers have confirmed."""

    tasks: Sequence[tuple[Slice, ...]]  #: the slices that each task reads
    markers_partitions: int  #: partition count of the markers topic
    #: broker time of the plan in ms; messages with a later delivery time are not delivered. 0: the tracker
    #: does not know delivery times, and all messages are delivered.
    now_ms: int = 0
    #: with ordering=key, by partition: messages outside the batch that block later ones of their keys
    blocked: Mapping[TopicPartition, BlockedKeys] | None = None
    report_to: ReportTo | None = None  #: target of the first task's read report; None if tasks do not report


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerStatus:
    """State of a planner, for Spark's progress reports."""

    latest: SourceOffset  #: the end offsets that the last ``latest_offset`` found
    #: outstanding messages of the assigned partitions. With ``maxOutstanding`` exact and including the next
    #: batch, else as of the last look at the cursors. None: not known.
    outstanding: int | None = None
    #: ms since the first delivery of the oldest outstanding message, by broker time. None: not known.
    oldest_outstanding_ms: int | None = None
    behind: Sequence[int] = ()  #: offsets from the next batch to the end, for each assigned partition
    #: ms since a tracker last read a marker, if above ``trackerTimeout``. None if the tracker is not watched.
    tracker_silent_ms: int | None = None
    redeliveries_kept: int = 0  #: announced redeliveries in memory
    limits: Limits = NO_LIMITS  #: limits of the options and of an operator that hold now


class BatchPlanner(Protocol):
    """One run of a query on the driver, from Spark's first call to its last.

    Spark calls from one thread, in this order:

    1. ``bound_by_now``, with Trigger.AvailableNow; with Trigger.Once right before ``latest_offset``.
    2. ``initial_offset``, if the checkpoint has no committed batch.
    3. ``plan``, if the checkpoint has a batch that was logged and not committed. The batch is replayed.
    4. For each trigger ``completed`` for the previous batch, ``latest_offset``, and ``plan`` for a new batch.
    5. ``close``.

    A planner's memory is a cache. A second planner built from the same checkpoint and the same topics plans
    the same batches.
    """

    def initial_offset(self) -> SourceOffset:
        """Returns the offset where a query without a checkpoint begins.

        The result is the same at each call, and in each run until the first batch is committed.
        """

    def latest_offset(self, start: SourceOffset, *, max_offsets: int | None) -> SourceOffset:
        """Returns the end offset of the next batch, or ``start`` itself if no message can be delivered.

        ``start`` is the end of the previous batch, which Spark has completed. ``max_offsets`` limits the
        messages of the batch; None is no limit.
        """

    def plan(self, start: SourceOffset, end: SourceOffset) -> PlannedBatch:
        """Returns the batch between two offsets that Spark has logged.

        Returns after the brokers have confirmed the Start markers of all its messages, so that no row of the
        batch is read before. The batch is a replay if ``latest_offset`` was not called yet: an earlier run
        has logged it.
        """

    def completed(self, end: SourceOffset) -> None:
        """Handles Spark's commit of the batch that ends at ``end``: writes the acks that the source owes."""

    def bound_by_now(self, *, one_batch: bool = False) -> None:
        """Implements Trigger.AvailableNow and Once: the next ``latest_offset`` fixes the input's end.

        With ``one_batch``, as for Once, the next batch is the only one and takes all of the input.
        """

    def status(self) -> PlannerStatus:
        """Returns the state at the last ``latest_offset``. Does no I/O."""

    def close(self) -> None:
        """Stops the extension of leases and closes the clients. Remaining leases expire."""
