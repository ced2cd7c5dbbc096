"""The view ``markers``: what happened to which messages, as it was written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_cursor_source.core.marker import (
    CloseBreaker,
    Delete,
    End,
    EndOffsetObserved,
    EndUpTo,
    Hello,
    KeepAlive,
    Marker,
    OpenBreaker,
    Reject,
    Release,
    Seek,
    Start,
    Withhold,
)
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
from spark_cursor_source.spark.views.columns import RANGES, Columns, rows_batch
from spark_cursor_source.spark.views.ranges import RangeOfLog, check_names, reader_config, shows, whole_topics
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
    "error": "STRING",
}
_TOPIC, _OFFSETS, _ERROR = (list(COLUMNS).index(name) for name in ("topic", "offsets", "error"))
_WHY = ("trouble", "reason", "trip")  # the first that a marker has
_ROWS = 2_000
_RANGES_PER_BATCH = 500_000
_TYPES: dict[type[Any], str] = {
    Start: "START",
    End: "END",
    KeepAlive: "KEEPALIVE",
    Release: "RELEASE",
    Reject: "REJECT",
    EndUpTo: "END_UP_TO",
    Seek: "SEEK",
    Hello: "HELLO",
    CloseBreaker: "RESUME",
    OpenBreaker: "HOLD",
    EndOffsetObserved: "LOG_END",
    Delete: "DELETE",
    Withhold: "WITHHOLD",
}


class MarkersReader(DataSourceReader):
    """``view=markers``: the records of the markers topic that are left, decoded.

    Of the given subscription and topics, or of all; what the tracker puts in quarantine is always shown::

        marker_partition INT, marker_offset BIGINT   where the marker is in the markers topic
        timestamp        TIMESTAMP  when the broker wrote it
        version          INT        1: of kafka-mq-go, for one message; 2: for a set of them
        type             STRING     START, END, KEEPALIVE, RELEASE, REJECT, END_UP_TO, SEEK, HELLO,
                                    RESUME, HOLD, LOG_END, DELETE, WITHHOLD
        subscription     STRING     of version 1: its queue id
        topic            STRING     null in version 1, which does not say
        partition        INT
        offsets          ARRAY<STRUCT<start: BIGINT, stop: BIGINT>>   of the messages, half-open ranges
        messages         BIGINT     how many they are
        delivery_count   INT        the delivery that it is, or is for
        lease_ms, delay_ms BIGINT, run_id STRING
        reason           STRING     of RELEASE and REJECT; of HOLD: the trip; of WITHHOLD: why the dead
                                    letters could not be written
        position         BIGINT     of END_UP_TO, SEEK, HELLO and LOG_END: the next offset
        due              TIMESTAMP  of a RELEASE of messages that were not due, and not delivered
        error            STRING     why it is in quarantine; then all that it would say is null

    A subscription or topic that has neither a cursor nor a marker is an error that names those there are.
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
        """Refuse names that no cursor has, unless a marker has them: a subscription may have been deleted.

        Queues of kafka-mq-go have no cursors. Where nobody may read the cursors, nothing is refused.
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
            # All markers are read up to the first that has the name; only a name without a cursor costs that.
            if not any(self._bears_the_names(row) for piece in pieces for row in self._rows(piece)):
                raise

    def _bears_the_names(self, row: Sequence[Any]) -> bool:
        """Whether a row that is shown says that it is of the subscription and topics; some say no topic."""
        return row[_ERROR] is None and (self._options.topics is None or row[_TOPIC] is not None)

    def _rows(self, piece: Slice) -> Iterator[Sequence[Any]]:
        """The rows of the markers that the options select."""
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
        """The columns after the timestamp; None where the options select others."""
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
    """Its queue id stands for the subscription; its topic it does not know."""
    kind = {wire.START: Start, wire.END: End, wire.KEEPALIVE: KeepAlive}[marker.type]
    lease_ms = None if kind is End else marker.redeliver_after_ms
    offsets = OffsetSet.of((marker.offset, marker.offset + 1))
    known = (_TYPES[kind], _queue_id(marker), None, marker.partition, offsets, 1, None, lease_ms)
    return (*known, *[None] * (len(COLUMNS) - 4 - len(known)))


def _columns_of(marker: Marker) -> Sequence[Any]:
    offsets = getattr(marker, "offsets", None)
    return (
        _TYPES[type(marker)],
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
        None,
    )
