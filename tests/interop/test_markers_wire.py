"""Markers of single messages as columns, judged by the decoder that looks at one; and lease tables."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cursor_source.core.offsets import OFFSET_LIMIT
from spark_cursor_source.errors import InvalidControlRecord, InvalidMarker, LaterCursorVersion
from spark_cursor_source.interop import lease_table_wire as table_wire
from spark_cursor_source.interop.lease_table import END, KEEP_ALIVE, START, LeaseTable, MessageMarkers
from spark_cursor_source.interop.markers_wire import (
    Row,
    decode,
    encode,
    kmq_end,
    kmq_row,
    kmq_start,
    row_of,
    usual_kmq,
    usual_kmq_columns,
    usual_v1,
    usual_v1_columns,
)
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import marker as marker_wire
from spark_cursor_source.wire.columns import pack, unpack
from spark_cursor_source.wire.control_pb2 import Cursor as CursorPb
from spark_cursor_source.wire.control_pb2 import LeaseTable as LeaseTablePb
from tests.kafka.ways import IS_BUILT

GOLDEN = Path(__file__).parent.parent / "golden"

markers_v1 = st.builds(
    marker_wire.MarkerV1,
    queue_id=st.binary(min_size=1, max_size=8),
    type=st.sampled_from([START, END, KEEP_ALIVE]),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, OFFSET_LIMIT - 1),
    redeliver_after_ms=st.integers(0, 2**63 - 1),
    key=st.binary(max_size=300),
    value=st.binary(max_size=300),
)


def rows_of(markers: MessageMarkers) -> list[Row]:
    names = ("sequences", "at_ms", "kinds", "partitions", "offsets", "leases_ms")
    return list(zip(*(getattr(markers, name).tolist() for name in names), strict=True))


def slowly(sequence: int, key: bytes | None, value: bytes | None) -> Row | None:
    """The strict decoder's row; None where the record is no V1 marker."""
    try:
        marker = marker_wire.decode(key, value)
    except InvalidMarker:
        return None
    return row_of(sequence, 0, marker) if isinstance(marker, marker_wire.MarkerV1) else None


def agrees(keys: list[bytes | None], values: list[bytes | None]) -> int:
    """That the columns hold nothing but what the strict decoder reads there; how many they hold."""
    columns, others = usual_v1(range(len(keys)), [0] * len(keys), keys, values)
    expected = [slowly(at, keys[at], values[at]) for at in range(len(keys)) if at not in set(others)]
    assert [(*row[:5], min(row[5], 43_200_000)) for row in rows_of(columns)] == expected
    if IS_BUILT:
        records = pa.record_batch(
            {
                "key": pa.array([None, *keys], pa.binary()),
                "value": pa.array([b"skipped", *values], pa.binary()),
                "offset": pa.array(range(-1, len(keys)), pa.int64()),
            }
        )
        native, left = usual_v1_columns(records[1:], np.zeros(len(keys), np.int64))
        assert (rows_of(native), left) == (rows_of(columns), others)
    return len(columns)


@settings(max_examples=100, deadline=None)
@given(st.lists(markers_v1, max_size=20))
def test_what_kafka_mq_go_writes_is_read_in_columns(markers: list[marker_wire.MarkerV1]) -> None:
    keys: list[bytes | None] = [marker.queue_id for marker in markers]
    assert agrees(keys, [marker_wire.encode_v1(marker) for marker in markers]) == len(markers)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(markers_v1, st.integers(0, 2**32)), min_size=1, max_size=20))
def test_what_is_damaged_is_never_taken_for_another_marker(
    markers: list[tuple[marker_wire.MarkerV1, int]],
) -> None:
    values: list[bytes | None] = []
    for marker, seed in markers:
        value, chance = bytearray(marker_wire.encode_v1(marker)), random.Random(seed)
        for _ in range(chance.randrange(4)):
            match chance.randrange(3):
                case 0:
                    value[chance.randrange(len(value) or 1) : 1] = bytes([chance.randrange(256)])
                case 1 if value:
                    value[chance.randrange(len(value))] = chance.randrange(256)
                case 2:
                    del value[chance.randrange(len(value) + 1) :]
        values.append(bytes(value))
    agrees([b"q1"] * len(values), values)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.none() | st.binary(max_size=30), min_size=1, max_size=20))
