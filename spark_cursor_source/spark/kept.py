"""A batch that is computed once, whatever is done with it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

log = logging.getLogger(__name__)


@contextmanager
def kept(df: DataFrame) -> Iterator[DataFrame]:
    """``df`` with its rows kept, in memory or on local disk, from the first action on it to the block's end.

    A local checkpoint keeps the rows as they come, which costs a copy; ``persist`` would turn them into
    columns and back, which costs about as much as reading Kafka again. Rows that an executor takes along when
    it dies are not computed again: the batch fails, and its replay delivers what is not acked.

    A server that keeps nothing, as serverless compute, computes the rows again for every action.
    """
    rows = _keep(df)
    try:
        yield df if rows is None else rows
    finally:
        if rows is not None:
            _drop(rows)


@contextmanager
def computed_once(df: DataFrame) -> Iterator[DataFrame]:
    """:func:`kept`, where nothing may be computed twice: a server that keeps nothing sends the rows here."""
    rows = _keep(df)
    if rows is None:
        yield df.sparkSession.createDataFrame(df.toArrow(), schema=df.schema)
        return
    try:
        yield rows
    finally:
        _drop(rows)


def _keep(df: DataFrame) -> DataFrame | None:
    try:
        return df.localCheckpoint(eager=False)
    except PySparkException as refused:
        log.warning("batch_not_kept why=%s", str(refused).partition("\n")[0][:200])
        return None


def _drop(rows: DataFrame) -> None:
    # Spark would drop them when the garbage collector finds the plan, which for a stream is too late. A
    # client of Spark Connect has no hold of the plan, and tells the server when the DataFrame is gone.
    jdf: Any = getattr(rows, "_jdf", None)
    if jdf is not None:
        jdf.logicalPlan().rdd().unpersist(False)
