"""Words of 64 offsets, as Spark aggregates them, back to the acks that they stand for."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.errors import MissingColumns, NullMessageId
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.spark.ack_batch import ack_batch, ends
from spark_cursor_source.spark.tracker import MarkerDataSource, start_tracker

pytestmark = pytest.mark.spark

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
MessageSet = set[tuple[str, int, int]]
messages = st.sets(
    st.one_of(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(0, 300)),
        st.tuples(st.just("a"), st.just(0), st.integers(0, 2**55)),
    )
)
blocks = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 400), st.integers(0, 400)), max_size=3)


def words_of(acked: MessageSet) -> pa.Table:
    words: dict[tuple[str, int, int], int] = {}
    for topic, partition, offset in acked:
        word, bit = divmod(offset, 64)
        words[topic, partition, word] = words.get((topic, partition, word), 0) | 1 << bit
    signed = [bits - (1 << 64 if bits >> 63 else 0) for bits in words.values()]
    columns = [*zip(*words, strict=True)] if words else [(), (), ()]
    return pa.table(
        {
            "topic": pa.array(columns[0], pa.string()),
            "partition": pa.array(columns[1], pa.int32()),
            "word": pa.array(columns[2], pa.int64()),
            "bits": pa.array(signed, pa.int64()),
        }
    )


@given(messages, blocks)
def test_each_message_is_acked_and_no_other(single: MessageSet, runs: list[tuple[int, int, int]]) -> None:
    acked = single | {("c", p, start + n) for p, start, count in runs for n in range(count)}
    told = list(ends(words_of(acked), "s"))
    assert len({end.cell for end in told}) == len(told)
    found = {
        (end.cell.topic, end.cell.partition, offset)
        for end in told
        for start, stop in end.offsets.ranges
        for offset in range(start, stop)
    }
    assert found == acked
    assert all(
        end.cell == Cell(subscription="s", topic=end.cell.topic, partition=end.cell.partition) for end in told
    )


def test_rows_that_do_not_say_which_message_they_are_ack_nothing(spark: SparkSession) -> None:
    options = AckOptions.parse(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "subscription": "s"}
    )
    schema = "topic STRING, partition INT, offset BIGINT"
    rows = [("t", 0, 1), ("t", 0, None), (None, 0, 3)]
    with pytest.raises(NullMessageId, match="null in topic, offset"):
        ack_batch(spark.createDataFrame(rows, schema), options)
    with pytest.raises(MissingColumns, match="offset"):
        ack_batch(spark.createDataFrame(rows, schema).drop("offset"), options)
    before = spark.conf.get(SHUFFLE_PARTITIONS)
    ack_batch(spark.createDataFrame([], schema), options)  # nothing to say, and no broker asked
    assert spark.conf.get(SHUFFLE_PARTITIONS) == before


@pytest.fixture
def auto(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The numbers of shuffle partitions that sessions are given, which have Databricks' "auto" at first.

    Spark itself refuses it.
    """
    conf = type(spark.conf)
    get, put, told = conf.get, conf.set, ["auto"]
    monkeypatch.setattr(
        conf,
        "get",
        lambda self, name, *more: told[-1] if name == SHUFFLE_PARTITIONS else get(self, name, *more),
    )
    monkeypatch.setattr(
        conf,
        "set",
        lambda self, name, to: told.append(to) if name == SHUFFLE_PARTITIONS else put(self, name, to),
    )
    return told


def test_acks_leave_a_number_of_shuffle_partitions_that_is_none(spark: SparkSession, auto: list[str]) -> None:
    options = AckOptions.parse(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "subscription": "s"}
    )
    ack_batch(spark.createDataFrame([], "topic STRING, partition INT, offset BIGINT"), options)
    assert auto == ["auto", "4", "auto"]


def test_a_tracker_starts_where_the_number_of_shuffle_partitions_is_none(
    spark: SparkSession, auto: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class EnoughError(Exception):
        pass

    def enough() -> str:
        raise EnoughError

    monkeypatch.setattr(MarkerDataSource, "name", enough)
    with pytest.raises(EnoughError):
        start_tracker(spark, {"kafka.bootstrap.servers": "127.0.0.1:1", "checkpointLocation": "/nowhere"})
    assert auto == ["auto", "4"]
