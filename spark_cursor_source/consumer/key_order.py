"""Unfinished messages of a query with ordering=key, and their keys.

A task may deliver a message when all earlier messages of its key have ended. The planner tells each task the
keys of the messages outside the batch that have not ended. What has ended is known from the tracker's answers
and cursors, and from the markers since. Keys are read from the queue topic, once for each such message. So a
new run knows the same as the run before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spark_cursor_source.consumer.marker_follower import MarkerFollower
from spark_cursor_source.consumer.session import TrackerSession
from spark_cursor_source.core.batch import (
    BatchPlan,
    Delivery,
    StartedDeliveries,
    TopicPartition,
    offsets_by_cell,
)
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.key_order import BlockedKeys, UnfinishedMessages, key_hash, unfinished_outside
from spark_cursor_source.core.marker import Block
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.options.source import Ordering, SourceOptions
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.queue import arrow_batches
from spark_cursor_source.topics.rescue import Rescue
from spark_cursor_source.wire.marker import MarkerV1

_POLL_S = 0.02

ReadKeys = Callable[[Cell, OffsetSet], Mapping[int, int]]


class KeyOrder:
    """Keys that block messages of a batch. Not thread-safe."""

    def __init__(
        self,
        markers: MarkerFollower,
        session: TrackerSession,
        cursors: CursorTable,
        read_keys: ReadKeys,
        *,
        partitions: int,
        answer_ms: int = 1_000,
    ) -> None:
        """``partitions`` is the partition count of the markers topic.

        ``answer_ms`` is the time to wait for an answer of the tracker that must be there.
        """
        self._answer_ms = answer_ms
        self._markers, self._session, self._cursors = markers, session, cursors
        self._read_keys, self._partitions = read_keys, partitions
        self._unfinished: dict[Cell, tuple[str, UnfinishedMessages]] = {}  # with the run id of the Hello
        self._hashes: dict[Cell, dict[int, int]] = {}  # of unfinished messages, by offset

    @classmethod
    def of(
        cls, options: SourceOptions, session: TrackerSession, cursors: CursorTable, *, partitions: int
    ) -> KeyOrder | None:
        """Returns the order of keys of a query; None: the messages of a key have no order."""
        if options.ordering is not Ordering.KEY:
            return None
        markers = MarkerFollower(client_config(options.kafka, "consumer"), options.markers_topic, {})
        return cls(
            markers, session, cursors, lambda *some: read_hashes(options, *some), partitions=partitions
        )

    def follow(self, taken: StartedDeliveries) -> None:
        """Takes in the markers since the last call. Forgets in ``taken`` the deliveries that are cancelled.

        Raises the errors of reading the markers topic.
        """
        for cell, answer in self._session.answers.items():
            run_id = self._session.id_of(cell)
            if cell not in self._unfinished or self._unfinished[cell][0] != run_id:
                self._unfinished[cell] = run_id, UnfinishedMessages(answer)
                self._markers.begin_at(self._home(cell), answer.next_marker)
        for lost in self._unfinished.keys() - self._session.answers.keys():
            del self._unfinished[lost]
            self._hashes.pop(lost, None)
        if not self._unfinished:
            return
        for marker, offset in self._markers.read(map(self._home, self._unfinished)):
            if isinstance(marker, MarkerV1) or marker.cell not in self._unfinished:
                continue
            if isinstance(marker, Block):
                taken.cancel(marker.cell, marker.offsets, delivery_count=marker.delivery_count)
            self._unfinished[marker.cell][1].apply(marker, marker_offset=offset)

    def answered(self, batch: BatchPlan) -> tuple[BatchPlan, Sequence[Delivery]]:
        """Splits a batch into deliveries of cells that the tracker has answered for, and others.

        The others were announced to this run, and another run has said Hello since. It is unknown what they
        must wait for. The caller must release them.

        Raises:
            NoTracker, QueueTopicRecreated: see :meth:`TrackerSession.listen`.
        """
        answers = self._session.answers
        until = Deadline.after_ms(self._answer_ms)
        while any(one.cell not in answers for one in batch.deliveries):
            # An announcement can be visible before the answer, although one transaction contains both.
            self._session.listen()
            if until.over:
                break
            until.pause(_POLL_S)
        kept = tuple(one for one in batch.deliveries if one.cell in answers)
        return replace(batch, deliveries=kept), [one for one in batch.deliveries if one.cell not in answers]

    def blocked(self, batch: BatchPlan, taken: StartedDeliveries) -> dict[TopicPartition, BlockedKeys]:
        """Returns what blocks messages of a batch, by partition. Partitions without any are left out.

        Raises the errors of reading the markers, cursors and queue topics.
        """
        self.follow(taken)
        of_cells = offsets_by_cell(batch.deliveries)
        if any(self._outside(cell, offsets) for cell, offsets in of_cells.items()):
            self._cursors.refresh()  # the tracker ends messages, too: dead letters, and those that expired
        found = {}
        for cell, offsets in of_cells.items():
            self._see(cell)
            if outside := self._outside(cell, offsets):
                found[cell.topic_partition] = self._keys_of(cell, outside)
        return found

    def close(self) -> None:
        """Closes the consumer of markers."""
        self._markers.close()

    def _home(self, cell: Cell) -> int:
        return cell.control_partition(self._partitions)

    def _outside(self, cell: Cell, batch: OffsetSet) -> OffsetSet:
        assert cell in self._unfinished, "nothing is planned before the tracker's answer"
        return unfinished_outside(self._unfinished[cell][1], batch)

    def _see(self, cell: Cell) -> None:
        (run_id, unfinished), cursor = self._unfinished[cell], self._cursors.get(cell)
        if cursor is not None and cursor.owner == run_id:
            unfinished.see(cursor)

    def _keys_of(self, cell: Cell, offsets: OffsetSet) -> BlockedKeys:
        """Returns the keys of these messages. One whose record is gone blocks no message."""
        _, unfinished = self._unfinished[cell]
        hashes = {one: at for one, at in self._hashes.get(cell, {}).items() if one in unfinished.offsets}
        if unknown := offsets - OffsetSet.from_offsets(hashes):
            hashes |= self._read_keys(cell, unknown)
        self._hashes[cell] = hashes
        return BlockedKeys.of({one: hashes[one] for one in offsets if one in hashes}, unfinished.blocked)


def read_hashes(options: SourceOptions, cell: Cell, offsets: OffsetSet) -> dict[int, int]:
    """Returns the hash of the key of each of these messages that exists, from the queue topic or its copies.

    Raises the errors of reading the topic.
    """
    config: dict[str, Any] = client_config(options.kafka, "consumer")
    config["isolation.level"] = options.isolation.value
    piece = Slice(topic=cell.topic, partition=cell.partition, offsets=offsets, delivery_count=1)
    batches = arrow_batches(
        config,
        [piece],
        include_headers=False,
        queue_id=None,
        on_missing=lambda *_: None,
        rescue=Rescue.of(options),
        skips_deleted=not options.fail_on_data_loss,
    )
    found: dict[int, int] = {}
    for rows in batches:
        keys: Iterable[bytes | None] = rows.column("key").to_pylist()
        found |= dict(zip(rows.column("offset").to_pylist(), map(key_hash, keys), strict=True))
    return found
