"""Calls of a batch function that leave the failing rows out: ``AckSink(fn, on_error="bisect")``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import groupby
from operator import or_
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_cursor_source.consumer.action_columns import ACTION_COLUMNS, MESSAGE_ID, OUTCOME, require_values
from spark_cursor_source.core.bisection import Bisection, bisect
from spark_cursor_source.options.ack import AckAction, AckOptions
from spark_cursor_source.options.marker_format import MarkerVersion
from spark_cursor_source.spark.actions import run_action
from spark_cursor_source.spark.per_row import outcome_ddl, release_for

log = logging.getLogger(__name__)

DELIVERY = (*MESSAGE_ID, "delivery_count")
_FEW = 3  # a batch of so few rows does not show whether its messages or the surroundings of the function fail
_MOST_FAILED_BATCHES = 3

BatchFunction = Callable[[DataFrame, int], object]


class BisectedCalls:
    """Calls a batch function with all rows of a batch, and with parts of them after an exception.

    A part is settled as soon as the function has returned for it. A row on which the function fails alone is
    released with the tracker's backoff and the exception as reason, as after an exception of a ``per_row``
    handler. With V1 markers, which have no backoff, its lease is left to expire.
    """

    def __init__(self, fn: BatchFunction, max_calls: int) -> None:
        self._fn, self._max_calls = fn, max_calls
        self._failed_batches = 0  # in succession, of which no row passed

    def run(
        self, rows: DataFrame, batch_id: int, options: AckOptions, settle: Callable[[DataFrame], int]
    ) -> int:
        """Returns the number of settled rows.

        Raises the exception of the function if no row passes. A batch of up to three rows may consist of
        poison messages, so only the third such batch in succession raises.

        Raises:
            NullMessageId: a row does not identify its message.
        """
        error = self._error_of(rows, batch_id)
        if error is None:
            self._failed_batches = 0
            return settle(rows)
        parts, settled = _Parts(rows), 0
        if not parts.deliveries:
            raise error

        def call(part: range) -> Exception | None:
            nonlocal settled
            some = parts.of(part)
            why = self._error_of(some, batch_id)
            if why is None:
                settled += settle(some)
            return why

        count = len(parts.deliveries)
        found = bisect(count, error, call, suspects=parts.suspects, max_calls=self._max_calls)
        self._failed_batches = 0 if found.passed else self._failed_batches + 1
        if not found.passed and (count > _FEW or self._failed_batches >= _MOST_FAILED_BATCHES):
            raise error
        return settled + self._release(parts, found, options)

    def _error_of(self, rows: DataFrame, batch_id: int) -> Exception | None:
        try:
            self._fn(rows, batch_id)
        except Exception as why:  # noqa: BLE001 - the function may raise anything
            return why
        return None

    def _release(self, parts: _Parts, found: Bisection, options: AckOptions) -> int:
        failing = [
            (*delivery, *release_for(why)[: len(OUTCOME)])
            for part, why in found.failing
            for delivery in parts.deliveries[part.start : part.stop]
        ]
        if not failing:
            return 0
        log.warning(
            "The function of a sink raised an exception. The rows on which it fails are released. The other "
            "rows are settled. event=batch_bisected rows=%d failing=%d calls=%d why=%s",
            *(len(parts.deliveries), len(failing), found.calls, " ".join(str(failing[0][-1]).split())),
        )
        if options.marker_version is MarkerVersion.V1:
            return len(failing)  # their leases expire
        outcomes = parts.rows.sparkSession.createDataFrame(failing, outcome_ddl(options))
        return run_action(outcomes, options.settling_each().by_columns())


class _Delivery(NamedTuple):
    """A message, by the columns ``DELIVERY``."""

    topic: str
    partition: int
    offset: int
    delivery_count: int


class _Parts:
    """The messages of a batch in an order of their own: those delivered before, then by partition and offset.

    All rows of a message are in the same part.
    """

    def __init__(self, rows: DataFrame) -> None:
        self.rows = rows
        table = rows.select(*(F.col(name).cast(ACTION_COLUMNS[name]) for name in DELIVERY)).toArrow()
        require_values(table, DELIVERY, AckAction.ACK.value)
        lists = (table.column(name).to_pylist() for name in DELIVERY)
        self.deliveries: Sequence[_Delivery] = sorted(
            set(map(_Delivery._make, zip(*lists, strict=True))), key=lambda one: (*_group_of(one), one.offset)
        )
        self.suspects = sum(one.delivery_count > 1 for one in self.deliveries)

    def of(self, part: range) -> DataFrame:
        """Returns the rows of the messages with these numbers."""
        spans = [list(same) for _, same in groupby(self.deliveries[part.start : part.stop], _group_of)]
        return self.rows.where(reduce(or_, map(_is_in, spans)))


def _group_of(delivery: _Delivery) -> tuple[Any, ...]:
    return delivery.delivery_count == 1, delivery.topic, delivery.partition


def _is_in(span: Sequence[_Delivery]) -> Column:
    """Returns the condition for the rows of a span: rows of one group, which follow each other."""
    first, last = span[0], span[-1]
    return (
        (F.col("topic") == first.topic)
        & (F.col("partition") == first.partition)
        & F.col("offset").between(first.offset, last.offset)
        & ((F.col("delivery_count") == 1) == F.lit(first.delivery_count == 1))
    )
