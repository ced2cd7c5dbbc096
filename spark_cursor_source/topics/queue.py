"""Slices of queue topics as Arrow record batches, with the columns of Spark's own Kafka source."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from enum import Enum
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer

from spark_cursor_source.core.offsets import EMPTY, OffsetSet, OffsetSetBuilder
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.errors import TopicGone
from spark_cursor_source.kafka.collector import collector_paused
from spark_cursor_source.kafka.consumers import borrowed_fastest_consumer
from spark_cursor_source.kafka.native import NativeConsumer
from spark_cursor_source.kafka.range_consumer import (
    COLUMN_BYTES,
    COLUMN_ROWS,
    STALL_TIMEOUT_MS,
    Removed,
    read_columns,
    read_range,
)
from spark_cursor_source.topics.chunks import (
    Array,
    Chunk,
    ColumnChunk,
    MessageChunk,
    Offsets,
    RescuedChunk,
)
from spark_cursor_source.topics.delayed import DelayFilter, EarlyMessages
from spark_cursor_source.topics.key_order import OrderedMessages, OrderFilter
from spark_cursor_source.topics.message_columns import message_schema
from spark_cursor_source.topics.rescue import Rescue

# A seek costs as much as reading this many records, or this many bytes if the records are large.
_SEEK_RECORDS = 4_000
_SEEK_BYTES = 4 << 20

ChunkT = TypeVar("ChunkT", bound=Chunk)
AnyChunkT = TypeVar("AnyChunkT", bound=Chunk)
ChunkT_co = TypeVar("ChunkT_co", bound=Chunk, covariant=True)


class Missing(Enum):
    """Reason why an offset of a slice was not delivered."""

    GAP = "gap"  #: the offset holds no record: a transaction marker, an aborted record or a compacted record
    FILTERED = "filtered"  #: the record has another queue id
    RETENTION = "retention"  #: the record was deleted before it was read
    TOPIC = "topic"  #: the topic was deleted before the record was read


OnMissing = Callable[[Slice, OffsetSet, Missing], None]


def arrow_batches(
    config: Mapping[str, str],
    slices: Sequence[Slice],
    *,
    include_headers: bool,
    queue_id: bytes | None,
    on_missing: OnMissing,
    hold_back: DelayFilter | None = None,
    order: OrderFilter | None = None,
    rescue: Rescue | None = None,
    skips_deleted: bool = False,
    stall_timeout_ms: int = STALL_TIMEOUT_MS,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the slices as record batches, in slice order and in offset order within a slice.

    With a ``queue_id``, only records with that key are delivered. After a slice has been read,
    ``on_missing(slice, offsets, why)`` is called once per reason with the offsets that were not delivered.
    The last rows of the slice may still be pending at that time, but all calls happen before the iterator
    ends. With ``hold_back``, messages that are not due are not delivered and are reported to it in the same
    way. With ``order``, the slices are of one partition and in offset order, and messages that wait behind an
    earlier message of their key are not delivered and are reported to it. With ``rescue``, messages that
    retention has deleted are read from the rescue topic. With ``skips_deleted``, what a deleted topic had is
    missing; else the topic is an error. Raises the errors of ``read_range``, and those of ``rescue``.
    """
    filters = _Filters(hold_back, order)

    def reading_of(read: ReadRange[Chunk], piece: Slice) -> SliceReading[Chunk]:
        return SliceReading(read, piece, queue_id, stall_timeout_ms, rescue, skips_deleted=skips_deleted)

    batches = _batches(config, slices, include_headers, on_missing, filters, reading_of)
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
    on_missing: OnMissing,
    filters: _Filters,
    reading_of: Callable[[ReadRange[Chunk], Slice], SliceReading[Chunk]],
) -> Generator[pa.RecordBatch]:
    rows = _Rows(include_headers)
    deleted: set[str] = set()
    with borrowed_fastest_consumer(config) as consumer:
        read = reader_of(consumer, headers=include_headers or filters.reads_headers)
        for piece in slices:
            if piece.topic in deleted:  # a reader waits for 10 s until it is sure
                on_missing(piece, piece.offsets, Missing.TOPIC)
                continue
            reading = reading_of(read, piece)
            filters.begin(piece)
            for chunk in reading.chunks():
                selected = filters.sift(chunk)
                if len(selected):
                    rows.add(piece, selected)
                if rows.full:
                    yield rows.take()
            for why, offsets_missing in reading.missing():
                on_missing(piece, offsets_missing, why)
            filters.end(piece)
            if reading.is_deleted:
                deleted.add(piece.topic)
    if rows.count:
        yield rows.take()


