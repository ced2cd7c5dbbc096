"""Spark schema of the source: the columns of a message row, which carry the options of their source."""

from __future__ import annotations

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from spark_cursor_source.options.row_origin import METADATA, RowOrigin
from spark_cursor_source.topics import message_columns

CARRIER = "offset"  #: column whose metadata carries the options of its source


def message_schema(*, include_headers: bool, origin: RowOrigin | None = None) -> StructType:
    """Returns the schema of message rows. ``headers`` is optional, as in Spark's Kafka source.

    The column ``offset`` carries the ``origin`` in its metadata. The metadata survives filters, joins and
    checkpoints, but is lost if the column is recomputed.
    """
    carried = None if origin is None else {METADATA: origin.to_metadata()}
    fields = from_arrow_schema(message_columns.message_schema(include_headers=include_headers)).fields
    return StructType(
        [
            StructField(one.name, one.dataType, metadata=carried) if one.name == CARRIER else one
            for one in fields
        ]
    )


def origin_of(schema: StructType) -> RowOrigin | None:
    """Returns the source in the metadata of the column ``offset``, or None if the metadata is missing."""
    fields = (field for field in schema.fields if field.name == CARRIER)
    return next((RowOrigin.from_metadata(field.metadata or {}) for field in fields), None)