def test_other_bytes_are_left_to_the_strict_decoder(values: list[bytes | None]) -> None:
    agrees([b"q1"] * len(values), values)


def test_records_without_a_queue_id_and_markers_of_version_2_are_left_to_the_strict_decoder() -> None:
    start = marker_wire.encode_v1(marker_wire.MarkerV1(queue_id=b"q", type=START, partition=0, offset=7))
    keys, values = [None, b"", b"q"], [start, start, b"\x08\x01" + start]
    columns, others = usual_v1([0, 1, 2], [0] * 3, keys, values)
    assert (len(columns), others) == (0, [0, 1, 2])
    assert agrees(keys, values) == 0


def test_an_offset_that_no_log_has_is_left_to_the_strict_decoder() -> None:
    last, beyond = (
        marker_wire.encode_v1(marker_wire.MarkerV1(queue_id=b"q", type=START, partition=0, offset=offset))
        for offset in (OFFSET_LIMIT - 1, OFFSET_LIMIT)
    )
    assert agrees([b"q", b"q"], [beyond, last]) == 1


def test_columns_of_markers_survive_their_bytes() -> None:
    rows = [(7, 1_700_000_000_000, START, 3, 2**40, 60_000), (9, 1_700_000_000_001, END, 0, 5, 0)]
    assert rows_of(decode(encode(MessageMarkers.of(rows)))) == rows


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-(2**62), 2**62 - 1), max_size=20))
def test_numbers_survive_their_bytes(numbers: list[int]) -> None:
    assert unpack(pack(np.array(numbers, np.int64))).tolist() == numbers


# ---- kmq


def kmq_slowly(sequence: int, key: bytes | None, value: bytes | None) -> Row | None:
    try:
        return kmq_row(sequence, 0, key, value)
    except InvalidMarker:
        return None


_kmq_keys = st.builds(
    kmq_end, st.integers(-(2**31), 2**31 - 1), st.sampled_from([0, 1, -1, OFFSET_LIMIT, OFFSET_LIMIT - 1])
).map(lambda record: record[0])
_kmq_values = st.sampled_from([b"\0", b"\1", b"\2", b""]) | st.builds(
    lambda kind, lease_ms: kind + lease_ms.to_bytes(8, "big", signed=True),
    st.sampled_from([b"\0", b"\1", b"\2"]),
    st.integers(-(2**63), 2**63 - 1),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(_kmq_keys | st.none() | st.binary(max_size=13), _kmq_values | st.none())))
def test_columns_hold_all_kmq_markers_and_nothing_else(
    records: list[tuple[bytes | None, bytes | None]],
) -> None:
    keys, values = [key for key, _ in records], [value for _, value in records]
    columns, others = usual_kmq(range(len(records)), [0] * len(records), keys, values)
    expected = [kmq_slowly(at, *record) for at, record in enumerate(records)]
    assert rows_of(columns) == [row for row in expected if row is not None]
    assert others == [at for at, row in enumerate(expected) if row is None]


def test_columns_of_a_slice_are_those_of_its_records() -> None:
    records = [kmq_end(1, 7), kmq_start(2, 8, 50), (None, b"x"), kmq_end(0, 9)]
    batch = pa.record_batch(
        {
            "key": pa.array([key for key, _ in records], pa.binary()),
            "value": pa.array([value for _, value in records], pa.binary()),
            "offset": pa.array(range(4), pa.int64()),
        }
    )
    columns, others = usual_kmq_columns(batch[1:], np.zeros(3, np.int64))
    assert rows_of(columns) == [(1, 0, START, 2, 8, 50), (3, 0, END, 0, 9, 0)]
    assert others == [1]


KEY = bytes.fromhex("00000003 0000000000000028")


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (bytes.fromhex("01 000000000000ea60"), (7, 9, START, 3, 40, 60_000)),
        (b"\x00", (7, 9, END, 3, 40, 0)),
    ],
)
def test_markers_of_kmq_are_read_to_the_byte(value: bytes, row: Row) -> None:
    assert kmq_row(7, 9, KEY, value) == row


