"""Converts DataFrame rows to messages, and checks their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from spark_cursor_source.errors import NoMessageColumn, UnfitMessageColumn
from spark_cursor_source.topics.message_columns import HEADERS, values_of
from spark_cursor_source.topics.message_sender import ANY_PARTITION, Headers, Row
from spark_cursor_source.wire.deliver_at import DELIVER_AT, deliver_at

_Column = Any  # a pyarrow column; pyarrow has no type annotations


def check_columns(schema: StructType, *, topic: str | None) -> None:
    """Checks the columns of rows to send, by the rules of Spark's Kafka sink.

    ``topic`` is the topic of all rows, or None if the column ``topic`` gives it.

    Raises:
        NoMessageColumn: the column value is missing, or neither option nor column gives the topic.
        UnfitMessageColumn: a column has the wrong type, or its name differs only in case or underscores.
    """
    has = tuple(schema.fieldNames())
    if "value" not in has:
        raise NoMessageColumn("value", has, "rename the column of the payload to value, STRING or BINARY")
    if topic is None and "topic" not in has:
        raise NoMessageColumn("topic", has, "give the option topic, or a column topic")
    for other in set(has) - set(_TYPES):
        # An ignored `deliver_at` would send the message without its delay.
        meant = _SPELLINGS.get(_letters(other))
        if meant is not None and meant not in has:
            raise UnfitMessageColumn(
                other, f"is read only if it is named {meant}", "it that name, or drop it"
            )
    for name, (fits, wanted) in _TYPES.items():
        if name in has and not fits(schema[name].dataType):
            raise UnfitMessageColumn(name, f"has the type {schema[name].dataType.simpleString()}", wanted)


def targets(batch: pa.RecordBatch, topic: str | None) -> set[tuple[str, int | None]]:
    """Returns the distinct (topic, partition) targets. The partition is None if the key decides it.

    Raises:
        UnfitMessageColumn: a row has no topic.
    """
    names = [name for name in _where(topic) if name in batch.schema.names]
    if not batch.num_rows:
        return set()
    if not names and topic is not None:
        return {(topic, None)}
    found = pa.table({name: batch.column(name) for name in names}).group_by(names).aggregate([]).to_pylist()
    where = {(topic if topic is not None else one["topic"], one.get("partition")) for one in found}
    if any(name is None for name, _ in where):
        raise UnfitMessageColumn("topic", "has a null", "the option topic, which is for all rows")
    return where


def messages(batch: pa.RecordBatch, topic: str | None) -> Iterator[Row]:
    """Yields each row, in order, in the sender's format.

    The column ``deliverAt`` becomes the last header of the same name, so that it takes precedence over the
    column headers.

    Raises:
        UnfitMessageColumn: a header has no key.
    """
    names = batch.schema.names
    no_key: Iterator[Any] = repeat(None)
    return zip(
        repeat(topic) if topic is not None else values_of(batch.column("topic")),
        _bytes(batch.column("key")) if "key" in names else no_key,
        _bytes(batch.column("value")),
        values_of(batch.column("partition").fill_null(ANY_PARTITION))
        if "partition" in names
        else repeat(ANY_PARTITION),
        _headers(batch),
        strict=False,
    )


def _where(topic: str | None) -> tuple[str, ...]:
    return ("partition",) if topic is not None else ("topic", "partition")


def _bytes(column: _Column) -> list[Any]:
    return values_of(column.cast(pa.large_binary()))


def _headers(batch: pa.RecordBatch) -> Iterator[Headers] | list[Headers]:
    names = batch.schema.names
    given = _given_headers(batch.column("headers")) if "headers" in names else None
    if DELIVER_AT not in names:
        return repeat(None) if given is None else given
    column = batch.column(DELIVER_AT).cast(pa.int64())
    asked: list[Headers] = [None if at_us is None else [deliver_at(at_us)] for at_us in column.to_pylist()]
    if given is None:
        return asked
    return [(some or []) + (due or []) or None for some, due in zip(given, asked, strict=True)]


def _given_headers(column: _Column) -> list[Headers]:
    keys, values = column.flatten().flatten()
    if keys.null_count:
        raise UnfitMessageColumn("headers", "has a header without a key", "each header a key")
    pairs = list(zip(values_of(keys), _bytes(values), strict=True))
    found: list[Headers] = []
    at = 0
    for length in column.value_lengths().to_pylist():
        found.append(pairs[at : at + length] if length else None)
        at += length or 0
    return found


def _is(kind: type[DataType], *others: type[DataType]) -> Callable[[DataType], bool]:
    return lambda found: isinstance(found, (kind, *others))


def _is_headers(found: DataType) -> bool:
    element = found.elementType if isinstance(found, ArrayType) else None
    if not isinstance(element, StructType):
        return False
    fields = [(one.name, type(one.dataType)) for one in element.fields]
    return fields == [("key", StringType), ("value", BinaryType)]


_TYPES: dict[str, tuple[Callable[[DataType], bool], str]] = {
    "topic": (_is(StringType), "a STRING"),
    "key": (_is(StringType, BinaryType), "a STRING or BINARY"),
    "value": (_is(StringType, BinaryType), "a STRING or BINARY"),
    "partition": (_is(IntegerType), "an INT"),
    "headers": (_is_headers, f"an {HEADERS}"),
    DELIVER_AT: (_is(TimestampType), "a TIMESTAMP"),
}


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


_SPELLINGS = {_letters(name): name for name in _TYPES}

#: names of all columns of a message
MESSAGE_ROW = tuple(_TYPES)
