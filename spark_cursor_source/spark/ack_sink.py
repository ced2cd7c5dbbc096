"""AckSink: foreachBatch functions that ack the messages processed by an application's function."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StructType

from spark_cursor_source._features import require_library
from spark_cursor_source.consumer.ack_check import check_cells
from spark_cursor_source.consumer.action_columns import MESSAGE_ID, ActionColumns, require_columns
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import EMPTY
from spark_cursor_source.core.subscription_type import SubscriptionType
from spark_cursor_source.errors import (
    AckedBySource,
    ConflictingOptions,
    InvalidOption,
    OptionsNotCarried,
    RowsOfTwoSources,
)
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.metrics.traces import batch_span, carrier_of_current_span, traced
from spark_cursor_source.options.ack import AckAction, AckOptions, check_settled_by_sink
from spark_cursor_source.options.marker_format import MarkerVersion
from spark_cursor_source.options.source import AckMode, Ordering
from spark_cursor_source.spark.ack_batch import ack_batch
from spark_cursor_source.spark.actions import (
    SETTLED_SCHEMA,
    difference_of_sources,
    markers_of,
    markers_partitions,
    run_action,
    topic_ids_of,
)
from spark_cursor_source.spark.bisected import DELIVERY, BatchFunction, BisectedCalls
from spark_cursor_source.spark.classic import may_be_shuffled, reads_a_source, recognizable_stop, rows_read
from spark_cursor_source.spark.handler_calls import Handling
from spark_cursor_source.spark.handler_times import count_handler_times
from spark_cursor_source.spark.handling import handle, handle_and_settle
from spark_cursor_source.spark.kept import computed_once, kept
from spark_cursor_source.spark.per_row import Handler, action_of, outcome_ddl, outcome_ids
from spark_cursor_source.spark.schema import origin_of
from spark_cursor_source.spark.sink_arguments import (
    check_at_least,
    check_is_true_or_false,
    check_not_blank,
    check_takes,
    check_travels,
    short_duration_ms,
)

log = logging.getLogger(__name__)


class BatchSink(ABC):
    """ForeachBatch function that processes and settles whole batches.

    ``persist`` keeps the batch while it is processed. None: unless the source acks.
    """

    def __init__(self, options: Mapping[str, str] | None, *, persist: bool | None) -> None:
        self._options = _options(options)
        self._persist = persist
        self._is_checked = False
        self._drops_rows = False

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Processes one micro-batch. Spark calls this foreachBatch function."""
        with recognizable_stop(batch):
            self._process(batch, batch_id)

    def _process(self, batch: DataFrame, batch_id: int) -> None:
        # All checks run before the batch is processed. After a later failure, the retried batch would repeat
        # what was done.
        options = options_of_batch(batch, self._options)
        self._check_columns(batch.columns, options)
        markers_partitions(options)  # raises NotAuthorized for missing rights
        acks = options.ack_mode is AckMode.INDIVIDUAL
        persist = acks if self._persist is None else self._persist
        with kept(batch) if persist else nullcontext(batch) as rows:
            self._is_checked = self._is_checked or check_cells_of(rows, options)
            settled = self._call(rows, batch_id, options)
            # Without persist, each action reads the rows once more, so that their number says nothing.
            if acks and persist and not self._drops_rows:
                self._drops_rows = report_dropped(batch, settled)

    def _check_columns(self, columns: Sequence[str], options: AckOptions) -> None:
        ActionColumns.of(replace(options, action=options.action or AckAction.ACK), columns)

    @abstractmethod
    def _call(self, rows: DataFrame, batch_id: int, options: AckOptions) -> int:
        """Processes the rows of a batch. Returns the number of settled messages."""


