"""Columns of the views: one list of names and types for both Spark and Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.topics.message_columns import ARROW_TYPES, Columns

#: half-open ranges of offsets
RANGES = "ARRAY<STRUCT<start: BIGINT, stop: BIGINT>>"
OFFSETS = "ARRAY<BIGINT>"
CONSUMERS = (
    "ARRAY<STRUCT<query_id: STRING, type: STRING, host: STRING, since: STRING, partitions: ARRAY<INT>, "
    "last_seen: TIMESTAMP, client_id: STRING>>"
)
POSITIONS = (
    "ARRAY<STRUCT<partition: INT, mark_delete: BIGINT, read_position: BIGINT, log_end: BIGINT, "
    "backlog: BIGINT>>"
)

_RANGE = pa.struct([("start", pa.int64()), ("stop", pa.int64())])
_TEXTS = [(name, pa.string()) for name in ("query_id", "type", "host", "since")]
_CONSUMER = pa.struct(
    [
        *_TEXTS,
        ("partitions", pa.list_(pa.field("element", pa.int32()))),
        ("last_seen", ARROW_TYPES["TIMESTAMP"]),
        ("client_id", pa.string()),
    ]
)
_NUMBERS = [(name, pa.int64()) for name in ("mark_delete", "read_position", "log_end", "backlog")]
_POSITION = pa.struct([("partition", pa.int32()), *_NUMBERS])
_ARROW_TYPES = ARROW_TYPES | {
    CONSUMERS: pa.list_(pa.field("element", _CONSUMER)),
    POSITIONS: pa.list_(pa.field("element", _POSITION)),
    RANGES: pa.list_(pa.field("element", _RANGE)),
    OFFSETS: pa.list_(pa.field("element", pa.int64())),
}


def ddl(columns: Columns) -> str:
    """Returns the schema as a DDL string for Spark.

    >>> ddl({"topic": "STRING", "partition": "INT"})
    '`topic` STRING, `partition` INT'
    """
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def arrow_schema(columns: Columns) -> pa.Schema:
    """Returns the schema of the record batches. It equals pyspark's conversion of :func:`ddl`."""
    return pa.schema([(name, _ARROW_TYPES[kind]) for name, kind in columns.items()])


def rows_batch(columns: Columns, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Converts rows of plain values to a record batch. Ranges are OffsetSets, timestamps are milliseconds."""
    schema = arrow_schema(columns)
    by_column = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [_array(kind, values) for kind, values in zip(columns.values(), by_column, strict=True)],
        schema=schema,
    )


def timestamps(values_ms: Iterable[int | None]) -> Any:
    """Converts milliseconds to an array of timestamps."""
    in_us = [None if one is None else one * 1000 for one in values_ms]
    return pa.array(in_us, pa.int64()).cast(_ARROW_TYPES["TIMESTAMP"])


def _array(kind: str, values: Sequence[Any]) -> Any:
    if kind == RANGES:
        return _ranges(values)
    if kind == "TIMESTAMP":
        return timestamps(values)
    return pa.array(values, _ARROW_TYPES[kind])


def _ranges(sets: Sequence[OffsetSet | None]) -> Any:
    """Converts offset sets to lists of ranges without a Python object per range or bound."""
    known = [one for one in sets if one is not None]
    bounds = np.fromiter(chain.from_iterable(map(_bounds, known)), np.int64)
    counts = [0 if one is None else one.count_ranges() for one in sets]
    ends = np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).astype(np.int32)
    return pa.ListArray.from_arrays(
        pa.array(ends),
        pa.StructArray.from_arrays([pa.array(bounds[::2]), pa.array(bounds[1::2])], fields=list(_RANGE)),
        type=_ARROW_TYPES[RANGES],
        mask=pa.array([one is None for one in sets]),
    )


def _bounds(offsets: OffsetSet) -> Iterable[int]:
    return chain.from_iterable(offsets.iter_ranges())
