"""Codec for many single-message markers: kafka-mq-go's (V1, protobuf) and kmq's (fixed bytes).

Nearly all markers have the usual form of their writer. Those are decoded as whole columns. All others go to a
strict decoder for single markers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_cursor_source.core.offsets import OFFSET_LIMIT
from spark_cursor_source.errors import InvalidMarker
from spark_cursor_source.interop.lease_table import END, KEEP_ALIVE, START, Column, MessageMarkers
from spark_cursor_source.kafka.native import native_module
from spark_cursor_source.wire.columns import pack, unpack
from spark_cursor_source.wire.marker import MarkerV1

_TYPE, _MESSAGE_ID, _LEASE, _KEY, _VALUE = 0x10, 0x1A, 0x20, 0x2A, 0x32  # protobuf tags of fields 2 to 6
_ID_PARTITION, _ID_OFFSET = 0x08, 0x10
_KMQ_END, _KMQ_START = b"\0", b"\1"
_LENGTH = struct.Struct(">I")
_KMQ_KEY, _KMQ_LEASE = struct.Struct(">iq"), struct.Struct(">q")
# The same for numpy, which decodes all keys and all Starts at once.
_KMQ_KEYS = np.dtype([("partition", ">i4"), ("offset", ">i8")])
_KMQ_STARTS = np.dtype([("type", "u1"), ("lease_ms", ">i8")])

Row = tuple[int, int, int, int, int, int]
_Mask = npt.NDArray[np.bool_]


def usual_v1(
    sequences: Sequence[int],
    times_ms: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
) -> tuple[MessageMarkers, list[int]]:
    """Decodes V1 markers in kafka-mq-go's usual form. Also returns the indexes of all other records.

    >>> markers, others = usual_v1([7, 8], [0, 0], [b"q1", None], [bytes.fromhex("1001 1a020803"), b"?"])
    >>> markers.kinds.tolist(), markers.partitions.tolist(), others
    ([1], [3], [1])
    """
    data = _Fields(values)
    usual = np.fromiter(map(bool, keys), bool, len(keys)) & (data.left > 0)
    kinds = data.one_byte(_TYPE)
    usual &= kinds <= KEEP_ALIVE
    usual &= data.at(_MESSAGE_ID)
    id_end = data.one_byte(_MESSAGE_ID) + data.place
    partitions, offsets = data.number(_ID_PARTITION, until=id_end), data.number(_ID_OFFSET, until=id_end)
    usual &= (data.place == id_end) & (partitions < 1 << 31) & (offsets < OFFSET_LIMIT)
    leases = data.number(_LEASE)
    data.skip(_KEY)
    data.skip(_VALUE)
    usual &= (data.left == 0) & ~data.broken
    markers = MessageMarkers(
        sequences=np.asarray(sequences, np.int64)[usual],
        at_ms=np.asarray(times_ms, np.int64)[usual],
        kinds=kinds[usual],
        partitions=partitions[usual],
        offsets=offsets[usual],
        leases_ms=leases[usual],
    )
    return markers, np.flatnonzero(~usual).tolist()


def usual_v1_columns(records: pa.RecordBatch, times_ms: Column) -> tuple[MessageMarkers, list[int]]:
    """Does the same as :func:`usual_v1` for the columns key, value and offset, with the native module."""
    values = records.column("value")
    numbers, usual = np.empty((4, len(values)), np.int64), np.empty(len(values), np.bool_)
    _, ends, body = values.buffers()
    native_module().decode_v1(ends, values.offset, body or b"", numbers, usual)
    has_key = pc.greater(pc.binary_length(records.column("key")), 0).fill_null(False)
    usual &= has_key.to_numpy(zero_copy_only=False) & (numbers[2] < OFFSET_LIMIT)
    kinds, partitions, offsets, leases_ms = numbers[:, usual]
    markers = MessageMarkers(
        sequences=records.column("offset").to_numpy()[usual],
        at_ms=times_ms[usual],
        kinds=kinds,
        partitions=partitions,
        offsets=offsets,
        leases_ms=leases_ms,
    )
    return markers, np.flatnonzero(~usual).tolist()


def row_of(sequence: int, at_ms: int, marker: MarkerV1) -> Row:
    """Returns a V1 marker as a row of :class:`MessageMarkers`. A held message counts as started."""
    kind = START if marker.trouble and marker.type == KEEP_ALIVE else int(marker.type)
    return sequence, at_ms, kind, marker.partition, marker.offset, marker.redeliver_after_ms


def kmq_row(sequence: int, at_ms: int, key: bytes | None, value: bytes | None) -> Row:
    """Returns a kmq marker as a row of :class:`MessageMarkers`.

    >>> kmq_row(7, 0, bytes.fromhex("00000003 0000000000000028"), b"\\0")
    (7, 0, 1, 3, 40, 0)

    Raises:
        InvalidMarker: the record must be quarantined; the error contains the reason. kmq itself accepts any
            value that does not begin with 01 as an ack.
    """
    if key is None or len(key) != _KMQ_KEY.size:
        raise InvalidMarker("the record key is not kmq's partition and offset of 12 bytes")
    partition, offset = _KMQ_KEY.unpack(key)
    if partition < 0 or not 0 <= offset < OFFSET_LIMIT:
        raise InvalidMarker("its message id is negative or beyond every log")
    if value == _KMQ_END:
        return sequence, at_ms, END, partition, offset, 0
    if value is None or len(value) != 1 + _KMQ_LEASE.size or value[:1] != _KMQ_START:
        raise InvalidMarker("the value is neither kmq's Start (01 and 8 bytes) nor its End (00)")
    (lease_ms,) = _KMQ_LEASE.unpack_from(value, 1)
    if lease_ms < 0:
        raise InvalidMarker("its time to redelivery is negative")
    return sequence, at_ms, START, partition, offset, lease_ms


def usual_kmq(
    sequences: Sequence[int],
    times_ms: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
) -> tuple[MessageMarkers, list[int]]:
    """Decodes kmq markers. Also returns the indexes of the records that are no kmq markers.

    >>> markers, others = usual_kmq([7, 8], [0, 0], *zip(kmq_start(3, 40, 2_000), (None, b"?")))
    >>> markers.kinds.tolist(), markers.offsets.tolist(), markers.leases_ms.tolist(), others
    ([0], [40], [2000], [1])
    """
    records = pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "offset": pa.array(sequences, pa.int64()),
        }
    )
    return usual_kmq_columns(records, np.asarray(times_ms, np.int64))


def usual_kmq_columns(records: pa.RecordBatch, times_ms: Column) -> tuple[MessageMarkers, list[int]]:
    """Does the same as :func:`usual_kmq` for the columns key, value and offset."""
    keys, values = records.column("key"), records.column("value")
    value_lengths = _lengths(values)
    is_start = value_lengths == _KMQ_STARTS.itemsize
    usual = (_lengths(keys) == _KMQ_KEYS.itemsize) & (is_start | (value_lengths == len(_KMQ_END)))
    ids = np.frombuffer(_body(keys, usual), _KMQ_KEYS)
    partitions, offsets = ids["partition"].astype(np.int64), ids["offset"].astype(np.int64)
    is_start = is_start[usual]
    types, leases_ms = np.zeros(len(ids), np.uint8), np.zeros(len(ids), np.int64)
    starts = np.frombuffer(_body(values, usual & (value_lengths == _KMQ_STARTS.itemsize)), _KMQ_STARTS)
    types[is_start], leases_ms[is_start] = starts["type"], starts["lease_ms"]
    types[~is_start] = np.frombuffer(_body(values, usual & (value_lengths == len(_KMQ_END))), np.uint8)
    is_valid = (partitions >= 0) & (offsets >= 0) & (offsets < OFFSET_LIMIT) & (leases_ms >= 0)
    is_valid &= types == is_start  # 00 is the first byte of an End, 01 that of a Start
    usual[usual] = is_valid
    markers = MessageMarkers(
        sequences=records.column("offset").to_numpy()[usual],
        at_ms=times_ms[usual],
        kinds=np.where(is_start[is_valid], START, END),
        partitions=partitions[is_valid],
        offsets=offsets[is_valid],
        leases_ms=leases_ms[is_valid],
    )
    return markers, np.flatnonzero(~usual).tolist()


def _lengths(column: pa.Array) -> Column:
    """Returns the number of bytes of each value, -1 for a null."""
    lengths: Column = pc.binary_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
    return lengths


def _body(column: pa.Array, chosen: _Mask) -> bytes | pa.Buffer:
    """Returns the bytes of the chosen values, one after another."""
    some = column.filter(pa.array(chosen))
    return some.buffers()[2] or b""


def kmq_end(partition: int, offset: int) -> tuple[bytes, bytes]:
    """Returns key and value of kmq's End of a message."""
    return _KMQ_KEY.pack(partition, offset), _KMQ_END


