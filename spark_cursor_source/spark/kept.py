"""Keeps a batch, so that several actions compute its rows once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from spark_cursor_source.spark.classic import drop_checkpoint

log = logging.getLogger(__name__)


@contextmanager
def kept(df: DataFrame) -> Iterator[DataFrame]:
    """Keeps the rows of ``df`` in memory or on local disk, from the first action to the end of the block.

    A local checkpoint stores rows unchanged at the cost of a copy. ``persist`` would convert the rows to
    columns and back, which costs about as much as another Kafka read. If an executor dies, its rows are not
    recomputed: the batch fails, and its replay delivers the messages that are not acked.

    A server without local checkpoints, such as serverless compute, computes the rows again for every action.
    """
    rows = _keep(df)
    try:
        yield df if rows is None else rows
    finally:
        if rows is not None:
            drop_checkpoint(rows)


@contextmanager
def computed_once(df: DataFrame) -> Iterator[DataFrame]:
    """Keeps rows like :func:`kept`, but never computes rows twice.

    If the server cannot keep the rows, they are collected to this process.
    """
    rows = _keep(df)
    if rows is None:
        yield df.sparkSession.createDataFrame(df.toArrow(), schema=df.schema)
        return
    try:
        yield rows
    finally:
        drop_checkpoint(rows)


def _keep(df: DataFrame) -> DataFrame | None:
    try:
        return df.localCheckpoint(eager=False)
    except PySparkException as refused:
        log.warning(
            "The batch cannot be persisted, so each action reads Kafka again. "
            "event=batch_not_persisted why=%s",
            str(refused).partition("\n")[0][:200],
        )
        return None
