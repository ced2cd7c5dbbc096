"""Knowledge about the plan of a batch, which only a classic session gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_cursor_source.spark.classic import may_be_shuffled

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("shuffles", [False, True])
def test_a_shuffle_is_known_wherever_it_is_in_the_plan(
    spark: SparkSession, tmp_path: Path, shuffles: bool
) -> None:
    found: list[bool] = []

    def look(batch: DataFrame, batch_id: int) -> None:
        found.extend(map(may_be_shuffled, (batch, batch.where("value > 1"), batch.repartition(1))))

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load()
    writer = (rows.repartition(2) if shuffles else rows).writeStream.foreachBatch(look)
    query = writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path)).start()
    query.awaitTermination()
    assert found[:3] == [shuffles, shuffles, True]


def test_a_shuffle_is_possible_where_nothing_is_known_of_a_plan() -> None:
    class OfConnect:
        """A DataFrame without a JVM."""

    frame: object = OfConnect()
    assert may_be_shuffled(frame)  # type: ignore[arg-type]
