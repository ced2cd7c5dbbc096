"""Spark schema of the source: the columns of Spark's Kafka source, then ``delivery_count``."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_cursor_source.options.row_origin import METADATA, RowOrigin

_KAFKA = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADERS = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)
_CARRIER = "offset"
_DELIVERY_COUNT = StructField("delivery_count", IntegerType())


def message_schema(*, include_headers: bool, origin: RowOrigin | None = None) -> StructType:
    """Returns the schema of message rows. ``headers`` is optional, as in Spark's Kafka source.

    The column ``offset`` carries the ``origin`` in its metadata. The metadata survives filters, joins and
    checkpoints, but is lost if the column is recomputed.
    """
    headers = (_HEADERS,) if include_headers else ()
    carried = None if origin is None else {METADATA: origin.to_metadata()}
    fields = [*_KAFKA, *headers, _DELIVERY_COUNT]
    return StructType(
        [
            StructField(one.name, one.dataType, metadata=carried) if one.name == _CARRIER else one
            for one in fields
        ]
    )


def origin_of(schema: StructType) -> RowOrigin | None:
    """Returns the source in the metadata of the column ``offset``, or None if the metadata is missing."""
    fields = (field for field in schema.fields if field.name == _CARRIER)
    return next((RowOrigin.from_metadata(field.metadata or {}) for field in fields), None)
