"""Whatever a log holds that is no message, or no marker: nothing stays outstanding, and nobody stops."""

from __future__ import annotations

import logging
import time
from contextlib import closing

import pytest
from confluent_kafka import Producer

from spark_cursor_source.consumer.source_topics import SourceTopics
from spark_cursor_source.core.batch import SourceOffset
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import QueueTopicEndsEarlier
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.wire import marker as marker_wire
from tests.kafka.control_plane import read_all, transaction
from tests.spark.harness import Bench
from tests.spark.plain_query import PlainQuery

pytestmark = pytest.mark.broker


@pytest.fixture
def bench(plain_bench: Bench) -> Bench:
    """Spark is not under test here."""
    return plain_bench


def open_transaction(bench: Bench, topic: str) -> Producer:
    """Who has written two messages and not ended the transaction."""
    producer = Producer({"bootstrap.servers": bench.servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(2):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    return producer


def test_transactions_leave_no_hole_for_ever_wherever_they_end(bench: Bench) -> None:
    # 0-2 committed, 3 control, 4-5 aborted, 6 control, 7 plain, 8-9 aborted, 10 control: the end of the log
    topic = bench.create_topic()
    options = bench.options(topic)
    config = bench.control.config
    transaction(config, [(topic, {"value": b"%d" % number}) for number in range(3)])
    transaction(config, [(topic, {"value": b"%d" % number}) for number in range(2)], commit=False)
    bench.produce(topic, [b"plain"])
    producer = open_transaction(bench, topic)
    seen = bench.plain(options)
    bench.until_acked(topic, 8)
    assert bench.ends(topic) == {0: 10}, "what an open transaction has written waits"
    producer.abort_transaction(30)
    bench.until_acked(topic, 11)
    assert bench.ends(topic) == {0: 11}
    assert seen.ids() == seen.ids(1) == [(0, 0), (0, 1), (0, 2), (0, 7)]
    totals = bench.cursor(topic).totals
    assert (totals.delivered, totals.acked, totals.gaps, totals.unknown_ends) == (4, 4, 7, 0)
    bench.until(lambda: bench.group(topic) == 11, "the consumer group has no lag")


def test_uncommitted_messages_are_read_where_that_is_asked_for(bench: Bench) -> None:
    topic = bench.create_topic()
    options = bench.options(topic, isolation="read_uncommitted")
    producer = open_transaction(bench, topic)
    seen = bench.plain(options)
    bench.until_acked(topic, 2)
    producer.abort_transaction(30)
    bench.until_acked(topic, 3)
    assert seen.ids(1) == [(0, 0), (0, 1)]


def test_a_compacted_queue_leaves_no_hole_for_ever(bench: Bench) -> None:
    topic = bench.create_topic(
        cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.001, max_compaction_lag_ms=100
    )
    for _ in range(3):
        bench.produce(topic, [{"key": b"%d" % (number % 3), "value": b"x"} for number in range(9)])
        time.sleep(0.2)  # so that the next ones begin a segment
    left: list[int] = []
    config = bench.control.config

    def compacted() -> bool:
        bench.produce(topic, [{"key": b"z", "value": b"x"}])  # rolls the segment
        # Read anew each time: `bench.records` reads what was appended only.
        left[:] = [int(record.offset() or 0) for record in read_all(config, topic)]
        return len(left) < bench.ends(topic)[0] - 20

    bench.until(compacted, "compaction", timeout_s=150)
    end = bench.ends(topic)[0]
    options = bench.options(topic)
    seen = bench.plain(options)
    bench.until_acked(topic, end)
    assert len(seen.rows) < end
    assert (0, end - 1) in seen.ids()


def test_a_queue_topic_that_was_deleted_and_created_again_is_detected(bench: Bench) -> None:
    # By a query that runs on, and by one that is started again: their positions mean other messages now.
    topic, query = acked_queue(bench, 5)
    query.stop()
    bench.recreate(topic)
    options = bench.options(topic)
    bench.produce(topic, [b"y"] * 8)
    again = bench.plain(options)
    text = bench.failure(again)
    assert "QueueTopicRecreated" in text
    assert f"Topic '{topic}' was deleted and created again" in text


def test_a_queue_topic_that_was_created_again_is_no_place_for_its_old_subscription(bench: Bench) -> None:
    # Without the checkpoint: the cursor knows the topic's id.
    topic, query = acked_queue(bench, 5)
    query.stop()
    bench.recreate(topic)
    options = bench.options(topic)
    bench.produce(topic, [b"y"] * 3)
    text = bench.failure(bench.plain(options, checkpoint="another"))
    assert "QueueTopicRecreated" in text
    # Positions of which nobody knows the topic's id.
    with (
        closing(SourceTopics(SourceOptions.parse(options), bench.topics)) as view,
        pytest.raises(QueueTopicEndsEarlier, match=f"Topic '{topic}' partition 0 ends at offset 3"),
    ):
        view.resume(SourceOffset(queue={(topic, 0): 5}, redeliveries={}))
    # Longer than the old one: by its position nobody could tell.
    bench.produce(topic, [b"y"] * 3)
    text = bench.failure(bench.plain(options, checkpoint="a third one"))
    assert "QueueTopicRecreated" in text
    assert "Start with a new checkpoint and a new subscription" in text
    other = bench.options(topic, subscription="other")
    seen = bench.plain(other, checkpoint="other")
    bench.until_acked(topic, 6, "other")
    assert seen.ids(1) == [(0, n) for n in range(6)]


def test_a_queue_topic_that_is_created_again_while_the_query_runs_is_detected(bench: Bench) -> None:
    topic, query = acked_queue(bench, 2)
    bench.recreate(topic)
    text = bench.failure(query)
    # The query may have looked just when there was none.
    assert "QueueTopicRecreated" in text or "TopicNotFound" in text


def acked_queue(bench: Bench, size: int) -> tuple[str, PlainQuery]:
    """A topic all of whose messages are acked, and the query that has done it."""
    topic = bench.create_topic()
    bench.produce(topic, [b"x"] * size)
    options = bench.options(topic)
    query = bench.plain(options)
    bench.until_acked(topic, size)
    return topic, query


def test_what_is_no_marker_is_quarantined_and_the_tracker_goes_on(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    # rubbish in the partition of the very cell -- S, End: the cursor is as if it were not there
    topic = bench.create_topic()
    cell = Cell(subscription="s", topic=topic, partition=0)
    count = bench.topics.describe([bench.control.markers])[bench.control.markers].partitions
    at = cell.control_partition(count)
    good = marker_wire.encode(
        Start(cell=cell, offsets=OffsetSet.of((0, 9)), lease_ms=1000, delivery_count=1, run_id="x")
    )
    rubbish: list[tuple[bytes | None, bytes | None]] = [
        (cell.key, b"\x93\x12random bytes\xff\xfe"),
        (cell.key, b""),
        (cell.key, None),
        (None, good),
        (b"", good),
        (b"another,cell,0", good),
        (cell.key, b"\x08\x07\x1a\x00"),  # version 7
        (cell.key, b"\x08\x01\x10\x63\x1a\x00"),  # type 99
        (cell.key, good[:-3]),
        (cell.key, good + b"\x92\x01\x00"),  # offsets again, empty
        (b"queue", bytes.fromhex("1001 1a020803")),  # an End of version 1, and no queueTopic
    ]
    producer = Producer(bench.control.config)
    with caplog.at_level(logging.WARNING):
        for key, value in rubbish:
            producer.produce(bench.control.markers, value, key, partition=at)
        assert producer.flush(30) == 0
        bench.produce(topic, [b"x"] * 3)
        options = bench.options(topic)
        seen = bench.plain(options)
        bench.until_acked(topic, 3)
    assert seen.ids() == seen.ids(1) == [(0, 0), (0, 1), (0, 2)]
    assert bench.cursor(topic).totals.delivered == 3
    logged = [one.getMessage() for one in caplog.records if "marker_quarantined" in one.getMessage()]
    assert len(logged) == len(rubbish)
    assert all(f"{bench.control.markers} partition {at} offset " in line for line in logged)
    assert any("version 7 is unknown" in line for line in logged)
