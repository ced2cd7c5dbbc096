"""Slices of queue topics as Arrow record batches, with the columns of Spark's own Kafka source."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from enum import Enum
from itertools import compress
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Consumer, Message

from spark_cursor_source.core.offsets import OffsetSet, OffsetSetBuilder
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.kafka.collector import collector_paused
from spark_cursor_source.kafka.consumers import borrowed_consumer
from spark_cursor_source.kafka.range_consumer import STALL_TIMEOUT_MS, read_range
from spark_cursor_source.kafka.reading import offset_of
from spark_cursor_source.topics.delayed import DelayFilter, EarlyMessages

# Spark schema of the batches, all columns nullable:
#   key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,
#   timestampType INT, [headers ARRAY<STRUCT<key: STRING, value: BINARY>>,] delivery_count INT
_HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
_TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS_FIELD = pa.field("headers", _HEADERS)
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIMESTAMP),
        ("timestampType", pa.int32()),
        ("delivery_count", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS = SCHEMA.insert(len(SCHEMA) - 1, HEADERS_FIELD)

_BATCH_ROWS = 16_000
_BATCH_BYTES = 8 << 20
# A seek costs as much as reading this many records, or this many bytes if the records are large.
_SEEK_RECORDS = 4_000
_SEEK_BYTES = 4 << 20

_Array = Any  # pyarrow has no type annotations
_Offsets = npt.NDArray[np.int64]


class Missing(Enum):
    """Reason why an offset of a slice was not delivered."""

    GAP = "gap"  #: the offset holds no record: a transaction marker, an aborted record or a compacted record
    FILTERED = "filtered"  #: the record has another queue id
    RETENTION = "retention"  #: the record was deleted before it was read


OnMissing = Callable[[Slice, OffsetSet, Missing], None]


def arrow_schema(*, include_headers: bool) -> pa.Schema:
    """Return the schema of the batches. It equals pyspark's conversion of the Spark schema above, in UTC."""
    return SCHEMA_WITH_HEADERS if include_headers else SCHEMA


