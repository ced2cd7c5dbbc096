"""AckSink: a foreachBatch function that acks what your function has dealt with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType

from spark_cursor_source.core.ack_options import AckAction, AckOptions
from spark_cursor_source.core.marker_version import MarkerVersion
from spark_cursor_source.core.source_options import AckMode
from spark_cursor_source.errors import AckedBySource, MissingColumns
from spark_cursor_source.spark.ack_words import ack_batch
from spark_cursor_source.spark.actions import SETTLED_SCHEMA, markers_partitions, run_action
from spark_cursor_source.spark.kept import kept
from spark_cursor_source.spark.per_row import Handler, handle, handle_and_settle, outcome_ddl, outcome_ids
from spark_cursor_source.spark.travel import check_travels

BatchFunction = Callable[[DataFrame, int], object]


class AckSink:
    """``foreachBatch(AckSink(fn, options))``: ``fn(batch_df, batch_id)`` returns and every row is acked.

    ``fn`` raises and nothing is acked: the query fails as Spark queries do, and the leases bring the messages
    back. With ``persist`` (the default) the batch is kept while ``fn`` runs, so that several actions on it
    read Kafka once. Acks are durable before Spark hears that the batch is done.

    Raises:
        AckedBySource: the options say that the source acks.
    """

    def __init__(self, fn: BatchFunction, options: Mapping[str, str], *, persist: bool = True) -> None:
        self._fn = fn
        self._options = _options(options)
        self._persist = persist

    @classmethod
    def per_row(
        cls,
        fn: Handler,
        options: Mapping[str, str],
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
        markers_partitions(self._options)  # a right that is missing is told before anything is done
        if not self._persist:
            self._fn(batch, batch_id)
            self._settle(batch)
            return
        with kept(batch) as rows:
            self._fn(rows, batch_id)
            self._settle(rows)

    def _settle(self, batch: DataFrame) -> None:
        options = self._options
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
        options: Mapping[str, str],
        *,
        then: BatchFunction | None = None,
        result: str | None = None,
    ) -> None:
        check_travels(fn)
        self._fn = fn
        self._options = _options(options)
        self._then = then
        self._result = result

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Spark's foreachBatch function."""
        ids = outcome_ids(self._options)
        missing = tuple(name for name in ids if name not in batch.columns)
        if missing:
            raise MissingColumns("per_row", missing, tuple(batch.columns))
        fn, options = self._fn, self._options
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
        with kept(outcomes) as rows:
            if self._then is not None:
                self._then(rows, batch_id)
            run_action(rows, options)


def _options(options: Mapping[str, str]) -> AckOptions:
    parsed = AckOptions.parse(options)
    if parsed.ack_mode is not AckMode.INDIVIDUAL:
        raise AckedBySource(parsed.ack_mode.value)
    return parsed
