"""AckSink: foreachBatch functions that ack the messages processed by an application's function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pickle import PicklingError
from typing import Any

from pyspark.cloudpickle import dumps
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StructType

from spark_cursor_source.consumer.ack_check import check_cells
from spark_cursor_source.consumer.message_id import needed_columns, require_columns
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import EMPTY
from spark_cursor_source.errors import AckedBySource, HandlerNotPicklable, OptionsNotCarried
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.options.ack import AckAction, AckOptions
from spark_cursor_source.options.marker_format import MarkerVersion
from spark_cursor_source.options.source import AckMode
from spark_cursor_source.spark.ack_batch import ack_batch
from spark_cursor_source.spark.actions import SETTLED_SCHEMA, markers_partitions, run_action
from spark_cursor_source.spark.kept import computed_once, kept
from spark_cursor_source.spark.per_row import Handler, handle, handle_and_settle, outcome_ddl, outcome_ids
from spark_cursor_source.spark.schema import origin_of


def check_travels(function: Callable[..., Any]) -> None:
    """Refuses a function that cannot be pickled to executors.

    Raises:
        HandlerNotPicklable
    """
    try:
        dumps(function)  # type: ignore[no-untyped-call]  # pyspark does not annotate it
    except (AttributeError, PicklingError, PySparkException, RecursionError, TypeError, ValueError) as why:
        name = getattr(function, "__qualname__", type(function).__name__)
        raise HandlerNotPicklable(name, str(why)) from why


BatchFunction = Callable[[DataFrame, int], object]


class AckSink:
    """Acks every row of a batch after ``fn(batch_df, batch_id)`` returns: ``foreachBatch(AckSink(fn))``.

    The rows carry the options of their source, except secrets. If the source has secret options, pass the
    same ``options`` to the sink. A sink for another subscription is refused before ``fn`` is called.

    If ``fn`` raises, no row is acked and the query fails. The messages are redelivered when their leases
    expire. With ``persist`` (the default), the batch is kept while ``fn`` runs, so that several actions on
    the batch read Kafka once. Acks are durable before Spark commits the batch.

    Raises:
        AckedBySource: the options select an ack mode in which the source acks.
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
        """Returns a sink that calls ``fn(message)`` on the executors. ``message`` has the row's fields.

        ``fn`` returns None or True to ack, False to release immediately, ``Release(delay="30s")``,
        ``Reject("reason")`` or ``Leave()``. An exception releases its row with the tracker's backoff and the
        exception as reason. Other rows are not affected. With V1 markers, which have no backoff and no
        reason, the lease of the failed row is left to expire.

        ``then(outcomes, batch_id)`` receives one row per message: topic, partition, offset, delivery_count,
        action, delay_ms, reason. With V1 markers, the column key precedes them. ``result`` is a DDL type. If
        ``result`` is given, the rows have a column ``result``, and ``fn`` may return a value of that type,
        which acks. The outcomes are settled after ``then`` returns, so a result is written before its message
        is acked.
        """
        return PerRowSink(fn, options, then=then, result=result)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Processes one micro-batch. Spark calls this foreachBatch function."""
        # All checks run before fn. After a later failure, the retried batch would repeat the effects of fn.
        options = options_of(batch.schema, self._options)
        action = (options.action or AckAction.ACK).value
        require_columns(batch.columns, needed_columns(options), action)
        markers_partitions(options)  # raises NotAuthorized for missing rights
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
    """ForeachBatch function of :meth:`AckSink.per_row`."""

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
        """Processes one micro-batch. Spark calls this foreachBatch function."""
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
        # The outcomes are kept, so that the write and the acks do not each call the handler.
        with computed_once(outcomes) as rows:
            if self._then is not None:
                self._then(rows, batch_id)
            run_action(rows, options)


def options_of(schema: StructType, given: AckOptions | None) -> AckOptions:
    """Returns the sink options for rows of this schema: ``given``, or the options carried by the rows.

    Raises:
        SinkOfAnotherSource: ``given`` is for another subscription, markers topic or marker format.
        OptionsNotCarried: ``given`` is None, and the rows do not carry all options of their source.
        AckedBySource: the source acks its own messages.
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
    """Checks that the subscription reads the partitions of the rows. False if no row was available to check.

    The check is needed once per query, and only for rows that do not carry their source.

    Raises:
        UnknownSubscription, NotOfSubscription: the subscription does not read these partitions, so its acks
            would have no effect.
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
