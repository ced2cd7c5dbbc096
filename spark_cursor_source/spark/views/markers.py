"""The view ``markers``: the decoded records of the markers topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_cursor_source.core.marker import KINDS, End, KeepAlive, Marker, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.errors import (
    InvalidMarker,
    NotAuthorized,
    TopicNotFound,
    UnknownQueueTopic,
    UnknownSubscription,
)
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.consumers import borrowed_consumer
from spark_cursor_source.kafka.range_consumer import read_range
from spark_cursor_source.options.topics import Assign
from spark_cursor_source.options.view import ViewOptions
from spark_cursor_source.spark.views.columns import OFFSETS, RANGES, rows_batch
from spark_cursor_source.spark.views.ranges import RangeOfLog, check_names, reader_config, shows, whole_topics
from spark_cursor_source.topics.message_columns import Columns
from spark_cursor_source.wire import marker as wire

COLUMNS: Columns = {
    "marker_partition": "INT",
    "marker_offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "version": "INT",
    "type": "STRING",
    "subscription": "STRING",
    "topic": "STRING",
    "partition": "INT",
    "offsets": RANGES,
    "messages": "BIGINT",
    "delivery_count": "INT",
    "lease_ms": "BIGINT",
    "delay_ms": "BIGINT",
    "reason": "STRING",
    "run_id": "STRING",
    "position": "BIGINT",
    "due": "TIMESTAMP",
    "behind": OFFSETS,
    "error": "STRING",
}
_TOPIC, _OFFSETS, _ERROR = (list(COLUMNS).index(name) for name in ("topic", "offsets", "error"))
_WHY = ("trouble", "reason", "trip")  # the column reason shows the first of these attributes
_ROWS = 2_000
_RANGES_PER_BATCH = 500_000


class MarkersReader(DataSourceReader):
    """``view=markers``: the retained records of the markers topic, decoded.

    The view shows markers of the given subscription and topics, or all. Quarantined markers are always
    shown::

        marker_partition INT, marker_offset BIGINT   position of the marker in the markers topic
        timestamp        TIMESTAMP  broker time of the marker
        version          INT        1: kafka-mq-go, for one message; 2: for a set of messages
        type             STRING     START, END, KEEPALIVE, RELEASE, REJECT, END_UP_TO, SEEK, HELLO,
                                    RESUME, HOLD, LOG_END, DELETE, WITHHOLD, END_LEASED, LEAVE,
                                    PAUSE, END_PAUSE, REQUEUE, MEMBER_LOST, SAVE,
                                    RESTORE, FORGET, BLOCK, LIMITS
        subscription     STRING     in version 1: the queue id
        topic            STRING     null in version 1, whose markers have no topic
        partition        INT
        offsets          ARRAY<STRUCT<start: BIGINT, stop: BIGINT>>   offsets of the messages, half-open
        messages         BIGINT     number of messages
        delivery_count   INT        the delivery that the marker starts or settles
        lease_ms, delay_ms BIGINT, run_id STRING
        reason           STRING     reason of RELEASE and REJECT; trip of HOLD; error of WITHHOLD: why the
                                    dead letters could not be written
        position         BIGINT     next offset of END_UP_TO, SEEK, HELLO and LOG_END
        due              TIMESTAMP  due time of a RELEASE of delayed messages that were not delivered
        behind           ARRAY<BIGINT>   of BLOCK: for each of the offsets in order, the offset of the message
                                    that it waits for
        error            STRING     why the marker is in quarantine; then the other columns from version
                                    on are null

    If a given subscription or topic has neither a cursor nor a marker, the read fails with an error that
    lists the existing names.
    """

    def __init__(self, options: ViewOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        topics = ClusterAdmin(client_config(self._options.kafka, "admin")).meet()
        name = self._options.markers_topic
        if not topics.existing([name]):
            raise TopicNotFound((name,))
        pieces = whole_topics([name], self._options, topics)
        self._check_names(topics, pieces)
        return [RangeOfLog(one) for one in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangeOfLog):
            return
        rows, ranges = list[Sequence[Any]](), 0
        for row in self._rows(partition.slice):
            rows.append(row)
            ranges += 0 if row[_OFFSETS] is None else row[_OFFSETS].count_ranges()
            if len(rows) >= _ROWS or ranges >= _RANGES_PER_BATCH:
                yield rows_batch(COLUMNS, rows)
                rows, ranges = [], 0
        if rows:
            yield rows_batch(COLUMNS, rows)

    def _check_names(self, topics: ClusterAdmin, pieces: Iterable[Slice]) -> None:
        """Refuses names without a cursor or marker. A deleted subscription has markers but no cursor.

        Queues of kafka-mq-go have no cursors. Without the right to read the cursors, all names are accepted.
        """
        options = self._options
        if options.subscription is None and options.topics is None:
            return
        try:
            if topics.existing([options.cursors_topic]):
                check_names(options)
        except NotAuthorized:
            return
        except (UnknownSubscription, UnknownQueueTopic):
            # Only a name without a cursor needs this scan of the markers, up to the first match.
            if not any(self._bears_the_names(row) for piece in pieces for row in self._rows(piece)):
                raise

    def _bears_the_names(self, row: Sequence[Any]) -> bool:
        """True if a selected row proves that the names exist. Quarantined and some V1 rows do not."""
        return row[_ERROR] is None and (self._options.topics is None or row[_TOPIC] is not None)

    def _rows(self, piece: Slice) -> Iterator[Sequence[Any]]:
        """Yields the rows of the markers that the options select."""
        ((start, stop),) = piece.offsets.ranges
        with borrowed_consumer(reader_config(self._options)) as consumer:
            for messages in read_range(
                consumer, piece.topic, piece.partition, start, stop, on_removed=lambda first, past: None
            ):
                for message in messages:
                    said = self._row(message.key(), message.value())
                    if said is not None:
                        yield (piece.partition, message.offset(), message.timestamp()[1], *said)

    def _row(self, key: bytes | None, value: bytes | None) -> Sequence[Any] | None:
        """Returns the columns after the timestamp, or None if the options do not select the marker."""
        try:
            marker = wire.decode(key, value)
        except InvalidMarker as why:
            return (*[None] * (len(COLUMNS) - 4), str(why))
        if isinstance(marker, wire.MarkerV1):
            return (1, *_columns_of_v1(marker)) if self._shows_v1(marker) else None
        return (2, *_columns_of(marker)) if shows(self._options, marker.cell) else None

    def _shows_v1(self, marker: wire.MarkerV1) -> bool:
        topics = self._options.topics
        if isinstance(topics, Assign) and all(number != marker.partition for _, number in topics.partitions):
            return False
        return self._options.subscription in (None, _queue_id(marker))


def _queue_id(marker: wire.MarkerV1) -> str:
    return marker.queue_id.decode(errors="replace")


def _columns_of_v1(marker: wire.MarkerV1) -> Sequence[Any]:
    """Returns the columns of a V1 marker. The queue id is shown as subscription; the topic is null."""
    types = wire.MarkerType
    kind = {types.START: Start, types.END: End, types.KEEP_ALIVE: KeepAlive}[marker.type]
    lease_ms = None if kind is End else marker.redeliver_after_ms
    offsets = OffsetSet.of((marker.offset, marker.offset + 1))
    known = (KINDS[kind], _queue_id(marker), None, marker.partition, offsets, 1, None, lease_ms)
    return (*known, *[None] * (len(COLUMNS) - 4 - len(known)))


def _columns_of(marker: Marker) -> Sequence[Any]:
    offsets = getattr(marker, "offsets", None)
    return (
        KINDS[type(marker)],
        marker.cell.subscription,
        marker.cell.topic or None,
        marker.cell.partition,
        offsets,
        None if offsets is None else len(offsets),
        getattr(marker, "delivery_count", None),
        getattr(marker, "lease_ms", None),
        getattr(marker, "delay_ms", None),
        next((why for name in _WHY if (why := getattr(marker, name, None))), None),
        getattr(marker, "run_id", None),
        getattr(marker, "position", None),
        getattr(marker, "due_ms", None),
        getattr(marker, "behind", None),
        None,
    )
