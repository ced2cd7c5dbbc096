"""Chunks of records of one partition on their way to Arrow: messages, or columns already."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from itertools import compress
from operator import methodcaller
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from spark_cursor_source.core.slices import KeyShare
from spark_cursor_source.kafka.record_headers import Headers, all_headers, headers_of
from spark_cursor_source.topics.message_columns import ARROW_TYPES, HEADERS

Array = Any  # pyarrow has no type annotations
Offsets = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Chunk(ABC):
    """One or more records in the order of their offsets."""

    offsets: Offsets

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    @abstractmethod
    def mean_bytes(self) -> int:
        """Mean size of a record, estimated."""

    @abstractmethod
    def where(self, mask: Mask) -> Self:
        """Return the records where the mask is true, maybe none."""

    @abstractmethod
    def of_queue(self, queue_id: bytes) -> Mask:
        """Return True for each record with this key."""

    @abstractmethod
    def keys(self) -> list[bytes | None]:
        """Return the key of each record."""

    def of_share(self, share: KeyShare) -> Mask:
        """Return True for each record whose key belongs to the share."""
        return np.fromiter(map(share.takes, self.keys()), np.bool_, len(self))

    @abstractmethod
    def with_headers(self, names: Collection[str]) -> Iterator[tuple[int, Headers, int | None]]:
        """Yield index, headers and timestamp (ms) of each record that has a header of one of these names."""

    @abstractmethod
    def columns(self, *, include_headers: bool) -> list[Array]:
        """Return the arrays key, value, offset, timestamp, timestampType and, if included, headers."""


class MessageChunk(Chunk):
    """Chunk of messages of confluent-kafka."""

    # A map of an unbound method runs no Python code for a message.
    _key: Any = staticmethod(Message.key)
    _value: Any = staticmethod(Message.value)
    _offset: Any = staticmethod(Message.offset)
    _timestamp: Any = staticmethod(Message.timestamp)
    _all_headers: Any = staticmethod(all_headers)

    def __init__(self, messages: list[Any], offsets: Offsets | None = None) -> None:
        self.messages = messages
        self.offsets = self._offsets() if offsets is None else offsets

    @property
    def mean_bytes(self) -> int:
        sample = self.messages[::16]
        return sum(map(len, sample)) // len(sample)

    def where(self, mask: Mask) -> Self:
        if mask.all():
            return self
        return type(self)(list(compress(self.messages, mask.tolist())), self.offsets[mask])

    def of_queue(self, queue_id: bytes) -> Mask:
        keys = map(self._key, self.messages)
        return np.fromiter((key == queue_id for key in keys), np.bool_, len(self))

    def keys(self) -> list[bytes | None]:
        return list(map(self._key, self.messages))

    def with_headers(self, names: Collection[str]) -> Iterator[tuple[int, Headers, int | None]]:
        given = self._all_headers(self.messages)
        # Two checks without a call per message. Topics without headers only pay for the first one.
        if not any(given):
            return
        wanted = frozenset(names)
        if wanted.isdisjoint([name for headers in given if headers for name, _ in headers]):
            return
        for index, headers in enumerate(given):
            if headers and not wanted.isdisjoint([name for name, _ in headers]):
                kind, timestamp_ms = self.messages[index].timestamp()
                yield index, headers, None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms

    def columns(self, *, include_headers: bool) -> list[Array]:
        messages = self.messages
        types, times_ms = zip(*map(self._timestamp, messages), strict=True)
        arrays = [
            pa.array(list(map(self._key, messages)), pa.binary()),
            pa.array(list(map(self._value, messages)), pa.binary()),
            pa.array(self.offsets, pa.int64()),
            pa.array(np.array(times_ms, np.int64) * 1000, ARROW_TYPES["TIMESTAMP"]),
            _timestamp_types(types),
        ]
        if include_headers:
            arrays.append(
                pa.array([one or None for one in self._all_headers(messages)], ARROW_TYPES[HEADERS])
            )
        return arrays

    def _offsets(self) -> Offsets:
        messages = self.messages
        first, last = messages[0].offset(), messages[-1].offset()
        if last - first == len(messages) - 1:  # offsets are ascending, so they are contiguous
            return np.arange(first, last + 1, dtype=np.int64)
        return np.fromiter(map(self._offset, messages), np.int64, len(messages))


class RescuedChunk(MessageChunk):
    """Chunk of messages from the rescue topic, alone or among messages of confluent-kafka."""

    _key = methodcaller("key")
    _value = methodcaller("value")
    _offset = methodcaller("offset")
    _timestamp = methodcaller("timestamp")

    @staticmethod
    def _all_headers(messages: Iterable[Any]) -> list[Headers]:
        return list(map(headers_of, messages))


class ColumnChunk(Chunk):
    """Chunk of columns of the native module."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self.offsets = batch.column("offset").to_numpy()

    @property
    def mean_bytes(self) -> int:
        return int(self._batch.nbytes) // len(self)

    def where(self, mask: Mask) -> Self:
        return self if mask.all() else type(self)(self._batch.filter(pa.array(mask)))

    def of_queue(self, queue_id: bytes) -> Mask:
        ours = pc.equal(self._batch.column("key"), pa.scalar(queue_id, pa.binary()))
        return _as_mask(ours.fill_null(False))

    def keys(self) -> list[bytes | None]:
        keys = self._batch.column("key").cast(pa.large_binary()).to_numpy(zero_copy_only=False)
        found: list[bytes | None] = keys.tolist()
        return found

    def with_headers(self, names: Collection[str]) -> Iterator[tuple[int, Headers, int | None]]:
        column = self._batch.column("headers")
        if column.null_count == len(column):
            return
        wanted = pc.is_in(column.flatten().field(0), value_set=pa.array(list(names), pa.string()))
        rows = np.unique(pc.list_parent_indices(column).filter(wanted).to_numpy())
        if not len(rows):
            return
        some = self._batch.take(pa.array(rows))
        pairs = some.column("headers").flatten()
        headers = list(zip(*(pairs.field(number).to_pylist() for number in (0, 1)), strict=True))
        ends = np.cumsum(some.column("headers").value_lengths().to_numpy()).tolist()
        times_us = some.column("timestamp").cast(pa.int64()).to_pylist()
        kinds = some.column("timestampType").to_pylist()
        first = 0
        for index, end, time_us, kind in zip(rows.tolist(), ends, times_us, kinds, strict=True):
            yield index, headers[first:end], None if kind < 0 else time_us // 1000
            first = end

    def columns(self, *, include_headers: bool) -> list[Array]:
        return list(self._batch.columns) if include_headers else list(self._batch.columns[:5])


def _as_mask(booleans: Array) -> Mask:
    mask: Mask = booleans.to_numpy(zero_copy_only=False)
    return mask


def _timestamp_types(types: tuple[int, ...]) -> Array:
    """Convert timestamp types: librdkafka counts from 0 (none), Spark from -1."""
    if types.count(types[0]) == len(types):
        return pa.repeat(pa.scalar(types[0] - 1, pa.int32()), len(types))
    return pa.array(np.array(types, np.int32) - 1, pa.int32())
