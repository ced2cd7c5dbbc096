"""Executes tracker batches: dead-letter copies first, then one transaction for the rest.

The transaction contains redeliveries, cursors and the offsets of the markers topic.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from confluent_kafka import TopicPartition

from spark_cursor_source.core.cell import Cell, control_partition
from spark_cursor_source.core.cursor import MarkersLog
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.tracker import DeadLetter
from spark_cursor_source.errors import (
    KafkaUnavailable,
    MarkersPartitionsChanged,
    TrackerFenced,
    TrackerOwnedByAnother,
)
from spark_cursor_source.interop import lease_table_wire as table_wire
from spark_cursor_source.interop.lease_table import LeaseTable
from spark_cursor_source.interop.reappend import Reappender
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.transaction import CALL_TIMEOUT_MS, Record, TransactionalProducer, Uncertain
from spark_cursor_source.options.reappend import ReappendOptions
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.markers import marker_values
from spark_cursor_source.topics.rescue import Rescue
from spark_cursor_source.topics.retry_pauses import Withheld, withhold_marker, withholding
from spark_cursor_source.topics.tracker_progress import (
    TrackerProgress,
    is_replica,
    metadata,
    other_kind,
    read_progress,
    read_progress_of_others,
    replica_transactional_id,
    tracker_group,
)
from spark_cursor_source.tracker.dead_letter_copier import Copied, DeadLetterCopier
from spark_cursor_source.wire import cursor as cursor_wire

__all__ = ["Outbox", "tracker_group"]

log = logging.getLogger(__name__)

#: timeout in ms for the dead letters of one topic; dead letters not written by then are held
COPY_PATIENCE_MS = 15_000
MAX_RECORD_BYTES = 900_000  #: size limit of one cursor part, within Kafka's default message limit

_PART = cursor_wire.PART_MARK
_LOOK_MS = 10_000  # timeout of the last check for another active tracker


@dataclass(frozen=True, slots=True)
class Share:
    """Markers partitions of one of several trackers, and its place in their consumer group."""

    partitions: frozenset[int]  #: at least one
    member: Callable[[], Any]  #: returns the member's group metadata

    def transactional_id(self, markers_topic: str) -> str:
        """Returns the id of one of the partitions. The next owner of that partition fences this tracker."""
        return replica_transactional_id(markers_topic, min(self.partitions))


class Outbox:
    """Executes the batches of one tracker, each once according to the offsets of its consumer group.

    After a crash between the copies and the transaction, the copies are written again. Each copy contains its
    message id. The transaction is atomic. Call :meth:`open` first.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        markers_topic: str,
        redeliveries_topic: str,
        cursors_topic: str,
        query_id: str,
        policy_for: Callable[[str], RedeliveryPolicy],
        reappend: ReappendOptions | None = None,
        patience_ms: int = PATIENCE_MS,
        call_timeout_ms: int = CALL_TIMEOUT_MS,
        copy_patience_ms: int = COPY_PATIENCE_MS,
        share: Share | None = None,
        rescue: Rescue | None = None,
    ) -> None:
        """``rescue`` has the messages that retention has deleted before they became dead letters."""
        self._config = config
        self._share = share
        self._markers_topic = markers_topic
        self._redeliveries_topic = redeliveries_topic
        self._cursors_topic = cursors_topic
        self._query_id = query_id
        self._patience_ms = patience_ms
        self._topics = ClusterAdmin(config, timeout_ms=patience_ms)
        self._copier = DeadLetterCopier(
            config, self._topics, policy_for, patience_ms=copy_patience_ms, rescue=rescue
        )
        self._reappend = reappend
        self._reappender: Reappender | None = None
        if reappend is not None:
            self._reappender = Reappender(
                config, self._topics, reappend, markers_topic=markers_topic, patience_ms=copy_patience_ms
            )
        self._producer = TransactionalProducer(
            config,
            tracker_group(markers_topic),
            transactional_id=None if share is None else share.transactional_id(markers_topic),
            member=None if share is None else share.member,
            call_timeout_ms=call_timeout_ms,
        )
        self._partitions: dict[str, int] = {}  # partition count of each control topic
        self._parts: dict[bytes, int] = {}  # number of additional parts in the topic, by cursor key
        # misplaced old records, see :meth:`CursorTable.strays`
        self._strays: dict[bytes, dict[bytes, set[int]]] = {}
        self._log = MarkersLog(markers_topic, "")  # the topic id is set by open()
        self._progress: TrackerProgress | None = None
        self._before: TrackerProgress | None = None  # the progress at open()
        self._fenced = False
        self.copied = 0  #: dead letters written since the outbox was created
        self.lost = 0  #: dead letters without a copy because the message was no longer in its topic
        self.withheld = 0  #: number of failed writes after which a dead letter was held

    @classmethod
    def of(cls, options: TrackerOptions, *, query_id: str, share: Share | None = None) -> Outbox:
        """Returns the outbox of a tracker with these options, not opened yet.

        With ``share`` it commits these markers partitions only.
        """
        rescue = None
        if options.rescue_before_ms is not None:
            consumer = client_config(options.kafka, "consumer")
            rescue = Rescue(consumer, options.rescue_topic, options.markers_topic)
        return cls(
            client_config(options.kafka, "producer"),
            markers_topic=options.markers_topic,
            redeliveries_topic=options.redeliveries_topic,
            cursors_topic=options.cursors_topic,
            query_id=query_id,
            policy_for=options.policy_for,
            reappend=options.reappend,
            share=share,
            rescue=rescue,
        )

    def open(self, *, take_over: bool) -> TrackerProgress:
        """Becomes the tracker of the markers topic and fences the previous one.

        Returns the progress that was committed before.

        Raises:
            TrackerOwnedByAnother: another query owns the progress, and ``take_over`` is False; no producer is
                fenced.
            MarkersPartitionsChanged: the partition count of the markers topic has changed.
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        deadline = Deadline.after_ms(self._patience_ms)
        self._check_owner(self._progress_before_fencing(), take_over)
        names = (self._markers_topic, self._redeliveries_topic, self._cursors_topic)
        found = self._topics.describe(names)
        self._partitions = {name: info.partitions for name, info in found.items()}
        self._log = MarkersLog(self._markers_topic, found[self._markers_topic].topic_id)
        progress = self._open_producer(deadline)
        # Checked again: the other tracker may have committed until it was fenced.
        self._check_owner(progress, take_over)
        self._check_partitions(progress)
        self._find_parts(deadline)
        if self._reappender is not None:
            self._reappender.connect()
        self._progress = self._before = progress
        return progress

    def carry_out(
        self,
        batch_id: int,
        *,
        announcements: Sequence[tuple[bytes, bytes]],
        dead_letters: Sequence[DeadLetter],
        cursors: Mapping[bytes, bytes],
        next_markers: Mapping[int, int],
        deleted: Sequence[Cell] = (),
        tables: Mapping[int, LeaseTable] | None = None,
        due: Mapping[int, LeaseTable] | None = None,
        identity: str = "",
    ) -> bool:
        """Executes a batch. Returns False if the batch was executed before.

        ``announcements`` are cell keys and record values. ``cursors`` are encoded cursors by cell key,
        without the markers topic, which this call adds. Removes all records of ``deleted`` cells from the
        cursors topic. ``tables`` are lease tables by markers partition, and ``due`` are the parts of them to
        append again. ``identity`` is committed with the batch, so that the caller can recognize whether a
        repeated batch is the same batch.

        Dead letters that cannot be written do not block the batch. For each, a marker in the same transaction
        makes the cell hold the dead letter and decide again later. The cursors of the batch already contain
        it as held.

        Waits for unavailable brokers. Returns after the brokers have confirmed all records.

        Raises:
            TrackerFenced: another tracker has taken over.
            KafkaUnavailable, NotAuthorized, KafkaRefused: a control topic failed; the call can be repeated.
        """
        if self._progress is None:
            raise RuntimeError("the outbox is not open")
        if self._progress.includes(self._query_id, batch_id):
            log.info(
                "The batch was committed before and is skipped. event=batch_already_committed "
                "batch=%s tracker=%s",
                batch_id,
                self._query_id,
            )
            return False
        if self._fenced:
            raise TrackerFenced(tracker_group(self._markers_topic))
        if dead_letters or due:
            # Copies are outside the transaction, so no fence stops those of a tracker that was replaced.
            self._check_replaced(batch_id)
        withheld = self.copy(dead_letters).withheld
        ends = self._reappender.reappend(due) if self._reappender is not None and due else []
        deadline = Deadline.after_ms(self._patience_ms)
        positions = dict.fromkeys(self._numbers or range(self._partitions[self._markers_topic]), 0)
        positions |= {**self._progress.next_markers, **next_markers}
        own_log = cursor_wire.encode_log(self._log)
        wholes: dict[bytes, bytes | None] = {
            key: value + own_log for key, value in withholding(cursors, withheld).items()
        }
        wholes |= self._encoded_tables(tables or {})
        wholes |= dict.fromkeys((cell.key for cell in deleted), None)
        parts = {key: self._cursor_records(key, whole) for key, whole in wholes.items()}
        records = [
            *self._redelivery_records(announcements),
            *ends,
            *self._withhold_records(withheld),
            *chain.from_iterable(parts.values()),
        ]
        while True:
            try:
                if self._reopened(batch_id, deadline).includes(self._query_id, batch_id):
                    break  # an earlier commit succeeded, but its response was lost
                offsets = self._group_offsets(batch_id, positions, identity)
                self._producer.commit(records, offsets, deadline)
                break
            except Uncertain as failed:
                if deadline.over:
                    self._check_replaced(batch_id)
                self._producer.wait(failed, deadline)
            except TrackerFenced:
                self._fenced = True  # permanent: a retry would fence the other tracker
                raise
        self._progress = TrackerProgress(
            query_id=self._query_id,
            batch_id=batch_id,
            partitions=self._partitions[self._markers_topic],
            next_markers=positions,
            identity=identity,
        )
        self._parts |= {key: max(0, sum(r.value is not None for r in of) - 1) for key, of in parts.items()}
        for key in parts:
            self._strays.pop(key, None)
        return True

    def copy(self, dead_letters: Sequence[DeadLetter]) -> Copied:
        """Copies dead letters: the first half of :meth:`carry_out`.

        When it returns, each copy is confirmed by the brokers or withheld.
        """
        if not dead_letters:
            return Copied()
        done = self._copier.copy(dead_letters)
        self.copied += done.copied
        self.lost += done.lost
        self.withheld += sum(len(one.offsets) for one in done.withheld)
        return done

    def look_at_cursors(self) -> None:
        """Reads the partition count and content of the cursors topic after it was created again.

        Raises:
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        name = self._cursors_topic
        self._partitions[name] = self._topics.describe([name])[name].partitions
        self._find_parts(Deadline.after_ms(self._patience_ms))

    def close(self) -> None:
        """Closes the clients."""
        self._producer.discard()
        self._copier.close()
        if self._reappender is not None:
            self._reappender.close()

    def _open_producer(self, deadline: Deadline) -> TrackerProgress:
        """Opens the producer, which fences all others, and returns the progress committed by then."""
        self._producer.open(deadline)
        return read_progress(self._topics, self._markers_topic, numbers=self._numbers)

    @property
    def _numbers(self) -> frozenset[int] | None:
        """The partitions of this tracker's share. None: all."""
        return None if self._share is None else self._share.partitions

    def _progress_before_fencing(self, topics: ClusterAdmin | None = None) -> TrackerProgress:
        return read_progress_of_others(topics or self._topics, self._markers_topic, numbers=self._numbers)

    def _reopened(self, batch_id: int, deadline: Deadline) -> TrackerProgress:
        """Returns the committed progress. Opens the producer again if it is closed."""
        assert self._progress is not None
        if self._producer.is_open:
            return self._progress
        # Checked first, because opening would fence a tracker that has taken over since.
        self._check_alone(self._progress_before_fencing(), batch_id)
        now = self._open_producer(deadline)
        self._check_alone(now, batch_id)
        return now

    def _check_alone(self, now: TrackerProgress, batch_id: int) -> None:
        """Checks that the committed progress of each partition is this tracker's, or from before it."""
        assert self._before is not None
        # A restarting broker may return an older commit.
        own = now.query_id == self._query_id and now.batch_id <= batch_id
        before = (now.query_id, now.batch_id) == (self._before.query_id, self._before.batch_id)
        # Missing offsets do not prove another tracker: brokers expire the offsets of a group that was idle
        # for a week.
        nobody = now.query_id is None
        # The partitions of a share may have gone to several trackers, of which one has the latest batch.
        others = any(
            owner not in (None, self._query_id, self._before.owners.get(number))
            for number, owner in now.owners.items()
        )
        if others or not (nobody or own or before):
            self._producer.discard()
            raise TrackerFenced(tracker_group(self._markers_topic))

    def _check_replaced(self, batch_id: int) -> None:
        """Checks whether another tracker took over, if the brokers respond."""
        topics = self._topics.within(Deadline.after_ms(_LOOK_MS))
        try:
            now = self._progress_before_fencing(topics)
        except KafkaUnavailable:
            return
        self._check_alone(now, batch_id)

    def _check_owner(self, progress: TrackerProgress, take_over: bool) -> None:
        owner = progress.query_id
        if owner is None or owner == self._query_id:
            return
        if self._share is not None and is_replica(owner):
            return  # the partitions of a replica move to others
        # A replica that has claimed the topic is not fenced by this producer, see ``claim_partitions``.
        if not take_over or self._share is not None or is_replica(owner):
            self._producer.discard()
            kind = other_kind(owner, is_query=self._share is None)
            raise TrackerOwnedByAnother(self._markers_topic, owner, other_kind=kind)

    def _check_partitions(self, progress: TrackerProgress) -> None:
        present = self._partitions[self._markers_topic]
        if progress.partitions is not None and progress.partitions != present:
            raise MarkersPartitionsChanged(self._markers_topic, progress.partitions, present)

    def _find_parts(self, deadline: Deadline) -> None:
        """Reads the parts of large cursors. Parts that a smaller cursor no longer needs are deleted later."""
        tail = CursorTable(self._config, self._cursors_topic, timeout_ms=self._patience_ms)
        try:
            tail.refresh_all(deadline)
            keys = tail.record_keys()
            self._strays = tail.strays()
        finally:
            tail.close()
        self._parts = dict(
            Counter(key.rpartition(_PART)[0] for key in keys - set(cursor_wire.cell_keys(keys)))
        )

    def _redelivery_records(self, announcements: Iterable[tuple[bytes, bytes]]) -> Iterator[Record]:
        topic = self._redeliveries_topic
        for key, value in announcements:
            yield Record(topic, control_partition(key, self._partitions[topic]), key, value)

    def _withhold_records(self, withheld: Iterable[Withheld]) -> Iterator[Record]:
        topic = self._markers_topic
        for one in withheld:
            marker = withhold_marker(one)
            partition = marker.cell.control_partition(self._partitions[topic])
            for value in marker_values(marker):
                yield Record(topic, partition, marker.cell.key, value)

    def _encoded_tables(self, tables: Mapping[int, LeaseTable]) -> Iterator[tuple[bytes, bytes]]:
        for partition, table in tables.items():
            assert self._reappend is not None
            assert self._reappender is not None
            cell = table_wire.table_cell(self._reappend.queue_topic, self._markers_topic, partition)
            trouble, troubled = self._reappender.trouble(partition)
            yield cell.key, table_wire.encode_record(table, cell, trouble=trouble, troubled=troubled)

    def _cursor_records(self, key: bytes, whole: bytes | None) -> list[Record]:
        topic = self._cursors_topic
        # Parts go to the partition of the cell, not of their own keys, so that a reader sees all parts or
        # none.
        partition = control_partition(key, self._partitions[topic])
        values: list[tuple[bytes, bytes | None]] = [(key, None)]
        if whole is not None:
            values = [*cursor_wire.to_records(key, whole, max_bytes=MAX_RECORD_BYTES)]
        left = range(len(values) - 1, self._parts.get(key, 0))
        # Stray records are deleted too. Otherwise a reader would use them again after the cell's own record
        # is deleted.
        strays = self._strays.get(key, {})
        return [
            *(Record(topic, at, stray, None) for stray, places in strays.items() for at in sorted(places)),
            *(Record(topic, partition, part_key, value) for part_key, value in values),
            *(Record(topic, partition, key + _PART + str(number).encode(), None) for number in left),
        ]

    def _group_offsets(
        self, batch_id: int, positions: Mapping[int, int], identity: str
    ) -> list[TopicPartition]:
        # All partitions are committed each time, so that one metadata applies to the whole group.
        text = metadata(self._query_id, batch_id, self._partitions[self._markers_topic], identity)
        return [TopicPartition(self._markers_topic, number, at, text) for number, at in positions.items()]