class AckSink(BatchSink):
    """Acks every row of a batch after ``fn(batch_df, batch_id)`` returns: ``foreachBatch(AckSink(fn))``.

    The rows carry the options of their source, except secrets. If the source has secret options, pass the
    same ``options`` to the sink. A sink for another subscription is refused before ``fn`` is called.

    If ``fn`` raises, no row is acked and the query fails. The messages are redelivered when their leases
    expire. With ``persist`` (the default), the batch is kept while ``fn`` runs, so that several actions on
    the batch read Kafka once. Acks are durable before Spark commits the batch.

    With ``on_error="bisect"``, as with ``BisectBatchOnFunctionError`` of AWS Lambda, an exception of ``fn``
    does not fail the query. ``fn`` is called again with parts of the batch, until the failing rows are alone.
    Messages that were delivered before are tried apart from the others. A part is acked as soon as ``fn`` has
    returned for it. A row that fails alone is released with the tracker's backoff and the exception as
    reason. So ``fn`` must tolerate rows that it has seen in a call that failed. The order of messages across
    the parts is undefined.

    ``fn`` is called at most ``max_calls`` times for a batch. When the calls run out, the rows that no call
    has passed are released too. If three rows that are tried alone all fail, the failure is an outage and not
    a message: the exception is raised and no row is acked. For batches of up to three rows, the third such
    batch in succession raises.

    With ``ackMode=batch`` the source acks the batch after Spark has committed it, and also the messages that
    a filter dropped. The sink then reads nothing and writes no acks, and ``persist`` is off by default.
    Messages that ``fn`` releases or rejects with the functions of this package are not acked.

    Example::

        from spark_cursor_source import AckSink

        def save(batch, batch_id):
            batch.write.mode("append").saveAsTable("orders")

        sink = AckSink(save, on_error="bisect")

    Raises:
        AckedBySource: the source would also end the messages that the sink gives back: with
            ``ackMode=cumulative``, or ``batch`` with V1 markers.
        InvalidOption: ``on_error`` is neither "raise" nor "bisect", ``max_calls`` is below 5, ``persist`` is
            neither True nor False, or ``fn`` does not take a batch and its id.
        ConflictingOptions: ``on_error="bisect"`` with ``persist=False``, or with ordering=key.
    """

    def __init__(
        self,
        fn: BatchFunction,
        options: Mapping[str, str] | None = None,
        *,
        persist: bool | None = None,
        on_error: str = "raise",
        max_calls: int = 64,
    ) -> None:
        if on_error not in ("raise", "bisect"):
            raise InvalidOption("on_error", on_error, "it is neither raise nor bisect", "give one of them")
        check_takes("fn", fn, "batch", "batch_id")
        if persist is not None:
            check_is_true_or_false("persist", persist)
        bisects = on_error == "bisect"
        if bisects and persist is False:
            raise ConflictingOptions(
                ("on_error", "persist"), "each call would read Kafka again", "leave persist out"
            )
        # The first call, three rows alone and one more.
        most = check_at_least("max_calls", max_calls, 5)
        self._calls = BisectedCalls(fn, most) if bisects else None
        self._fn = fn
        super().__init__(options, persist=True if bisects else persist)

    @classmethod
    def per_row(
        cls,
        fn: Handler,
        options: Mapping[str, str] | None = None,
        *,
        then: BatchFunction | None = None,
        result: str | None = None,
        concurrency: int = 1,
        timeout: str | None = None,
        flush: str = "1s",
        stragglers: str | None = None,
        resources: Callable[[], Any] | None = None,
        tracer: Callable[[], Any] | None = None,
    ) -> PerRowSink:
        """Returns a sink that calls ``fn(message)`` on the executors. ``message`` has the row's fields.

        ``fn`` returns None or True to ack, False to release immediately, ``Release(delay="30s")``,
        ``Reject("reason")`` or ``Leave()``. An exception releases its row with the tracker's backoff and the
        exception as reason. Other rows are not affected. With V1 markers, which have no backoff and no
        reason, the lease of the failed row is left to expire.

        Outcomes are settled every ``flush`` (a duration) while the task runs, and at its end. If the task
        fails or its executor dies, its next attempt skips the messages whose outcomes were flushed, except
        with V1 markers. So a crash repeats about a second of work. An outcome counts when the brokers have
        confirmed it. A failed flush is tried again, and fails the task if it fails at the end of the task.

        With ``ackMode=batch`` the source acks after Spark has committed the batch, and only the other
        outcomes are settled here: releases, rejects, exceptions, ``Leave()`` and stragglers. The next attempt
        of a failed task then repeats the handler calls that acked.

        ``concurrency`` is the number of messages of a task that are handled at once: in threads, or in an
        event loop if ``fn`` is an ``async def``. The order of messages is then undefined, except that with
        ``subscriptionType=key_shared`` the messages of a key are handled one after another. Messages
        without a key count as one key.

        With ``ordering=key``, as in FIFO queues of SQS, the messages of a key are handled in the order of
        their offsets. A message that is not acked or rejected holds back the later messages of its key. They
        are not handled, their delivery does not count, and they come again when the message has ended. The
        query must not shuffle the rows before the sink.

        ``timeout`` (a duration, at least 100ms) gives up a message whose handler does not return in time.
        Such a message is released like after an exception. A coroutine is cancelled. A thread cannot be
        ended: it goes on beside another thread that takes its place, and its outcome is ignored.

        ``stragglers`` (a duration) limits how long a task waits for its last handlers after it has begun all
        messages. Handlers that still run go on in their worker process after the batch. The worker extends
        the leases of their messages and settles their outcomes. If the worker dies before, the messages are
        redelivered when their leases expire. Without ``stragglers``, or without Spark's
        ``spark.python.worker.reuse`` (on by default), a batch waits for all of its handlers.

        ``resources()`` is called once in each Python worker, and its result is the second argument of
        ``fn``. A context manager is entered, and exited when the worker ends, unless it is killed. For an
        ``async def``, ``resources`` is called in the event loop and may return an asynchronous context
        manager.

        ``then(outcomes, batch_id)`` receives one row per message: topic, partition, offset, delivery_count,
        action, delay_ms, reason. With V1 markers, the column key precedes them. ``result`` is a DDL type. If
        ``result`` is given, the rows have a column ``result``, and ``fn`` may return a value of that type,
        which acks. The outcomes are settled after ``then`` returns, so a result is written before its message
        is acked. Nothing is flushed before, and an attempt of a task repeats the whole task.

        ``tracer()`` returns a tracer of OpenTelemetry, on the driver and once in each task. Each batch is
        then a span, and each call of ``fn`` a span below it, which links to the span in the message's header
        ``traceparent`` (read with ``includeHeaders``). Without ``tracer``, nothing is traced.

        Example::

            from spark_cursor_source import AckSink, Reject

            def charge(message):
                return Reject("empty") if not message.value else None

            sink = AckSink.per_row(charge, concurrency=64, timeout="30s")

        Raises:
            HandlerNotPicklable: ``fn`` or ``resources`` cannot be sent to the executors.
            InvalidOption: concurrency is below 1, a duration is no duration or too short, a function takes
                other arguments, or ``result`` is no text.
            ConflictingOptions: ``stragglers`` with ``then``, ``result``, key_shared or ordering=key.
            KeyOrderLost: with ordering=key, the rows of a key do not arrive in the order of their offsets.
            AckedBySource: the source would also end the messages that the handler gives back.
        """
        check_takes("fn", fn, "message", *([] if resources is None else ["resource"]))
        if resources is not None:
            check_takes("resources", resources)
        if then is not None:
            check_takes("then", then, "outcomes", "batch_id")
        if tracer is not None:
            check_takes("tracer", tracer)
        if result is not None:
            check_not_blank("result", result, "a DDL type, such as 'STRING' or 'id BIGINT, total DOUBLE'")
        handling = Handling(
            fn=fn,
            concurrency=check_at_least("concurrency", concurrency, 1),
            timeout_ms=None if timeout is None else short_duration_ms("timeout", timeout),
            flush_ms=short_duration_ms("flush", flush),
            stragglers_ms=None if stragglers is None else short_duration_ms("stragglers", stragglers),
            resources=resources,
            name=uuid4().hex,
            has_result=result is not None,
        )
        if stragglers is not None and (then is not None or result is not None):
            raise ConflictingOptions(
                ("stragglers", "then"),
                "the outcomes are settled after all of them are written",
                "leave stragglers out",
            )
        return PerRowSink(handling, options, then=then, result=result, tracer=tracer)

    def _check_columns(self, columns: Sequence[str], options: AckOptions) -> None:
        super()._check_columns(columns, options)
        if self._calls is not None:
            require_columns(columns, DELIVERY, "on_error=bisect")

    def _call(self, rows: DataFrame, batch_id: int, options: AckOptions) -> int:
        if self._calls is not None:
            if ordering(rows.schema, options) is Ordering.KEY:
                raise ConflictingOptions(
                    ("on_error", "ordering"),
                    "bisection handles later messages of a key before an earlier one that fails",
                    "leave on_error out, or use AckSink.per_row",
                )
            return self._calls.run(rows, batch_id, options, lambda part: self._settle(part, options))
        self._fn(rows, batch_id)
        return self._settle(rows, options)

    def _settle(self, batch: DataFrame, options: AckOptions) -> int:
        if options.action not in (None, AckAction.ACK):
            return run_action(batch, options)
        if options.ack_mode is AckMode.BATCH:
            return 0
        if options.marker_version is MarkerVersion.V1:
            return run_action(batch, replace(options, action=AckAction.ACK))
        return ack_batch(batch, options)