class _Filters:
    """Filters for messages that are not due, and for those that wait behind another one."""

    def __init__(self, hold_back: DelayFilter | None, order: OrderFilter | None) -> None:
        self._hold_back, self._order = hold_back, order
        self._ordered = None if order is None else OrderedMessages(order.blocked)
        self._early: EarlyMessages | None = None

    @property
    def reads_headers(self) -> bool:
        return self._hold_back is not None

    def begin(self, piece: Slice) -> None:
        if self._hold_back is not None:
            self._early = EarlyMessages(piece, self._hold_back.now_ms)

    def sift(self, chunk: Chunk) -> Chunk:
        if self._early is not None:
            is_due = self._early.due_rows(chunk)
            if is_due is not None:
                if self._ordered is not None:
                    self._ordered.hold(chunk.where(~is_due))
                chunk = chunk.where(is_due)
        return chunk if self._ordered is None else self._ordered.sift(chunk)

    def end(self, piece: Slice) -> None:
        """Reports what was held back of a slice."""
        if self._early is not None and self._hold_back is not None:
            for again_ms, offsets in self._early.held_back():
                self._hold_back.on_early(piece, offsets, again_ms)
        if self._ordered is not None and self._order is not None:
            offsets, behind = self._ordered.take_blocked()
            if offsets:
                self._order.on_blocked(piece, offsets, behind)


class ReadRange(Protocol[ChunkT_co]):
    """Reader of the records of one range, with the parameters of ``read_range``."""

    def __call__(
        self,
        topic: str,
        partition: int,
        start: int,
        stop: int,
        *,
        on_removed: Removed,
        stall_timeout_ms: int,
    ) -> Generator[ChunkT_co]: ...


def reader_of(consumer: Consumer | NativeConsumer, *, headers: bool) -> ReadRange[Chunk]:
    """Return the reader of ranges with this consumer. A native one reads headers only if told to."""
    if isinstance(consumer, NativeConsumer):
        native = consumer

        def columns(*where: Any, **how: Any) -> Generator[Chunk]:
            with closing(read_columns(native, *where, headers=headers, **how)) as reading:
                yield from map(ColumnChunk, reading)

        return columns
    return message_reader(consumer)


def message_reader(consumer: Consumer) -> ReadRange[MessageChunk]:
    """Return the reader of ranges that yields messages."""

    def messages(*where: Any, **how: Any) -> Generator[MessageChunk]:
        with closing(read_range(consumer, *where, **how)) as reading:
            yield from map(MessageChunk, reading)

    return messages


