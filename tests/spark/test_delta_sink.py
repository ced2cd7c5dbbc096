"""DeltaSink without Delta: a table in memory. What it writes to a real one is in ``e2e/test_delta.py``."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame

from spark_cursor_source import DeltaSink
from spark_cursor_source.core.marker import End
from spark_cursor_source.core.table_commit import TableCommit
from spark_cursor_source.errors import AckedBySource, ConflictingOptions
from spark_cursor_source.spark import delta_sink
from tests.spark.harness import Bench

OPTIONS = {"kafka.bootstrap.servers": "b:9092", "subscribe": "orders", "subscription": "s"}


class TableInMemory:
    """A table whose commits all succeed."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.commits: list[TableCommit] = []

    def history(self, writer: str) -> Any:
        latest = self.commits[-1] if self.commits else TableCommit(writer)
        return delta_sink._History(len(self.commits), latest)

    def append(self, rows: DataFrame, commit: TableCommit) -> None:
        self.values += [bytes(row.value) for row in rows.select("value").collect()]
        self.commits.append(commit)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> TableInMemory:
    made = TableInMemory()
    monkeypatch.setattr(delta_sink, "_DeltaTable", lambda session, name: made)
    return made


@pytest.mark.parametrize(
    ("more", "names"),
    [({"markerFormat": "v1"}, "markerFormat"), ({"action": "release"}, "action")],
)
def test_options_without_exactly_once_are_refused(more: dict[str, str], names: str) -> None:
    with pytest.raises(ConflictingOptions, match=names):
        DeltaSink("orders", OPTIONS | more)


def test_a_source_that_acks_before_the_write_is_refused() -> None:
    with pytest.raises(AckedBySource, match="cumulative"):
        DeltaSink("orders", OPTIONS | {"ackMode": "cumulative"})


@pytest.mark.broker
@pytest.mark.spark
def test_a_late_batch_of_a_deleted_topic_keeps_no_message_of_the_new_one_from_the_table(
    bench: Bench, table: TableInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a batch of five is counted | the topic is created again, with five messages | the batch is written
    topic = bench.create_topic()
    old, new = ([b"%s-%d" % (word, n) for n in range(5)] for word in (b"old", b"new"))
    bench.produce(topic, old)
    acks_of, topic_ids = delta_sink.acks_of, []

    def acks_of_then_recreated(rows: DataFrame, subscription: str) -> list[End]:
        acks = acks_of(rows, subscription)
        if not topic_ids:
            topic_ids.append(bench.recreate(topic))
            bench.produce(topic, new)
        return acks

    def all_acked() -> bool:
        cursor = bench.cursor(topic)
        return cursor is not None and [cursor.topic_id] == topic_ids and cursor.totals.acked == 5

    monkeypatch.setattr(delta_sink, "acks_of", acks_of_then_recreated)
    bench.start(bench.options(topic, failOnDataLoss="false"), DeltaSink("t"))
    bench.until(all_acked, "the messages of the new topic are acked")
    assert sorted(table.values) == sorted(old + new)
