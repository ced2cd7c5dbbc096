"""The data source ``cursorq``: what Spark finds under that name."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from spark_cursor_source.core.source_options import SourceOptions
from spark_cursor_source.spark.reader import CursorqStreamReader
from spark_cursor_source.spark.schema import message_schema


class CursorqDataSource(DataSource):
    """``spark.readStream.format("cursorq")``: every message of a topic, under a lease."""

    @classmethod
    def name(cls) -> str:
        return "cursorq"

    def schema(self) -> StructType:
        return message_schema(include_headers=self._source_options().include_headers)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return CursorqStreamReader(self._source_options())

    def _source_options(self) -> SourceOptions:
        return SourceOptions.parse(dict(self.options))


def register(spark: SparkSession) -> None:
    """Make ``format("cursorq")`` known to this session; again and again if you like."""
    spark.dataSource.register(CursorqDataSource)
