"""Columns of a message row: the one declaration for the source, the views and the sinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

Columns = Mapping[str, str]  #: name -> Spark SQL type, in column order

HEADERS = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
#: Arrow types of Spark SQL types; they equal pyspark's conversion in UTC
ARROW_TYPES = {
    "BINARY": pa.binary(),
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    HEADERS: pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
}
#: all columns of a message row, those of Spark's Kafka source first
MESSAGE_COLUMNS: Columns = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": HEADERS,
    "delivery_count": "INT",
}


def message_columns(*, include_headers: bool) -> Columns:
    """Returns the columns of message rows. ``headers`` is optional, as in Spark's Kafka source.

    >>> [name for name in message_columns(include_headers=True)][-2:]
    ['headers', 'delivery_count']
    """
    return {name: kind for name, kind in MESSAGE_COLUMNS.items() if include_headers or name != "headers"}


def message_schema(*, include_headers: bool) -> pa.Schema:
    """Returns the Arrow schema of message rows. All columns are nullable."""
    columns = message_columns(include_headers=include_headers)
    return pa.schema([(name, ARROW_TYPES[kind]) for name, kind in columns.items()])


def values_of(column: Any) -> list[Any]:
    """Returns the values of an Arrow column as Python objects.

    >>> values_of(pa.array([b"a", None])), values_of(pa.array([1, 2])), values_of(pa.array([1, None]))
    ([b'a', None], [1, 2], [1, None])
    """
    kind = column.type
    if kind in _PLAIN or (pa.types.is_integer(kind) and not column.null_count):
        # Much faster than to_pylist, which creates an Arrow object for each value first.
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return values
    found: list[Any] = column.to_pylist()
    return found


_PLAIN = frozenset({pa.binary(), pa.large_binary(), pa.string(), pa.large_string()})
