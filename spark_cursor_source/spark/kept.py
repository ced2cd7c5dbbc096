"""A batch that is computed once, whatever is done with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame


@contextmanager
def kept(df: DataFrame) -> Iterator[DataFrame]:
    """``df`` with its rows kept, in memory or on local disk, from the first action on it to the block's end.

    A local checkpoint keeps the rows as they come, which costs a copy; ``persist`` would turn them into
    columns and back, which costs about as much as reading Kafka again. Rows that an executor takes along when
    it dies are not computed again: the batch fails, and its replay delivers what is not acked.
    """
    rows = df.localCheckpoint(eager=False)
    try:
        yield rows
    finally:
        _drop(rows)


def _drop(rows: DataFrame) -> None:
    # Spark would drop them when the garbage collector finds the plan, which for a stream is too late.
    jdf: Any = rows._jdf
    jdf.logicalPlan().rdd().unpersist(False)