def arrow_batches(
    config: Mapping[str, str],
    slices: Sequence[Slice],
    *,
    include_headers: bool,
    queue_id: bytes | None,
    on_missing: OnMissing,
    hold_back: DelayFilter | None = None,
    stall_timeout_ms: int = STALL_TIMEOUT_MS,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the slices as record batches, in slice order and in offset order within a slice.

    With a ``queue_id``, only records with that key are delivered. After a slice has been read,
    ``on_missing(slice, offsets, why)`` is called once per reason with the offsets that were not delivered.
    The last rows of the slice may still be pending at that time, but all calls happen before the iterator
    ends. With ``hold_back``, messages that are not due are not delivered and are reported to it in the same
    way. Raises the errors of ``read_range``.
    """
    batches = _batches(config, slices, include_headers, queue_id, on_missing, hold_back, stall_timeout_ms)
    with closing(batches):
        while True:
            with collector_paused():
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


def _batches(
    config: Mapping[str, str],
    slices: Sequence[Slice],
    include_headers: bool,
    queue_id: bytes | None,
    on_missing: OnMissing,
    hold_back: DelayFilter | None,
    stall_timeout_ms: int,
) -> Generator[pa.RecordBatch]:
    rows = _Rows(include_headers)
    with borrowed_consumer(config) as consumer:
        for piece in slices:
            reading = SliceReading(consumer, piece, queue_id, stall_timeout_ms)
            early = None if hold_back is None else EarlyMessages(piece, hold_back.now_ms)
            for messages, offsets in reading.messages():
                if early is not None:
                    messages, offsets = early.sift(messages, offsets)
                if messages:
                    rows.add(piece, messages, offsets)
                if rows.full:
                    yield rows.take()
            for why, offsets_missing in reading.missing():
                on_missing(piece, offsets_missing, why)
            if early is not None and hold_back is not None:
                for again_ms, offsets_early in early.held_back():
                    hold_back.on_early(piece, offsets_early, again_ms)
    if rows.count:
        yield rows.take()


class SliceReading:
    """Reader of the messages of one slice. It records which offsets are missing."""

    def __init__(
        self, consumer: Consumer, piece: Slice, queue_id: bytes | None, stall_timeout_ms: int
    ) -> None:
        self._consumer, self._slice, self._queue_id = consumer, piece, queue_id
        self._stall_timeout_ms = stall_timeout_ms
        self._ranges = piece.offsets.ranges
        self._wanted: _Offsets | None = None
        if len(self._ranges) > 1:
            self._wanted = np.frombuffer(piece.offsets.to_array(), np.uint64).astype(np.int64)
        self._seen = OffsetSetBuilder()
        self._filtered = OffsetSetBuilder()
        self._removed: list[tuple[int, int]] = []
        # gaps of up to this many offsets are read through instead of skipped by a seek
        self._reach = _SEEK_RECORDS

    def messages(self) -> Iterator[tuple[list[Message], _Offsets]]:
        position = self._slice.offsets.first
        while position is not None:
            start, stop = self._run_from(position)
            position = self._next_wanted(stop)
            reading = read_range(
                self._consumer,
                self._slice.topic,
                self._slice.partition,
                start,
                stop,
                on_removed=lambda first, past: self._removed.append((first, past)),
                stall_timeout_ms=self._stall_timeout_ms,
            )
            with closing(reading):
                for messages in reading:
                    selected = self._select(messages)
                    if selected[0]:
                        yield selected
                    self._reach = _reach(messages)
                    past = offset_of(messages[-1]) + 1
                    following = self._next_wanted(past)
                    if following is not None and following - past > self._reach:
                        position = following  # the messages are larger than estimated, so a seek is cheaper
                        break

    def _run_from(self, position: int) -> tuple[int, int]:
        """Return start and stop of the next read.

        Ranges with small gaps between them are read in one pass.
        """
        index = bisect_right(self._ranges, position, key=itemgetter(1))
        start = max(position, self._ranges[index][0])
        while index + 1 < len(self._ranges) and self._gap_after(index) <= self._reach:
            index += 1
        return start, self._ranges[index][1]

    def _gap_after(self, index: int) -> int:
        return self._ranges[index + 1][0] - self._ranges[index][1]

    def _next_wanted(self, position: int) -> int | None:
        index = bisect_right(self._ranges, position, key=itemgetter(1))
        return max(position, self._ranges[index][0]) if index < len(self._ranges) else None

    def _select(self, messages: list[Message]) -> tuple[list[Message], _Offsets]:
        """Select the messages that belong to the slice and to the queue."""
        offsets = _offsets(messages)
        if self._wanted is not None:
            places = np.searchsorted(self._wanted, offsets)
            places[places == len(self._wanted)] = 0
            messages, offsets = _masked(messages, offsets, self._wanted[places] == offsets)
        self._seen.add(_runs(offsets))
        if self._queue_id is not None:
            queue_id = self._queue_id
            ours = np.fromiter((key == queue_id for key in map(Message.key, messages)), bool, len(messages))
            if not ours.all():
                self._filtered.add(_runs(offsets[~ours]))
                messages, offsets = _masked(messages, offsets, ours)
        if (share := self._slice.share) is not None:
            ours = np.fromiter(map(share.takes, map(Message.key, messages)), bool, len(messages))
            messages, offsets = _masked(messages, offsets, ours)
        return messages, offsets

    def missing(self) -> Iterator[tuple[Missing, OffsetSet]]:
        """Yield the offsets that were not delivered, by reason. Complete after all messages have been read.

        If several tasks share the keys of a slice, only the first task reports.
        """
        if self._slice.share is not None and self._slice.share.index:
            return
        wanted = self._slice.offsets
        removed = OffsetSet.of(*self._removed) & wanted
        filtered = self._filtered.whole()
        gaps = wanted - self._seen.whole() - removed
        for why, offsets in ((Missing.RETENTION, removed), (Missing.FILTERED, filtered), (Missing.GAP, gaps)):
            if offsets:
                yield why, offsets


class _Rows:
    """Buffer of rows for a record batch. Fewer and larger batches cost less."""

    def __init__(self, include_headers: bool) -> None:
        self._include_headers = include_headers
        self._schema = arrow_schema(include_headers=include_headers)
        self._chunks: list[list[_Array]] = []
        self._pieces: list[tuple[Slice, int]] = []  # (slice, number of rows) in row order
        self._bytes = 0
        self.count = 0

    @property
    def full(self) -> bool:
        return self.count >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES

    def add(self, piece: Slice, messages: list[Message], offsets: _Offsets) -> None:
        keys = pa.array(list(map(Message.key, messages)), pa.binary())
        values = pa.array(list(map(Message.value, messages)), pa.binary())
        types, times_ms = zip(*map(Message.timestamp, messages), strict=True)
        chunk = [
            keys,
            values,
            pa.array(offsets, pa.int64()),
            pa.array(np.array(times_ms, np.int64) * 1000, _TIMESTAMP),
            _timestamp_types(types),
        ]
        if self._include_headers:
            chunk.append(pa.array([one or None for one in map(Message.headers, messages)], _HEADERS))
        self._chunks.append(chunk)
        if self._pieces and self._pieces[-1][0] is piece:
            self._pieces[-1] = (piece, self._pieces[-1][1] + len(messages))
        else:
            self._pieces.append((piece, len(messages)))
        self._bytes += keys.nbytes + values.nbytes
        self.count += len(messages)

    def take(self) -> pa.RecordBatch:
        chunks, pieces = self._chunks, self._pieces
        self._chunks, self._pieces, self._bytes, self.count = [], [], 0, 0
        columns = [pa.concat_arrays(parts) for parts in zip(*chunks, strict=True)]
        columns[2:2] = [
            _repeated([(piece.topic, count) for piece, count in pieces], pa.string()),
            _repeated([(piece.partition, count) for piece, count in pieces], pa.int32()),
        ]
        columns.append(_repeated([(piece.delivery_count, count) for piece, count in pieces], pa.int32()))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _repeated(runs: Sequence[tuple[object, int]], kind: _Array) -> _Array:
    return pa.concat_arrays([pa.repeat(pa.scalar(value, kind), count) for value, count in runs])


def _timestamp_types(types: tuple[int, ...]) -> _Array:
    """Convert timestamp types: librdkafka counts from 0 (none), Spark from -1."""
    if types.count(types[0]) == len(types):
        return pa.repeat(pa.scalar(types[0] - 1, pa.int32()), len(types))
    return pa.array(np.array(types, np.int32) - 1, pa.int32())


def _reach(messages: list[Message]) -> int:
    sample = messages[::16]
    mean_bytes = sum(map(len, sample)) // len(sample)
    return min(_SEEK_RECORDS, _SEEK_BYTES // (mean_bytes + 1))


def _offsets(messages: list[Message]) -> _Offsets:
    first, last = offset_of(messages[0]), offset_of(messages[-1])
    if last - first == len(messages) - 1:  # offsets are ascending, so they are contiguous
        return np.arange(first, last + 1, dtype=np.int64)
    return np.fromiter(map(Message.offset, messages), np.int64, len(messages))


def _masked(
    messages: list[Message], offsets: _Offsets, mask: npt.NDArray[np.bool_]
) -> tuple[list[Message], _Offsets]:
    if mask.all():
        return messages, offsets
    return list(compress(messages, mask.tolist())), offsets[mask]


def _runs(offsets: _Offsets) -> Iterator[tuple[int, int]]:
    """Yield ascending offsets as half-open ranges."""
    if not len(offsets):
        return
    if offsets[-1] - offsets[0] == len(offsets) - 1:
        yield int(offsets[0]), int(offsets[-1]) + 1
        return
    breaks = np.flatnonzero(np.diff(offsets) != 1) + 1
    starts = offsets[np.concatenate(([0], breaks))]
    stops = offsets[np.concatenate((breaks - 1, [-1]))] + 1
    yield from zip(starts.tolist(), stops.tolist(), strict=True)