class SliceReading(Generic[ChunkT]):
    """Reader of the messages of one slice. It records which offsets are missing."""

    def __init__(
        self,
        read: ReadRange[ChunkT],
        piece: Slice,
        queue_id: bytes | None,
        stall_timeout_ms: int,
        rescue: Rescue | None = None,
        *,
        skips_deleted: bool = False,
    ) -> None:
        self._rescue, self._skips_deleted = rescue, skips_deleted
        self.is_deleted = False  #: True if the topic was deleted before the slice was read to its end
        self._looked_up = 0  # number of removed ranges that were looked up in the rescue topic
        self._no_message = EMPTY  # removed offsets that the rescue topic knows to hold no message
        self._read, self._slice, self._queue_id = read, piece, queue_id
        self._stall_timeout_ms = stall_timeout_ms
        self._ranges = piece.offsets.ranges
        self._wanted: Offsets | None = None
        if len(self._ranges) > 1:
            self._wanted = np.frombuffer(piece.offsets.to_array(), np.uint64).astype(np.int64)
        self._seen = OffsetSetBuilder()
        self._filtered = OffsetSetBuilder()
        self._removed: list[tuple[int, int]] = []
        # gaps of up to this many offsets are read through instead of skipped by a seek
        self._reach = _SEEK_RECORDS

    def chunks(self) -> Iterator[ChunkT | RescuedChunk]:
        """Yield the messages, without empty chunks."""
        try:
            yield from self._chunks()
        except TopicGone as gone:
            if not self._skips_deleted or gone.topic != self._slice.topic:
                raise
            self.is_deleted = True

    def _chunks(self) -> Iterator[ChunkT | RescuedChunk]:
        position = self._slice.offsets.first
        while position is not None:
            start, stop = self._run_from(position)
            position = self._next_wanted(stop)
            reading = self._read(
                self._slice.topic,
                self._slice.partition,
                start,
                stop,
                on_removed=lambda first, past: self._removed.append((first, past)),
                stall_timeout_ms=self._stall_timeout_ms,
            )
            with closing(reading):
                for chunk in reading:
                    yield from self._rescued()
                    self._reach = min(_SEEK_RECORDS, _SEEK_BYTES // (chunk.mean_bytes + 1))
                    past = int(chunk.offsets[-1]) + 1
                    selected = self._select(chunk)
                    if len(selected):
                        yield selected
                    following = self._next_wanted(past)
                    if following is not None and following - past > self._reach:
                        position = following  # the messages are larger than estimated, so a seek is cheaper
                        break
            yield from self._rescued()

    def _rescued(self) -> Iterator[RescuedChunk]:
        """Yield the copies of messages that were removed since the last call."""
        while self._rescue is not None and self._looked_up < len(self._removed):
            removed = OffsetSet.of(self._removed[self._looked_up]) & self._slice.offsets
            self._looked_up += 1
            place = self._slice.topic, self._slice.partition
            for messages in self._rescue.messages(*place, removed):
                selected = self._select(RescuedChunk(messages))
                if len(selected):
                    yield selected
            if missing := removed - self._seen.whole():
                self._no_message |= self._rescue.without_message(*place, missing)

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

    def _select(self, chunk: AnyChunkT) -> AnyChunkT:
        """Select the messages that belong to the slice and to the queue."""
        if self._wanted is not None:
            places = np.searchsorted(self._wanted, chunk.offsets)
            places[places == len(self._wanted)] = 0
            chunk = chunk.where(self._wanted[places] == chunk.offsets)
        self._seen.add(_runs(chunk.offsets))
        if self._queue_id is not None:
            ours = chunk.of_queue(self._queue_id)
            self._filtered.add(_runs(chunk.offsets[~ours]))
            chunk = chunk.where(ours)
        if (share := self._slice.share) is not None:
            chunk = chunk.where(chunk.of_share(share))
        return chunk

    def missing(self) -> Iterator[tuple[Missing, OffsetSet]]:
        """Yield the offsets that were not delivered, by reason. Complete after all messages have been read.

        If several tasks share the keys of a slice, only the first task reports.
        """
        if self._slice.share is not None and self._slice.share.index:
            return
        wanted = self._slice.offsets
        seen = self._seen.whole()
        removed = (OffsetSet.of(*self._removed) & wanted) - seen - self._no_message
        filtered = self._filtered.whole()
        others = Missing.TOPIC if self.is_deleted else Missing.GAP, wanted - seen - removed
        for why, offsets in ((Missing.RETENTION, removed), (Missing.FILTERED, filtered), others):
            if offsets:
                yield why, offsets


class _Rows:
    """Buffer of rows for a record batch. Fewer and larger batches cost less."""

    def __init__(self, include_headers: bool) -> None:
        self._include_headers = include_headers
        self._schema = message_schema(include_headers=include_headers)
        self._chunks: list[list[Array]] = []
        self._pieces: list[tuple[Slice, int]] = []  # (slice, number of rows) in row order
        self._bytes = 0
        self.count = 0

    @property
    def full(self) -> bool:
        return self.count >= COLUMN_ROWS or self._bytes >= COLUMN_BYTES

    def add(self, piece: Slice, chunk: Chunk) -> None:
        columns = chunk.columns(include_headers=self._include_headers)
        self._chunks.append(columns)
        if self._pieces and self._pieces[-1][0] is piece:
            self._pieces[-1] = (piece, self._pieces[-1][1] + len(chunk))
        else:
            self._pieces.append((piece, len(chunk)))
        self._bytes += columns[0].nbytes + columns[1].nbytes
        self.count += len(chunk)

    def take(self) -> pa.RecordBatch:
        chunks, pieces = self._chunks, self._pieces
        self._chunks, self._pieces, self._bytes, self.count = [], [], 0, 0
        columns = chunks[0] if len(chunks) == 1 else list(map(pa.concat_arrays, zip(*chunks, strict=True)))
        columns[2:2] = [
            _repeated([(piece.topic, count) for piece, count in pieces], pa.string()),
            _repeated([(piece.partition, count) for piece, count in pieces], pa.int32()),
        ]
        columns.append(_repeated([(piece.delivery_count, count) for piece, count in pieces], pa.int32()))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _repeated(runs: Sequence[tuple[object, int]], kind: Array) -> Array:
    return pa.concat_arrays([pa.repeat(pa.scalar(value, kind), count) for value, count in runs])


def _runs(offsets: Offsets) -> Iterator[tuple[int, int]]:
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
