"""KafkaSink: foreachBatch function that writes output messages and acks their inputs in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_cursor_source.consumer.action_columns import ACTION_COLUMNS, MESSAGE_ID, require_columns
from spark_cursor_source.consumer.settlement import check_acked
from spark_cursor_source.core.marker import End
from spark_cursor_source.core.names import why_no_topic
from spark_cursor_source.errors import ConflictingOptions, InvalidOption, UnfitMessageColumn
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.options.publish import EnqueueOptions
from spark_cursor_source.options.source import AckMode
from spark_cursor_source.spark.ack_batch import acks_of
from spark_cursor_source.spark.ack_sink import BatchSink
from spark_cursor_source.spark.actions import SETTLED_SCHEMA, Markers
from spark_cursor_source.spark.message_rows import MESSAGE_ROW, check_columns
from spark_cursor_source.spark.message_writer import check_rights
from spark_cursor_source.spark.output_task import ID, IS_OUTPUT, LANE, MESSAGE, ORDER, write_outputs
from spark_cursor_source.spark.queue_state import (
    borrowed_queue_state,
    check_exactly_once,
    common,
    cursors_topic_of,
    without,
)
from spark_cursor_source.spark.schema import origin_of
from spark_cursor_source.spark.sink_arguments import check_takes

_TASK = "task"

Transform = Callable[[DataFrame], DataFrame]


class KafkaSink(BatchSink):
    """Writes the output of each message to Kafka exactly once: ``foreachBatch(KafkaSink("invoices"))``.

    The output of a message and its ack are in one transaction of Kafka, as in Kafka Streams with
    ``processing.guarantee=exactly_once_v2``. A message can be delivered again after that: its lease expired,
    or a process died. It then comes in another batch, perhaps to another query, and is not written again. The
    same holds for messages that have ended meanwhile, acked by another job or dead-lettered. Readers of the
    output need ``isolation.level=read_committed``.

    ``transform(batch)`` returns the rows to write, any number for each message. The batch has the columns of
    the source, but topic, partition and offset are in one column ``message``, a STRUCT. Each row that
    ``transform`` returns keeps this column, which tells whose output it is. Its other columns are those of a
    message: value, and optionally key, headers, partition, deliverAt and topic. By default, the key, value
    and headers of each message are copied. Rows that ``transform`` drops are acked.

    ``topic`` is the topic of all rows. Without it, the column ``topic`` gives it. The output is on the same
    Kafka cluster as the queue. ``options`` are needed as by :class:`AckSink`. If ``transform`` raises or a
    row is refused, the query fails. Messages whose transactions were committed before are acked.

    Example::

        from spark_cursor_source import KafkaSink

        def invoice(batch):
            return batch.selectExpr("message", "key", "upper(cast(value AS STRING)) AS value")

        sink = KafkaSink("invoices", transform=invoice)

    Raises:
        InvalidOption: ``topic`` is no name that Kafka takes, or ``transform`` does not take a batch.
        ConflictingOptions: the options have ``markerFormat=v1``, ``ackMode=batch``, or another action than
            ack.
        AckedBySource: the source acks before the write, with ``ackMode=cumulative``.
        MissingColumns, NoMessageColumn, UnfitMessageColumn: ``transform`` returns other columns.
    """

    def __init__(
        self,
        topic: str | None = None,
        options: Mapping[str, str] | None = None,
        *,
        transform: Transform | None = None,
    ) -> None:
        super().__init__(options, persist=True)
        if topic is not None and (why := why_no_topic(topic)) is not None:
            raise InvalidOption("topic", topic, why, "give the name of a Kafka topic")
        if transform is not None:
            check_takes("transform", transform, "batch")
        if self._options is not None:
            _check(self._options)
        self._given, self._topic = options, topic
        self._transform = _copies if transform is None else transform

    def _call(self, rows: DataFrame, batch_id: int, options: AckOptions) -> int:
        _check(options)
        acks = acks_of(rows, options.subscription)
        if not acks:
            return 0
        check_acked(options, acks)
        output = self._output_options(rows)
        check_rights(output)
        with borrowed_queue_state(options, cursors_topic_of(rows, self._options)) as state:
            ids = state.places(acks, options.topic_ids)
            ended, positions = state.ended_before(ids)
        markers = Markers(options=options, partitions=len(positions), positions=positions)
        some = without(rows, common(ids, ended))
        outputs = self._transform(_with_message(some))
        _check_outputs(outputs, output)
        lined_up = _lined_up(some, outputs, output, _Lanes(acks, len(positions)))
        lined_up.mapInArrow(lambda part: write_outputs(part, markers, output), SETTLED_SCHEMA).collect()
        return sum(len(ack.offsets) for ack in acks)

    def _output_options(self, rows: DataFrame) -> EnqueueOptions:
        given = self._given
        if given is None:
            origin = origin_of(rows.schema)
            assert origin is not None  # checked by options_of_batch
            given = origin.sink_options()
        return EnqueueOptions.parse({**given, **({} if self._topic is None else {"topic": self._topic})})


def _check(options: AckOptions) -> None:
    check_exactly_once("KafkaSink", options)
    if options.ack_mode is AckMode.BATCH:
        raise ConflictingOptions(
            ("KafkaSink", "ackMode"),
            "the sink acks a message in the transaction of its output",
            "leave ackMode out",
        )


def _copies(batch: DataFrame) -> DataFrame:
    return batch.select(*(name for name in (MESSAGE, "key", "value", "headers") if name in batch.columns))


def _message_id() -> list[Column]:
    return [F.col(name).cast(ACTION_COLUMNS[name]).alias(name) for name in MESSAGE_ID]


def _with_message(rows: DataFrame) -> DataFrame:
    return rows.withColumn(MESSAGE, F.struct(*_message_id())).drop(*MESSAGE_ID)


def _check_outputs(outputs: DataFrame, output: EnqueueOptions) -> None:
    require_columns(outputs.columns, [MESSAGE], "KafkaSink")
    found = outputs.schema[MESSAGE].dataType
    if not isinstance(found, StructType) or tuple(found.fieldNames()) != MESSAGE_ID:
        raise UnfitMessageColumn(
            MESSAGE, f"has the type {found.simpleString()}", "the column message of the batch"
        )
    check_columns(outputs.schema, topic=output.topic)


class _Lanes:
    """The partitions of the markers topic that have the acks of a batch. Each is written by one task."""

    def __init__(self, acks: Sequence[End], partitions: int) -> None:
        self._homes = {ack.cell: ack.cell.control_partition(partitions) for ack in acks}
        self._tasks = {home: task for task, home in enumerate(sorted(set(self._homes.values())))}

    def __len__(self) -> int:
        return len(self._tasks)

    def table(self) -> pa.Table:
        """Returns the lane and the task of each partition of the queue topics."""
        homes = self._homes.values()
        columns = [
            pa.array([cell.topic for cell in self._homes]),
            pa.array([cell.partition for cell in self._homes], pa.int32()),
            pa.array(homes, pa.int32()),
            pa.array([self._tasks[home] for home in homes], pa.int32()),
        ]
        return pa.table(columns, names=[*ID[:2], LANE, _TASK])


def _lined_up(some: DataFrame, outputs: DataFrame, output: EnqueueOptions, lanes: _Lanes) -> DataFrame:
    """Returns one row for each message, followed by the rows of its outputs. A lane is in one task."""
    columns = [name for name in MESSAGE_ROW if name in outputs.columns]
    if output.topic is not None and "topic" in columns:
        columns.remove("topic")
    # A message that the query reads twice, as after a union, is acked once.
    messages = some.select(F.struct(*_message_id()).alias(MESSAGE)).distinct()
    rows = outputs.select(MESSAGE, *columns).withColumn(ORDER, F.monotonically_increasing_id())
    every = messages.withColumn(IS_OUTPUT, F.lit(False)).unionByName(
        rows.withColumn(IS_OUTPUT, F.lit(True)), allowMissingColumns=True
    )
    own = (F.col(f"{MESSAGE}.{name}").alias(one) for name, one in zip(MESSAGE_ID, ID, strict=True))
    tasks = some.sparkSession.createDataFrame(lanes.table())
    placed = every.select(*own, IS_OUTPUT, ORDER, *columns).join(F.broadcast(tasks), list(ID[:2]), "left")
    # An output of another partition has no task. Some task refuses it.
    gathered = placed.repartitionById(len(lanes), F.coalesce(F.col(_TASK), F.lit(0)))
    return gathered.sortWithinPartitions(LANE, *ID, IS_OUTPUT, ORDER)
