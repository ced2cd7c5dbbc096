"""The columns of the source, in Spark's words; the same as Spark's Kafka source, then delivery_count."""

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
_DELIVERY_COUNT = StructField("delivery_count", IntegerType())


def message_schema(*, include_headers: bool) -> StructType:
    """One row a message; ``headers`` only where it was asked for, as in Spark's Kafka source."""
    headers = (_HEADERS,) if include_headers else ()
    return StructType([*_KAFKA, *headers, _DELIVERY_COUNT])