def test_the_end_that_kmq_writes_is_written_to_the_byte() -> None:
    assert kmq_end(3, 40) == (KEY, b"\x00")


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (None, b"\x00", "12 bytes"),
        (KEY[:-1], b"\x00", "12 bytes"),
        (b"\xff" + KEY[1:], b"\x00", "negative"),
        (KEY[:4] + b"\xff" + KEY[5:], b"\x00", "negative"),
        (KEY, None, "neither"),
        (KEY, b"", "neither"),
        (KEY, b"\x02", "neither"),
        (KEY, b"\x00\x00", "neither"),
        (KEY, b"\x01\x00", "neither"),
        (KEY, bytes.fromhex("02 000000000000ea60"), "neither"),
        (KEY, bytes.fromhex("01 ff0000000000ea60"), "negative"),
    ],
)
def test_what_kmq_would_take_for_an_acknowledgement_is_quarantined(
    key: bytes | None, value: bytes | None, why: str
) -> None:
    with pytest.raises(InvalidMarker, match=why):
        kmq_row(7, 9, key, value)


# ---- lease tables

TABLE = LeaseTable.resume(None).apply(
    MessageMarkers.of([(10, 1_000, START, 0, 40, 60_000), (12, 1_500, START, 3, 7, 60_000)])
)


def columns_of(table: LeaseTable) -> tuple[object, ...]:
    columns = (table.partitions, table.offsets, table.deadlines_ms, table.starts)
    return table.next_marker, *(column.tolist() for column in columns)


def test_the_lease_table_of_version_1_is_read_for_ever() -> None:
    stored = (GOLDEN / "lease_table_v1.bin").read_bytes()
    assert columns_of(table_wire.decode(stored)) == columns_of(TABLE)
    cell = table_wire.table_cell("orders", "orders-markers", 3)
    assert table_wire.encode_record(TABLE, cell) == stored


def test_a_lease_table_is_a_plain_position_to_readers_of_cursors() -> None:
    stored = (GOLDEN / "lease_table_v1.bin").read_bytes()
    plain = CursorPb.FromString(stored)
    assert (plain.stream, plain.partition, plain.cursor_id, plain.offset) == (
        "orders-markers",
        3,
        "orders",
        9,
    )
    with pytest.raises(InvalidControlRecord, match="plain position"):
        cursor_wire.decode(stored)


def test_a_million_open_leases_take_less_than_32_megabytes() -> None:
    count = 1_000_000
    places = np.arange(count)
    spread = np.random.default_rng(0).permutation(count)
    table = LeaseTable.resume(None).apply(
        MessageMarkers(
            sequences=2 * places,
            at_ms=1_700_000_000_000 + places // 400,
            kinds=np.zeros(count, np.int64),
            partitions=spread % 16,
            offsets=spread * 1000,
            leases_ms=np.full(count, 60_000),
        )
    )
    assert len(table_wire.encode(table)) < 32 << 20


@pytest.mark.parametrize(
    ("pb", "why"),
    [
        (LeaseTablePb(), "not a lease table"),
        (LeaseTablePb(table_version=1, next_marker=-1), "not a lease table"),
        (LeaseTablePb(table_version=1, offsets=b"123"), "not a column"),
        (LeaseTablePb(table_version=1, offsets=pack(np.array([5]))), "not of one length"),
    ],
)
def test_what_is_no_lease_table_says_why(pb: LeaseTablePb, why: str) -> None:
    with pytest.raises(InvalidControlRecord, match=why):
        table_wire.decode(pb.SerializeToString())


def test_bytes_that_are_no_protobuf_are_no_lease_table() -> None:
    with pytest.raises(InvalidControlRecord, match="protobuf"):
        table_wire.decode(b"\xff")


def test_a_lease_table_of_a_later_version_is_not_taken_for_none() -> None:
    with pytest.raises(LaterCursorVersion):
        table_wire.decode(LeaseTablePb(table_version=2).SerializeToString())
