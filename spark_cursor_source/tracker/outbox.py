"""The tracker's decisions, carried out: first the copies, then, in one transaction, all that forgets."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from confluent_kafka import TopicPartition

from spark_cursor_source.core.cell import Cell, control_partition
from spark_cursor_source.core.cursor import CursorSnapshot, MarkersLog
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.tracker import DeadLetter, Decision, Redeliver
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
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.transaction import CALL_TIMEOUT_MS, Record, TransactionalProducer, Uncertain
from spark_cursor_source.options.reappend import ReappendOptions
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.markers import marker_values
from spark_cursor_source.topics.retry_pauses import Withheld, withhold_marker, withholding
from spark_cursor_source.topics.tracker_progress import (
    TrackerProgress,
    metadata,
    read_progress,
    read_progress_of_others,
    tracker_group,
)
from spark_cursor_source.tracker.dead_letter_copier import Copied, DeadLetterCopier
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import redelivery as redelivery_wire

__all__ = ["Outbox", "tracker_group"]

log = logging.getLogger(__name__)

COPY_PATIENCE_MS = 15_000  #: for the dead letters of one topic; what is not written then is held
MAX_RECORD_BYTES = 900_000  #: of a part of a cursor; a topic with Kafka's default limits takes it

_PART = cursor_wire.PART_MARK
_LOOK_MS = 10_000  # for a last look at who is the tracker now


class Outbox:
    """Carries out the batches of one tracker, each once as far as its group's offsets tell.

    A crash between the copies and the transaction repeats copies, which name their message; the transaction
    is all or nothing. :meth:`open` comes first.
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
    ) -> None:
        self._config = config
        self._markers_topic = markers_topic
        self._redeliveries_topic = redeliveries_topic
        self._cursors_topic = cursors_topic
        self._query_id = query_id
        self._patience_ms = patience_ms
        self._topics = ClusterAdmin(config, timeout_ms=patience_ms)
        self._copier = DeadLetterCopier(config, self._topics, policy_for, patience_ms=copy_patience_ms)
        self._reappend = reappend
        self._reappender: Reappender | None = None
        if reappend is not None:
            self._reappender = Reappender(
                config, self._topics, reappend, markers_topic=markers_topic, patience_ms=copy_patience_ms
            )
        group = tracker_group(markers_topic)
        self._producer = TransactionalProducer(config, group, call_timeout_ms=call_timeout_ms)
        self._partitions: dict[str, int] = {}  # control topic -> its partitions
        self._parts: dict[bytes, int] = {}  # key of a cursor -> how many parts it has in the topic
        self._strays: dict[bytes, dict[bytes, set[int]]] = {}  # old records, as :meth:`CursorTail.strays`
        self._log = MarkersLog(markers_topic, "")  # its id is known when the outbox is open
        self._progress: TrackerProgress | None = None
        self._fenced = False
        self.copied = 0  #: dead letters written since the outbox was made
        self.lost = 0  #: dead letters that could not be: their message was gone
        self.withheld = 0  #: times that a dead letter could not be written, and is held

    def open(self, *, take_over: bool) -> TrackerProgress:
        """Become the tracker of the markers topic, and fence the one before; what has been carried out.

        Raises:
            TrackerOwnedByAnother: another query was, and this one is not to ``take_over``; nothing is fenced.
            MarkersPartitionsChanged: the markers topic had another number of partitions.
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        deadline = Deadline.after_ms(self._patience_ms)
        self._check_owner(self._progress_before_fencing(), take_over)
        names = (self._markers_topic, self._redeliveries_topic, self._cursors_topic)
        found = self._topics.describe(names)
        self._partitions = {name: info.partitions for name, info in found.items()}
        self._log = MarkersLog(self._markers_topic, found[self._markers_topic].topic_id)
        self._find_parts()
        progress = self._open_producer(deadline)
        # Again: until it was fenced, the other one may have gone on.
        self._check_owner(progress, take_over)
        self._check_partitions(progress)
        self._progress = progress
        return progress

    def carry_out(
        self,
        batch_id: int,
        *,
        decisions: Sequence[Decision],
        cursors: Sequence[CursorSnapshot],
        next_markers: Mapping[int, int],
        deleted: Sequence[Cell] = (),
        tables: Mapping[int, LeaseTable] | None = None,
        due: Mapping[int, LeaseTable] | None = None,
        identity: str = "",
    ) -> bool:
        """Carry out a batch; False if it had been carried out before.

        Of the cells that are ``deleted`` nothing stays in the cursors topic. ``tables`` are lease tables by
        markers partition, and ``due`` what is to be appended again of each. ``identity`` is committed with
        the batch, for the host to tell whether a repetition of it is the same batch.

        Dead letters that cannot be written hold nothing else up: their cells are told by markers, in the same
        transaction, to hold them and to decide again later, and the cursors say so at once.

        A broker that is away is waited for. When this returns, all of it is on the brokers.

        Raises:
            TrackerFenced: another tracker has taken over.
            KafkaUnavailable, NotAuthorized, KafkaRefused: of the control topics; it can be tried again.
        """
        if self._progress is None:
            raise RuntimeError("the outbox is not open")
        if self._progress.includes(self._query_id, batch_id):
            log.info("batch %s of tracker %s was carried out before", batch_id, self._query_id)
            return False
        if self._fenced:
            raise TrackerFenced(tracker_group(self._markers_topic))
        withheld = self.copy(
            [decision for decision in decisions if isinstance(decision, DeadLetter)]
        ).withheld
        ends = self._reappender.reappend(due) if self._reappender is not None and due else []
        deadline = Deadline.after_ms(self._patience_ms)
        positions = dict.fromkeys(range(self._partitions[self._markers_topic]), 0)
        positions |= {**self._progress.next_markers, **next_markers}
        wholes: dict[bytes, bytes | None] = {
            c.cell.key: cursor_wire.encode(replace(c, log=self._log)) for c in withholding(cursors, withheld)
        }
        wholes |= self._encoded_tables(tables or {})
        wholes |= dict.fromkeys((cell.key for cell in deleted), None)
        parts = {key: self._cursor_records(key, whole) for key, whole in wholes.items()}
        records = [
            *self._redelivery_records(decisions),
            *ends,
            *self._withhold_records(withheld),
            *chain.from_iterable(parts.values()),
        ]
        while True:
            try:
                if self._reopened(batch_id, deadline).includes(self._query_id, batch_id):
                    break  # a commit that was not answered had succeeded
                offsets = self._group_offsets(batch_id, positions, identity)
                self._producer.commit(records, offsets, deadline)
                break
            except Uncertain as failed:
                if deadline.over:
                    self._check_replaced(batch_id)
                self._producer.wait(failed, deadline)
            except TrackerFenced:
                self._fenced = True  # once and for all: to try again would fence the other one
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
        """The first half of :meth:`carry_out`: the dead letters, confirmed by the brokers or withheld."""
        if not dead_letters:
            return Copied()
        done = self._copier.copy(dead_letters)
        self.copied += done.copied
        self.lost += done.lost
        self.withheld += sum(len(one.offsets) for one in done.withheld)
        return done

    def look_at_cursors(self) -> None:
        """The cursors topic was created again: find out what it is, and what is in it.

        Raises:
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        name = self._cursors_topic
        self._partitions[name] = self._topics.describe([name])[name].partitions
        self._find_parts()

    def close(self) -> None:
        """End the clients."""
        self._producer.discard()
        self._copier.close()
        if self._reappender is not None:
            self._reappender.close()

    def _open_producer(self, deadline: Deadline) -> TrackerProgress:
        """What has been carried out once nobody else can carry out anything."""
        self._producer.open(deadline)
        return read_progress(self._topics, self._markers_topic)

    def _progress_before_fencing(self) -> TrackerProgress:
        return read_progress_of_others(self._topics, self._markers_topic)

    def _reopened(self, batch_id: int, deadline: Deadline) -> TrackerProgress:
        """What has been carried out, with a producer that is open."""
        assert self._progress is not None
        if self._producer.is_open:
            return self._progress
        # To open it would fence a tracker that has taken over in the meantime.
        self._check_alone(self._progress_before_fencing(), batch_id)
        now = self._open_producer(deadline)
        self._check_alone(now, batch_id)
        return now

    def _check_alone(self, now: TrackerProgress, batch_id: int) -> None:
        assert self._progress is not None
        expected = {(self._progress.query_id, self._progress.batch_id), (self._query_id, batch_id)}
        # A broker that restarts may show the last commit of this very tracker late.
        own_before = now.query_id == self._query_id and now.batch_id < batch_id
        # Offsets that are not there any more tell of nobody: brokers remove those of a group that stood
        # still for a week.
        nobody = now.query_id is None
        if not nobody and not own_before and (now.query_id, now.batch_id) not in expected:
            self._producer.discard()
            raise TrackerFenced(tracker_group(self._markers_topic))

    def _check_replaced(self, batch_id: int) -> None:
        """Tell a tracker that stood still for long that another one has taken over, if anybody answers."""
        topics = self._topics.within(Deadline.after_ms(_LOOK_MS))
        try:
            now = read_progress_of_others(topics, self._markers_topic)
        except KafkaUnavailable:
            return
        self._check_alone(now, batch_id)

    def _check_owner(self, progress: TrackerProgress, take_over: bool) -> None:
        owner = progress.query_id
        if owner is not None and owner != self._query_id and not take_over:
            self._producer.discard()
            raise TrackerOwnedByAnother(self._markers_topic, owner)

    def _check_partitions(self, progress: TrackerProgress) -> None:
        present = self._partitions[self._markers_topic]
        if progress.partitions is not None and progress.partitions != present:
            raise MarkersPartitionsChanged(self._markers_topic, progress.partitions, present)

    def _find_parts(self) -> None:
        """Parts of large cursors, so that those which a smaller one does not replace are deleted."""
        tail = CursorTable(self._config, self._cursors_topic)
        try:
            tail.refresh()
            keys = tail.record_keys()
            self._strays = tail.strays()
        finally:
            tail.close()
        self._parts = dict(
            Counter(key.rpartition(_PART)[0] for key in keys - set(cursor_wire.cell_keys(keys)))
        )

    def _redelivery_records(self, decisions: Sequence[Decision]) -> Iterator[Record]:
        for decision in decisions:
            if isinstance(decision, Redeliver):
                key, topic = decision.cell.key, self._redeliveries_topic
                partition = control_partition(key, self._partitions[topic])
                yield Record(topic, partition, key, redelivery_wire.encode(decision))

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
        # Parts too go where the cell belongs, not where their own keys would: a reader meets all or none.
        partition = control_partition(key, self._partitions[topic])
        values: list[tuple[bytes, bytes | None]] = [(key, None)]
        if whole is not None:
            values = [*cursor_wire.to_records(key, whole, max_bytes=MAX_RECORD_BYTES)]
        left = range(len(values) - 1, self._parts.get(key, 0))
        # Else a reader would find them again once there is nothing where the cell belongs.
        strays = self._strays.get(key, {})
        return [
            *(Record(topic, at, stray, None) for stray, places in strays.items() for at in sorted(places)),
            *(Record(topic, partition, part_key, value) for part_key, value in values),
            *(Record(topic, partition, key + _PART + str(number).encode(), None) for number in left),
        ]

    def _group_offsets(
        self, batch_id: int, positions: Mapping[int, int], identity: str
    ) -> list[TopicPartition]:
        # All of them each time, so that one metadata stands for the whole group.
        text = metadata(self._query_id, batch_id, self._partitions[self._markers_topic], identity)
        return [TopicPartition(self._markers_topic, number, at, text) for number, at in positions.items()]
