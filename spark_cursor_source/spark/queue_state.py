"""State of the messages of a subscription, as the sinks that write exactly once need it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_cursor_source.consumer.action_columns import MESSAGE_ID
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.table_commit import Place
from spark_cursor_source.errors import (
    ConflictingOptions,
    InvalidControlRecord,
    LaterCursorVersion,
    TopicNotFound,
)
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.pool import ClientPool
from spark_cursor_source.options.ack import AckAction, AckOptions
from spark_cursor_source.options.marker_format import MarkerVersion
from spark_cursor_source.spark.schema import origin_of
from spark_cursor_source.topics.cursors import CursorTable

OffsetsByPlace = Mapping[Place, OffsetSet]

#: a cursor of a later version of the library, or one whose parts do not belong together
_UNREADABLE = (LaterCursorVersion, InvalidControlRecord)


class QueueState:
    """State of the messages of a subscription, as the brokers have it."""

    def __init__(
        self, kafka: frozenset[tuple[str, str]], subscription: str, markers_topic: str, cursors_topic: str
    ) -> None:
        config = dict(kafka)
        self._subscription, self._markers_topic = subscription, markers_topic
        self._topics = ClusterAdmin(config, timeout_ms=PATIENCE_MS)
        self._cursors = CursorTable(
            config,
            cursors_topic,
            timeout_ms=PATIENCE_MS,
            markers_topic=markers_topic,
            subscription=subscription,
        )
        #: name of the subscription that no other one has, on any cluster
        self.writer = f"cursorq/{self._topics.cluster_id()}/{markers_topic}/{subscription}"

    def close(self) -> None:
        self._cursors.close()

    def places(self, acks: Iterable[End], topic_ids: Mapping[str, str]) -> OffsetsByPlace:
        """Returns the offsets of acks with the ids of their topics, by default the present ones.

        ``topic_ids`` has the ids as of the batch. After a topic is deleted and created again, the messages of
        the batch are not those of the new topic.
        """
        sets = {one.cell.topic_partition: one.offsets for one in acks}
        ids = dict(topic_ids)
        if unknown := {topic for topic, _ in sets if topic not in ids}:
            ids |= {topic: one.topic_id for topic, one in self._topics.describe(unknown).items()}
        return {Place(topic, ids[topic], partition): offsets for (topic, partition), offsets in sets.items()}

    def ended(self, places: Iterable[Place]) -> OffsetsByPlace:
        """Returns the messages that the tracker has seen acked, dead-lettered or expired."""
        with suppress(TopicNotFound):  # no tracker has worked yet
            self._cursors.refresh()
        return {place: ended for place in places if (ended := self._ended(place))}

    def ended_before(self, places: Iterable[Place]) -> tuple[OffsetsByPlace, Mapping[int, int]]:
        """Returns the messages that have ended, and a position for each partition of the markers topic.

        Every marker below its position is included.
        """
        partitions = self._topics.describe([self._markers_topic])[self._markers_topic].partitions
        begins = self._topics.beginning_offsets([(self._markers_topic, home) for home in range(partitions)])
        positions = {home: begin for (_, home), begin in begins.items()}
        with suppress(TopicNotFound):
            self._cursors.refresh()
            for cell, cursor in self._cursors.of(subscription=self._subscription).items():
                home = cell.control_partition(partitions)
                positions[home] = max(positions[home], cursor.next_marker)
            # The tracker writes the cursors of a batch in one transaction, to several partitions. It becomes
            # visible in one after the other.
            self._cursors.refresh_all(Deadline.after_ms(PATIENCE_MS))
        ended = {}
        for place in places:
            try:
                ended[place] = self._ended_or_raise(place)
            except _UNREADABLE:
                home = self._cell(place).control_partition(partitions)
                positions[home] = begins[self._markers_topic, home]
        return ended, positions

    def _ended(self, place: Place) -> OffsetSet:
        try:
            return self._ended_or_raise(place)
        except _UNREADABLE:
            return EMPTY  # what was written stays in the metadata of the table

    def _ended_or_raise(self, place: Place) -> OffsetSet:
        cursor = self._cursors.get(self._cell(place))
        if cursor is None or cursor.topic_id not in (None, place.topic_id) or not cursor.read_position:
            return EMPTY
        return OffsetSet.of((0, cursor.read_position)) - cursor.outstanding

    def _cell(self, place: Place) -> Cell:
        return Cell(subscription=self._subscription, topic=place.topic, partition=place.partition)


def borrowed_queue_state(options: AckOptions, cursors_topic: str) -> AbstractContextManager[QueueState]:
    """Lend the state of the options' subscription from the pool of this process."""
    kafka = frozenset(client_config(options.kafka, "consumer").items())
    key = kafka, options.subscription, options.markers_topic, cursors_topic
    return _idle.lend(key, lambda: QueueState(*key))


def cursors_topic_of(rows: DataFrame, given: AckOptions | None) -> str:
    """Returns the cursors topic of the options given to a sink, or else of the rows' source."""
    if given is None:
        origin = origin_of(rows.schema)
        assert origin is not None  # checked by options_of_batch
        given = AckOptions.parse(origin.sink_options())
    assert given.cursors_topic is not None
    return given.cursors_topic


def check_exactly_once(sink: str, options: AckOptions) -> None:
    """Refuses options with which a sink cannot write each message once.

    Raises:
        ConflictingOptions
    """
    if options.marker_version is MarkerVersion.V1:
        raise ConflictingOptions(
            (sink, "markerFormat"),
            "with V1 markers, nothing tells which messages have ended",
            "use markerFormat=v2, or AckSink with a MERGE",
        )
    if options.action not in (None, AckAction.ACK):
        raise ConflictingOptions((sink, "action"), "the sink acks what it has written", "leave action out")


def common(ids: OffsetsByPlace, *others: OffsetsByPlace) -> OffsetsByPlace:
    """Returns the messages of ``ids`` that are in any of the others.

    >>> place = Place("orders", "id-1", 0)
    >>> common({place: OffsetSet.of((0, 9))}, {place: OffsetSet.of((0, 2))}, {place: OffsetSet.of((8, 11))})
    {Place(topic='orders', topic_id='id-1', partition=0): OffsetSet.of((0, 2), (8, 9))}
    """
    found = {
        place: offsets & OffsetSet.union([other.get(place, EMPTY) for other in others])
        for place, offsets in ids.items()
    }
    return {place: offsets for place, offsets in found.items() if offsets}


def without(rows: DataFrame, messages: OffsetsByPlace) -> DataFrame:
    """Returns the rows of all other messages."""
    if not messages:
        return rows
    tables = []
    for place, offsets in messages.items():
        numbers = np.asarray(offsets.to_array(), dtype=np.int64)
        count = len(numbers)
        columns: list[Any] = [
            pa.repeat(pa.scalar(place.topic), count),
            pa.repeat(pa.scalar(place.partition, pa.int32()), count),
            pa.array(numbers),
        ]
        tables.append(pa.table(columns, names=list(MESSAGE_ID)))
    listed = rows.sparkSession.createDataFrame(pa.concat_tables(tables))
    return rows.join(F.broadcast(listed), list(MESSAGE_ID), "left_anti")


_idle: ClientPool[QueueState] = ClientPool(QueueState.close, kept=4)
