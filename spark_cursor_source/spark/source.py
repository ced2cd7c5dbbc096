"""The Spark data source ``cursorq``."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
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
from spark_cursor_source.options.kinds import items_of
from spark_cursor_source.options.publish import EnqueueOptions, is_enqueue
from spark_cursor_source.options.row_origin import METADATA, RowOrigin
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.options.view import View, ViewOptions
from spark_cursor_source.spark.redaction import hide_secrets
from spark_cursor_source.spark.schema import CARRIER, message_schema
from spark_cursor_source.spark.worker_python import check_worker_python

_OF_BATCH_READS = ("view", "endingoffsets")
# Spark passes these options of a streaming write to the data source, but handles them itself.
_OF_STREAMING_WRITES = ("checkpointlocation", "queryname")


# Spark starts a process for the schema and another for the planner. Each imports this module and only those
# readers and writers that it uses, because imports are most of its start.
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
            from spark_cursor_source.spark.views import view_columns
            from spark_cursor_source.spark.views.columns import ddl

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
        from spark_cursor_source.spark.reader import CursorqStreamReader

        return CursorqStreamReader(self._source_options())

    def reader(self, schema: StructType) -> DataSourceReader:
        from spark_cursor_source.spark.views import view_reader

        return view_reader(self._view_options())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = dict(self.options)
        if is_enqueue(options, schema.fieldNames()):
            from spark_cursor_source.spark.message_writer import EnqueueWriter

            return EnqueueWriter(EnqueueOptions.parse(options), schema, overwrite=overwrite)
        from spark_cursor_source.spark.ack_writer import AckWriter

        return AckWriter(AckOptions.parse(options), schema.fieldNames(), overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options = {
            name: value for name, value in self.options.items() if name.lower() not in _OF_STREAMING_WRITES
        }
        if is_enqueue(options, schema.fieldNames()):
            from spark_cursor_source.spark.message_writer import EnqueueStreamWriter

            return EnqueueStreamWriter(EnqueueOptions.parse(options), schema)
        from spark_cursor_source.spark.ack_sink import options_of
        from spark_cursor_source.spark.ack_writer import AckStreamWriter

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
        PythonWithoutPackage: the Python that Spark starts (``PYSPARK_PYTHON``, or else ``python3``) cannot
            import this package. This is not checked with Spark Connect.
    """
    check_worker_python(spark)
    hide_secrets(spark)
    spark.dataSource.register(CursorqDataSource)


def outstanding(spark: SparkSession, options: Mapping[str, str], *, payload: bool = True) -> DataFrame:
    """Returns a DataFrame with one row for each message that was delivered and is not acked.

    ``options`` are those of the source. Without ``subscription`` or topics, all are shown. The columns are
    those of the view ``outstanding``: ``subscription``, ``topic``, ``partition``, ``offset``, ``state``,
    ``delivery_count``, ``deadline``, ``run_id`` and ``behind``. With ``payload``, the columns ``key``,
    ``value``, ``timestamp`` and, with includeHeaders, ``headers`` follow. They are null where retention has
    removed the message. Times are the broker's. Every action on the DataFrame reads the current state;
    ``cache()`` it to look at one state twice.

    If the options name a subscription and its topics, the rows carry them, so ``cursorq.ack(rows)`` and the
    other actions need no options. The call takes no lease and moves no cursor.

    Raises:
        InvalidArgument: the options are not a mapping.
        UnknownOption, InvalidOption, MissingOption: an option is not valid for a view, or the brokers are
            missing.
        PythonWithoutPackage: see :func:`register`.
        TopicNotFound, UnknownSubscription, UnknownQueueTopic (by the first action): there is no such cursor.

    Example::

        from pyspark.sql import SparkSession

        import spark_cursor_source as cursorq

        spark = SparkSession.builder.getOrCreate()
        options = {
            "kafka.bootstrap.servers": "broker:9092",
            "subscribe": "orders",
            "subscription": "billing",
        }
        stuck = cursorq.outstanding(spark, options).where("delivery_count > 2")
        stuck.selectExpr("partition", "offset", "state", "string(value)").show()
        cursorq.reject(stuck, reason="given up by an operator")
    """
    given = dict(items_of("options", options))
    view = given | {"view": View.OUTSTANDING.value, "includePayload": str(payload).lower()}
    ViewOptions.parse(view)  # Spark would raise an AnalysisException with the text of the error
    register(spark)
    rows = spark.read.format(CursorqDataSource.name()).options(**view).load()
    try:
        origin = RowOrigin.of(SourceOptions.parse(options))
    except MissingOption:  # several subscriptions, or all topics of one: an action then needs options
        return rows
    return rows.withMetadata(CARRIER, {METADATA: origin.to_metadata()})
