"""AckSink: a foreachBatch function that acks what your function has dealt with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StructType

from spark_cursor_source.consumer.ack_check import check_cells
from spark_cursor_source.consumer.message_id import needed_columns, require_columns
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import EMPTY
from spark_cursor_source.errors import AckedBySource, OptionsNotCarried
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.options.ack import AckAction, AckOptions
from spark_cursor_source.options.marker_format import MarkerVersion
from spark_cursor_source.options.source import AckMode
from spark_cursor_source.spark.ack_batch import ack_batch
from spark_cursor_source.spark.actions import SETTLED_SCHEMA, markers_partitions, run_action
from spark_cursor_source.spark.kept import computed_once, kept
from spark_cursor_source.spark.per_row import Handler, handle, handle_and_settle, outcome_ddl, outcome_ids
from spark_cursor_source.spark.schema import origin_of
from spark_cursor_source.spark.travel import check_travels

BatchFunction = Callable[[DataFrame, int], object]


class AckSink:
    """``foreachBatch(AckSink(fn))``: ``fn(batch_df, batch_id)`` returns and every row is acked.

    The options of the source come with its rows, but for secrets: a source that has some has its sink given
    the same ``options``. A sink of another subscription is refused before ``fn`` is called.

    ``fn`` raises and nothing is acked: the query fails as Spark queries do, and the leases bring the messages
    back. With ``persist`` (the default) the batch is kept while ``fn`` runs, so that several actions on it
    read Kafka once. Acks are durable before Spark hears that the batch is done.

    Raises:
        AckedBySource: the options say that the source acks.
    """

    def __init__(
        self, fn: BatchFunction, options: Mapping[str, str] | None = None, *, persist: bool = True
    ) -> None:
        self._fn = fn
        self._options = _options(options)
        self._persist = persist
        self._is_checked = False

    @classmethod
    def per_row(
        cls,
        fn: Handler,
        options: Mapping[str, str] | None = None,
        *,
        then: BatchFunction | None = None,
        result: str | None = None,
    ) -> PerRowSink:
        """A sink that calls ``fn(message)`` on the executors, where ``message`` has the row's fields.

        ``fn`` returns None or True to ack, False to release now, ``Release(delay="30s")``,
        ``Reject("reason")`` or ``Leave()``. An exception releases that row with the tracker's backoff and the
        exception as its reason (with V1 markers, which know neither, it leaves the row to its lease); the
        others go on.

        ``then(outcomes, batch_id)`` is given a row for each message: topic, partition, offset,
        delivery_count, action, delay_ms, reason (before them key, with V1 markers), and ``result`` where its
        type is given in DDL: then ``fn`` may return a value of that type, which acks. The outcomes count only
        after ``then`` has returned, so a result is written before its message is acked.
        """
        return PerRowSink(fn, options, then=then, result=result)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Spark's foreachBatch function."""
        # All that can be refused is refused here: what fn has done once would be done again.
        options = options_of(batch.schema, self._options)
        action = (options.action or AckAction.ACK).value
        require_columns(batch.columns, needed_columns(options), action)
        markers_partitions(options)  # names a missing right
        with kept(batch) if self._persist else nullcontext(batch) as rows:
            self._is_checked = self._is_checked or check_cells_of(rows, options)
            self._fn(rows, batch_id)
            self._settle(rows, options)

    def _settle(self, batch: DataFrame, options: AckOptions) -> None:
        if options.action not in (None, AckAction.ACK):
            run_action(batch, options)
        elif options.marker_version is MarkerVersion.V1:
            run_action(batch, replace(options, action=AckAction.ACK))
        else:
            ack_batch(batch, options)


class PerRowSink:
    """What :meth:`AckSink.per_row` returns: a foreachBatch function."""

    def __init__(
        self,
        fn: Handler,
        options: Mapping[str, str] | None = None,
        *,
        then: BatchFunction | None = None,
        result: str | None = None,
    ) -> None:
        check_travels(fn)
        self._fn = fn
        self._options = _options(options)
        self._then = then
        self._result = result
        self._is_checked = False

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Spark's foreachBatch function."""
        fn, options = self._fn, options_of(batch.schema, self._options)
        ids = outcome_ids(options)
        require_columns(batch.columns, ids, "per_row")
        self._is_checked = self._is_checked or check_cells_of(batch, options)
        if self._then is None and self._result is None:
            partitions = markers_partitions(options)
            batch.mapInArrow(
                lambda rows: handle_and_settle(rows, fn, options, partitions), SETTLED_SCHEMA
            ).collect()
            return
        result_type: Any = None
        schema = outcome_ddl(options)
        if self._result is not None:
            result_type = to_arrow_type(DataType.fromDDL(self._result))
            schema = f"{schema}, result {self._result}"
        outcomes = batch.mapInArrow(lambda rows: handle(rows, fn, ids, result_type), schema)
        # Kept, because the handler must not be called once for the write and once for the acks.
        with computed_once(outcomes) as rows:
            if self._then is not None:
                self._then(rows, batch_id)
            run_action(rows, options)


def options_of(schema: StructType, given: AckOptions | None) -> AckOptions:
    """The options of a sink for rows of such a schema: those given, or those of the rows' own source.

    Raises:
        SinkOfAnotherSource: those given are for another subscription, markers topic or marker format.
        OptionsNotCarried: none are given, and the rows do not carry all that their source has.
        AckedBySource: the source acks by itself.
    """
    origin = origin_of(schema)
    if origin is None:
        if given is None:
            raise OptionsNotCarried(())
        return given
    options = AckOptions.parse(origin.sink_options()) if given is None else given
    origin.check(options)
    return replace(options, cursors_topic=None)


def check_cells_of(rows: DataFrame, options: AckOptions) -> bool:
    """Look, once for a query whose rows do not say their source, whether the subscription reads them.

    False where there was no row to look at.

    Raises:
        UnknownSubscription, NotOfSubscription: it does not, so its acks would end nothing.
    """
    if options.cursors_topic is None or options.marker_version is MarkerVersion.V1:
        return True
    places = rows.select(F.col("topic").cast("string"), F.col("partition").cast("int")).distinct().collect()
    cells = [
        Cell(subscription=options.subscription, topic=place.topic, partition=place.partition)
        for place in places
        if None not in place
    ]
    config = client_config(options.kafka, "consumer")
    check_cells(config, options.cursors_topic, options.markers_topic, dict.fromkeys(cells, EMPTY))
    return bool(cells)


def _options(options: Mapping[str, str] | None) -> AckOptions | None:
    if options is None:
        return None
    parsed = AckOptions.parse(options)
    if parsed.ack_mode is not AckMode.INDIVIDUAL:
        raise AckedBySource(parsed.ack_mode.value)
    return parsed
