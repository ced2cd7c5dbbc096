"""The Spark data source ``cursorq``."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_cursor_source.errors import MissingOption
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.options.publish import EnqueueOptions, is_enqueue
from spark_cursor_source.options.row_origin import RowOrigin
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.options.view import ViewOptions
from spark_cursor_source.spark.ack_sink import options_of
from spark_cursor_source.spark.ack_writer import AckStreamWriter, AckWriter
from spark_cursor_source.spark.message_writer import EnqueueStreamWriter, EnqueueWriter
from spark_cursor_source.spark.reader import CursorqStreamReader
from spark_cursor_source.spark.redaction import hide_secrets
from spark_cursor_source.spark.schema import message_schema
from spark_cursor_source.spark.views import view_columns, view_reader
from spark_cursor_source.spark.views.columns import ddl
from spark_cursor_source.spark.worker_python import check_worker_python

_OF_BATCH_READS = ("view", "endingoffsets")
# Spark passes these options of a streaming write to the data source, but handles them itself.
_OF_STREAMING_WRITES = ("checkpointlocation", "queryname")


class CursorqDataSource(DataSource):
    """Data source ``cursorq``: streaming and batch reads and writes of queues.

    - ``spark.readStream.format("cursorq")``: reads every message of a topic under a lease.
    - ``spark.read.format("cursorq").option("view", ...)``: reads messages, cursors, stats, outstanding,
      deadletters or markers. A batch read takes no leases and moves no cursors. See ``spark.views``.
    - ``df.write.format("cursorq").option("topic", ...).mode("append").save()``: appends each row as a
      message. ``df.writeStream`` does the same. See ``spark.message_writer``.
    - The same writes with ``action``: ack, release, reject or extend the message of each row. See
      ``spark.ack_writer``.
    """

    @classmethod
    def name(cls) -> str:
        return "cursorq"

    def schema(self) -> StructType | str:
        # Spark does not pass the kind of read, batch or stream. These options mark a batch read.
        if any(option.lower() in _OF_BATCH_READS for option in self.options):
            return ddl(view_columns(self._view_options()))
        try:
            options = self._source_options()
            client_config(options.kafka)  # raises for invalid Kafka options before the query starts
        except MissingOption as missing:
            if missing.option != "subscription":
                raise
            next_move = f"{missing.next_move}; a batch read needs none with view=messages"
            raise MissingOption(missing.option, next_move) from missing
        return message_schema(include_headers=options.include_headers, origin=RowOrigin.of(options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return CursorqStreamReader(self._source_options())

    def reader(self, schema: StructType) -> DataSourceReader:
        return view_reader(self._view_options())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = dict(self.options)
        if is_enqueue(options, schema.fieldNames()):
            return EnqueueWriter(EnqueueOptions.parse(options), schema, overwrite=overwrite)
        return AckWriter(AckOptions.parse(options), schema.fieldNames(), overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options = {
            name: value for name, value in self.options.items() if name.lower() not in _OF_STREAMING_WRITES
        }
        if is_enqueue(options, schema.fieldNames()):
            return EnqueueStreamWriter(EnqueueOptions.parse(options), schema)
        acks = options_of(schema, AckOptions.parse(options))
        return AckStreamWriter(acks, schema.fieldNames(), overwrite=overwrite)

    def _source_options(self) -> SourceOptions:
        return SourceOptions.parse(dict(self.options))

    def _view_options(self) -> ViewOptions:
        return ViewOptions.parse(dict(self.options))


def register(spark: SparkSession) -> None:
    """Registers ``format("cursorq")`` in this session. Repeated calls are allowed.

    Spark finds the format without this call if this package is installed in Spark's Python. This call checks
    the installation early. It also makes Spark redact secret Kafka options in plans, UI and event log.

    Raises:
        PythonWithoutPackage: ``PYSPARK_PYTHON`` is not set, or names a Python without this package.
    """
    check_worker_python(spark)
    hide_secrets(spark)
    spark.dataSource.register(CursorqDataSource)