def kmq_start(partition: int, offset: int, lease_ms: int) -> tuple[bytes, bytes]:
    """Returns key and value of kmq's Start of a message.

    >>> kmq_row(7, 0, *kmq_start(3, 40, 2_000))
    (7, 0, 0, 3, 40, 2000)
    """
    return _KMQ_KEY.pack(partition, offset), _KMQ_START + _KMQ_LEASE.pack(lease_ms)


def encode(markers: MessageMarkers) -> bytes:
    """Encodes marker columns for the way from the tracker's source to its state. The bytes are never stored.

    >>> markers = MessageMarkers.of([(7, 0, START, 3, 40, 60_000)])
    >>> decode(encode(markers)).offsets.tolist()
    [40]
    """
    columns = [pack(getattr(markers, field.name)) for field in fields(markers)]
    return b"".join(_LENGTH.pack(len(column)) + column for column in columns)


def decode(data: bytes) -> MessageMarkers:
    """Decodes the bytes of :func:`encode`."""
    columns: dict[str, Column] = {}
    at = 0
    for field in fields(MessageMarkers):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size + length
        columns[field.name] = unpack(data[at - length : at])
    return MessageMarkers(**columns)


class _Fields:
    """Parallel reader of many protobuf messages, field by field in ascending order."""

    def __init__(self, values: Sequence[bytes | None]) -> None:
        present = [value or b"" for value in values]
        # Padding for reads past the last value: zero is not a valid tag.
        self._bytes = np.frombuffer(b"".join(present) + bytes(16), np.uint8)
        lengths = np.fromiter(map(len, present), np.int64, len(present))
        self._ends = np.cumsum(lengths)
        self.place = self._ends - lengths
        self.broken: _Mask = np.zeros(len(present), bool)  #: messages with a field that exceeds the message

    @property
    def left(self) -> Column:
        """Number of unread bytes of each message."""
        return self._ends - self.place

    def at(self, tag: int) -> _Mask:
        """True for messages whose next field has this tag."""
        there: _Mask = (self._byte() == tag) & (self.left > 0)
        return there

    def one_byte(self, tag: int) -> Column:
        """Reads a number below 128, 0 if the field is missing. Larger numbers mark the message as broken."""
        there = self.at(tag)
        self.place = self.place + there
        found = np.where(there, self._byte(), 0)
        self.broken |= found > 127
        self.place = self.place + there
        return found

    def number(self, tag: int, *, until: Column | None = None) -> Column:
        """Reads a varint below 2**63, 0 if the field is missing or begins at or after ``until``."""
        there = self.at(tag) if until is None else self.at(tag) & (self.place < until)
        self.place = self.place + there
        return self._varint(there)

    def skip(self, tag: int) -> None:
        """Skips a length-delimited field."""
        there = self.at(tag)
        self.place = self.place + there
        length = self._varint(there)
        self.broken |= length > self.left
        self.place = np.where(self.broken, self.place, self.place + length)

    def _varint(self, going_on: _Mask) -> Column:
        found = np.zeros(len(self.place), np.int64)
        for shift in range(0, 63, 7):
            if not going_on.any():
                break
            byte = self._byte()
            found |= np.where(going_on, (byte & 0x7F) << shift, 0)
            self.place = self.place + going_on
            going_on = going_on & (byte > 0x7F)
        self.broken |= going_on | (self.place > self._ends)
        return found

    def _byte(self) -> Column:
        found: Column = self._bytes[np.minimum(self.place, len(self._bytes) - 1)].astype(np.int64)
        return found