class PerRowSink:
    """ForeachBatch function of :meth:`AckSink.per_row`."""

    def __init__(
        self,
        handling: Handling,
        options: Mapping[str, str] | None = None,
        *,
        then: BatchFunction | None = None,
        result: str | None = None,
        tracer: Callable[[], Any] | None = None,
    ) -> None:
        if tracer is not None:
            require_library("opentelemetry", what="A tracer")
        for function in (handling.fn, handling.resources, tracer):
            if function is not None:
                check_travels(function)
        self._handling = handling
        self._options = _options(options)
        self._then = then
        self._result = result
        self._tracer = tracer
        self._is_checked = False
        self._drops_rows = False

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Processes one micro-batch. Spark calls this foreachBatch function."""
        with recognizable_stop(batch):
            self._process(batch, batch_id)

    def _process(self, batch: DataFrame, batch_id: int) -> None:
        options = options_of_batch(batch, self._options).by_columns()
        ids = outcome_ids(options)
        in_order = ordering(batch.schema, options) is Ordering.KEY
        by_key = in_order or subscription_type(batch.schema, options) is SubscriptionType.KEY_SHARED
        require_columns(batch.columns, (*ids, "key") if by_key else ids, "per_row")
        handling = replace(self._handling, by_key=by_key, in_order=in_order)
        if by_key and handling.stragglers_ms is not None:
            raise ConflictingOptions(
                ("stragglers", "ordering" if in_order else "subscriptionType"),
                "a message of a key is handled after the one before it, also in the next batch",
                "leave stragglers out, or give subscriptionType=shared and no ordering",
            )
        self._is_checked = self._is_checked or check_cells_of(batch, options)
        if self._tracer is None:
            self._handle(batch, batch_id, options, handling)
            return
        with batch_span(self._tracer(), subscription=options.subscription, batch_id=batch_id):
            fn = traced(
                handling.fn,
                self._tracer,
                subscription=options.subscription,
                parent=carrier_of_current_span(),
                action_of=partial(action_of, has_result=handling.has_result),
            )
            self._handle(batch, batch_id, options, replace(handling, fn=fn))

    def _handle(self, batch: DataFrame, batch_id: int, options: AckOptions, handling: Handling) -> None:
        """Has the handler called for each row of a batch, and settles the outcomes."""
        ids = outcome_ids(options)
        if self._then is None and self._result is None:
            markers = replace(markers_of(options), after_shuffle=may_be_shuffled(batch))
            tasks = batch.mapInArrow(
                lambda rows: handle_and_settle(rows, handling, markers), SETTLED_SCHEMA
            ).collect()
            for task in tasks:
                count_handler_times(options.subscription, task.handler_times)
            if handling.stragglers_ms is None:
                self._report_dropped(batch, options, sum(task.settled for task in tasks))
            return
        result_type: Any = None
        schema = outcome_ddl(options)
        if self._result is not None:
            result_type = to_arrow_type(DataType.fromDDL(self._result))
            schema = f"{schema}, result {self._result}"
        outcomes = batch.mapInArrow(lambda rows: handle(rows, handling, ids, result_type), schema)
        # The outcomes are kept, so that the write and the acks do not each call the handler.
        with computed_once(outcomes) as rows:
            if self._then is not None:
                self._then(rows, batch_id)
            self._report_dropped(batch, options, run_action(rows, options))

    def _report_dropped(self, batch: DataFrame, options: AckOptions, settled: int) -> None:
        if options.ack_mode is AckMode.INDIVIDUAL and not self._drops_rows:
            self._drops_rows = report_dropped(batch, settled)


def report_dropped(batch: DataFrame, settled: int) -> bool:
    """Logs that a batch had more messages than the sink has settled. False if it is not known to have."""
    delivered = rows_read(batch)
    if delivered is None or delivered <= settled:
        return False
    log.warning(
        "A batch had more messages than its sink has acked. The query drops rows before the sink, with a "
        "filter, a join or dropDuplicates. Their messages are redelivered when their leases expire. Filter "
        "in the function of the sink, or set ackMode=batch. "
        "event=dropped_rows_not_acked delivered=%d acked=%d",
        *(delivered, settled),
    )
    return True


def options_of_batch(batch: DataFrame, given: AckOptions | None) -> AckOptions:
    """Returns the sink options for a batch, like :func:`options_of`, with the ids of its queue topics.

    Raises:
        AckedBySource: the rows were acked before, by the source of another query that has stored them.
        RowsOfTwoSources: the batch is a union of sources that are not settled alike.
        SinkOfAnotherSource, OptionsNotCarried
    """
    origin = origin_of(batch.schema)
    if origin is not None and (difference := difference_of_sources(batch, origin)) is not None:
        raise RowsOfTwoSources(*difference)
    options = options_of(batch.schema, given)
    if options.ack_mode is AckMode.BATCH and reads_a_source(batch) is False:
        mode, version = options.ack_mode.value, options.marker_version.value
        raise AckedBySource(mode, version, "AckSink in a query that does not read the queue itself")
    return replace(options, topic_ids=topic_ids_of(batch))


def options_of(schema: StructType, given: AckOptions | None) -> AckOptions:
    """Returns the sink options for rows of this schema: ``given``, or the options carried by the rows.

    Raises:
        SinkOfAnotherSource: ``given`` is for another subscription, markers topic or marker format.
        MissingColumns: ``given`` is None, and a column of the message id is missing.
        OptionsNotCarried: ``given`` is None, and the rows do not carry all options of their source.
        AckedBySource: the source would also end the messages that the sink gives back.
    """
    origin = origin_of(schema)
    if origin is None:
        if given is None:
            require_columns(schema.names, MESSAGE_ID, "A settlement")
            raise OptionsNotCarried(())
        return given
    options = AckOptions.parse(origin.sink_options()) if given is None else given
    origin.check(options)
    return replace(options, cursors_topic=None, ack_mode=origin.ack_mode)


def subscription_type(schema: StructType, options: AckOptions) -> SubscriptionType:
    """Returns the subscription type of the rows' source, or that of the options for other rows."""
    origin = origin_of(schema)
    return options.subscription_type if origin is None else origin.subscription_type


def ordering(schema: StructType, options: AckOptions) -> Ordering:
    """Returns the ordering of the rows' source, or that of the options for other rows."""
    origin = origin_of(schema)
    return options.ordering if origin is None else origin.ordering


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
    check_settled_by_sink(parsed.ack_mode, parsed.marker_version)
    return parsed
