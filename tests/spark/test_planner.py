"""The source's driver side on a real broker with a tracker, without Spark: a test asks as Spark would."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_cursor_source.client import Client
from spark_cursor_source.core.limits import Limits
from spark_cursor_source.core.marker import End, Release, Seek, SetLimits, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import InvalidOption, QueueIdConflict
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.wire import redelivery
from tests.kafka.control_plane import PARTITIONS, produce, read_all, redeliver_of
from tests.spark.desk import MakeDesk, Query
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


def both(rows: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """How many rows came again, and how many are new."""
    again = sum(count > 1 for _, count in rows)
    return again, len(rows) - again


def test_a_batch_that_is_asked_for_twice_is_planned_once(make_desk: MakeDesk) -> None:
    # S(0-1, 1) -- 0 released -- S(0, 2) and S(2, 1), asked for by both branches of a union
    desk = make_desk()
    desk.put(b"a", b"b")
    query = Query(desk.reader())
    first = query.next()
    assert query.rows(first) == query.rows(query.again()) == [(0, 1), (1, 1)]
    desk.say(Release(cell=desk.cell(), offsets=OffsetSet.of((0, 1)), delivery_count=1, delay_ms=0))
    desk.until(lambda cursor: cursor.available)
    desk.put(b"c")
    rows = query.until_rows(lambda offset, _: offset == 0)
    assert query.rows(query.again()) == rows
    starts = [one for one in desk.markers(Start) if 0 in one.offsets]
    assert [one.delivery_count for one in starts] == [1, 2]


def test_an_announcement_is_split_to_the_limit_and_new_messages_keep_their_half(
    make_desk: MakeDesk,
) -> None:
    # S(0-29, 1), all released at once: one announcement of 30, and 100 new ones beside it
    desk = make_desk()
    desk.put(*[b"x"] * 30)
    first = Query(desk.reader())
    assert both(first.rows(first.next())) == (0, 30)
    desk.say(Release(cell=desk.cell(), offsets=OffsetSet.of((0, 30)), delivery_count=1, delay_ms=0))
    desk.until(lambda cursor: len(cursor.waiting) == 30)
    first.reader.stop()
    desk.put(*[b"x"] * 100)

    query = Query(desk.reader(maxOffsetsPerTrigger=10), first.end)
    query.look()  # before it can see the announcement, new ones would go alone
    wait_until(lambda: len(read_all(desk.control.config, desk.control.redeliveries)) >= 2)
    query.until_rows(lambda _, count: count == 2)
    batches = [query.rows(query.next()) for _ in range(3)]
    assert [both(rows) for rows in batches] == [(5, 5)] * 3
    query.reader.stop()

    # The run after it replays a batch that holds a part of the announcement: the same messages.
    replayed = Query(desk.reader(maxOffsetsPerTrigger=10), query.begun)
    replayed.end = query.end
    rows = replayed.rows(replayed.tasks())
    assert [offset for offset, _ in rows] == [offset for offset, _ in batches[-1]]
    assert [count for _, count in rows] == [count + 1 for _, count in batches[-1]]


def test_new_messages_do_not_wait_until_all_suspects_have_gone(make_desk: MakeDesk) -> None:
    # S(0-11, 1) -- its run dies, the lease is over -- 12 suspects at their last delivery, 5 new ones
    desk = make_desk(maxDeliveries=2)
    desk.put(*[b"x"] * 12)
    dead = Query(desk.reader(leaseTimeout="1s"))
    dead.next()
    dead.reader.stop()
    desk.until(lambda cursor: len(cursor.waiting) == 12)
    query = Query(desk.reader(), dead.end)
    query.until_rows(lambda _, count: count == 2)
    desk.put(*[b"x"] * 5)
    batches = [both(query.rows(query.next())) for _ in range(2)]
    assert sorted(batches) == [(0, 5), (4, 0)]
    assert all(len(one.offsets) == 4 for one in desk.markers(Start) if one.alone)


def test_a_bounded_run_waits_for_what_an_open_transaction_hides(make_desk: MakeDesk) -> None:
    # S(0, 1) -- its run dies, the lease is over -- a transaction is open in the redeliveries topic, and the
    # tracker announces 0 behind it to a run with Trigger.AvailableNow
    desk = make_desk()
    desk.put(b"a")
    dead = Query(desk.reader(leaseTimeout="1s"))
    dead.next()
    dead.reader.stop()
    desk.until(lambda cursor: len(cursor.waiting) == 1)

    producer = Producer({**desk.control.config, "transactional.id": desk.queue})
    producer.init_transactions(30)
    producer.begin_transaction()
    record = redelivery.encode(redeliver_of(desk.cell(), (0, 1)))
    for number in range(PARTITIONS):
        producer.produce(desk.control.redeliveries, record, desk.cell().key, partition=number)
    assert producer.flush(30) == 0
    end = threading.Timer(3.0, producer.commit_transaction)
    end.start()
    try:
        bounded = Query(desk.reader(), dead.end)
        bounded.reader.prepareForTriggerAvailableNow()
        bounded.end = bounded.reader.latestOffset(dead.end, bounded.reader.getDefaultReadLimit())
        assert bounded.rows(bounded.tasks()) == [(0, 2)]
    finally:
        end.join()


def test_an_idle_query_keeps_nothing_of_what_is_announced_to_others(make_desk: MakeDesk) -> None:
    desk = make_desk()
    other = replace(desk.cell(), subscription="another")
    announcement = redelivery.encode(redeliver_of(other, (0, 100)))
    planner = desk.planner()
    start = planner.initial_offset()
    for _ in range(2):  # a query that is at work, and one that begins again where it was
        produce(desk.control.config, desk.control.redeliveries, [{"value": announcement}] * 2_000)
        assert planner.latest_offset(start, max_offsets=None) == start
        assert planner.status().latest.redeliveries[0] >= 2_000
        assert planner.status().redeliveries_kept == 0
        planner.close()
        planner = desk.planner()


def test_redeliveries_of_other_partitions_do_not_wait_behind_those_of_a_paused_one(
    make_desk: MakeDesk, broker: EmbeddedKafka
) -> None:
    desk = make_desk(partitions=9)
    place = {number: desk.cell(number).control_partition(8) for number in range(9)}
    paused, other = next((a, b) for a in place for b in place if a < b and place[a] == place[b])
    streams = f"streams-{desk.queue}"
    for number in (paused, other):
        desk.put(b"x", partition=number)
    first = Query(desk.reader(streamsTopic=streams))
    assert len(first.rows(first.next())) == 2
    for number in (paused, other):
        one = OffsetSet.of((0, 1))
        desk.say(Release(cell=desk.cell(number), offsets=one, delivery_count=1, delay_ms=0))
        desk.until(lambda cursor: cursor.available, number)
    first.reader.stop()
    with Client({"kafka.bootstrap.servers": broker.bootstrap_servers, "streamsTopic": streams}) as client:
        client.pause_stream(desk.queue, partitions=[paused])
        query = Query(desk.reader(streamsTopic=streams), first.end)
        assert {task.slices[0].partition for task in query.next()} == {other}
        client.publish(desk.queue, b"y", partition=paused)
        assert {task.slices[0].partition for task in query.next()} == {paused}


def test_trigger_once_is_refused_where_the_source_acks(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.put(b"x")
    reader = desk.reader(ackMode="batch")
    with pytest.raises(InvalidOption, match="availableNow"):
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert desk.markers(Start) == []


@pytest.mark.parametrize(
    "given",
    [
        {"subscriptionType": "shared", "maxOffsetsPerTrigger": 2},
        {"subscriptionType": "key_shared"},
        {"minOffsetsPerTrigger": 10},
    ],
)
def test_trigger_once_reads_all_there_is_in_its_only_batch(
    make_desk: MakeDesk, given: dict[str, object]
) -> None:
    # S(0-1, 1), released | S(0-1, 2) and S(2, 1)
    desk = make_desk()
    desk.put(b"a", b"b")
    first = Query(desk.reader(**given | {"minOffsetsPerTrigger": 1}))
    first.next()
    desk.say(Release(cell=desk.cell(), offsets=OffsetSet.of((0, 2)), delivery_count=1, delay_ms=0))
    first.reader.stop()
    desk.until(lambda cursor: len(cursor.waiting) == 2)
    desk.put(b"c")
    once = Query(desk.reader(**given), first.end)
    once.end = once.reader.latestOffset(once.start, ReadAllAvailable())
    assert once.rows(once.tasks()) == [(0, 2), (1, 2), (2, 1)]


@pytest.mark.parametrize("given", [{}, {"subscriptionType": "shared", "maxOutstanding": 30}])
def test_trigger_once_waits_until_the_rate_of_an_operator_allows_all_there_is(
    make_desk: MakeDesk, given: dict[str, object]
) -> None:
    desk = make_desk()
    desk.put(b"x")
    first = Query(desk.reader(**given))
    first.next()
    first.reader.stop()
    rate = 30
    desk.say(SetLimits(cell=desk.cell(), limits=Limits(rate=rate)))
    desk.until(lambda cursor: cursor.limits.rate == rate)
    desk.put(*[b"x"] * 50)
    began_s = time.monotonic()
    once = Query(desk.reader(**given), first.end)
    once.end = once.reader.latestOffset(once.start, ReadAllAvailable())
    passed_s, came = time.monotonic() - began_s, len(once.rows(once.tasks()))
    assert came == (29 if given else 50), "all that the limit of outstanding messages allows"
    assert came <= rate * passed_s


def test_a_query_with_another_queue_id_is_refused(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.put(b"x", key=b"mails")
    query = Query(desk.reader(queueId="mails"))
    assert query.rows(query.next()) == [(0, 1)]
    query.reader.stop()
    with pytest.raises(QueueIdConflict, match=r"reads queueId=orders, .* queueId=mails"):
        desk.reader(queueId="orders").initialOffset()


def test_a_start_beyond_the_end_is_refused_and_leaves_nothing_behind(make_desk: MakeDesk) -> None:
    desk = make_desk()
    desk.put(*[b"x"] * 3)
    beyond = desk.reader(startingOffsets=json.dumps({desk.queue: {"0": 1000}}))
    with pytest.raises(
        InvalidOption,
        match=rf"'startingOffsets' = 1000 .* '{desk.queue}' partition 0 ends at offset 3\. Give an offset up",
    ):
        beyond.initialOffset()
    beyond.stop()
    query = Query(desk.reader(startingOffsets=json.dumps({desk.queue: {"0": 2}})))
    assert query.rows(query.next()) == [(2, 1)]


@pytest.mark.parametrize("option", ["startingOffsets", "startingOffsetsByTimestamp"])
def test_a_start_of_a_partition_that_is_not_read_is_refused_and_leaves_nothing_behind(
    make_desk: MakeDesk, option: str
) -> None:
    desk = make_desk(partitions=2)
    desk.put(*[b"x"] * 3)
    misspelled = f"{desk.queue}-misspelled"
    for stray, named in {
        f"{misspelled} 0": {misspelled: {"0": 1}},
        f"{desk.queue} 2": {desk.queue: {"0": 1, "2": 1}},
    }.items():
        wrong = desk.reader(**{option: json.dumps(named)})
        with pytest.raises(InvalidOption, match=rf"'{option}' = '{stray}'.* are read are {desk.queue} 0-1\."):
            wrong.initialOffset()
        wrong.stop()
    query = Query(desk.reader(startingOffsets=json.dumps({desk.queue: {"0": 2}})))
    assert query.rows(query.next()) == [(2, 1)]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_queue_topic_that_is_created_again_is_read_from_its_beginning_where_loss_is_no_failure(
    make_desk: MakeDesk, restarted: bool
) -> None:
    # S(0-2, 1), nothing acked | the topic is deleted and created again | S(0-1, 1) of the new one
    desk = make_desk()
    desk.put(b"a", b"b", b"c")
    query = Query(desk.reader(failOnDataLoss="false"))
    assert query.rows(query.next()) == [(0, 1), (1, 1), (2, 1)]
    desk.until(lambda cursor: len(cursor.leased) == 3)
    if restarted:
        query.reader.stop()
    desk.recreate()
    desk.put(b"new-0", b"new-1")
    if restarted:
        query = Query(desk.reader(failOnDataLoss="false"), query.end)
    assert query.until_rows(lambda *_: True) == [(0, 1), (1, 1)]
    desk.until(lambda cursor: (cursor.read_position, len(cursor.leased)) == (2, 2))
    query.reader.stop()

    # From the checkpoint of the new topic on, all is as ever.
    desk.put(b"new-2")
    later = Query(desk.reader(), query.end)
    assert (2, 1) in later.until_rows(lambda offset, _: offset == 2)


@pytest.mark.parametrize("seen", ["queue_topic_deleted", "assigned_topics_deleted"])
@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_a_query_whose_only_topic_is_deleted_goes_on_when_it_is_created_again(
    make_desk: MakeDesk, caplog: pytest.LogCaptureFixture, kind: str, seen: str
) -> None:
    # S(0, 1) | the topic is deleted, which the query sees | it is created again | S(0, 1) of the new one
    desk = make_desk()
    desk.put(b"a")
    query = Query(desk.reader(failOnDataLoss="false", subscriptionType=kind))
    assert query.rows(query.next()) == [(0, 1)]
    desk.topics.delete(desk.queue)

    def is_seen() -> bool:
        query.look()
        return f"event={seen}" in caplog.text

    wait_until(is_seen)
    query.look()  # without a topic
    time.sleep(1)  # the query's member of the group takes it in
    desk.topics.create({desk.queue: (1, {})})
    desk.put(b"new")
    assert query.until_rows(lambda *_: True) == [(0, 1)]


@pytest.mark.parametrize("topic", ["queue", "redeliveries"])
def test_a_topic_that_is_created_again_repeats_no_batch_that_was_acked(
    make_desk: MakeDesk, topic: str
) -> None:
    # S(0-9), acked | sought to 5 | S(5-9), acked | a topic is deleted and created again | S(10)
    desk = make_desk()
    other = f"{desk.queue}-other"
    desk.topics.create({other: (1, {})})
    given = {"subscribe": f"{desk.queue},{other}", "failOnDataLoss": "false"}
    desk.put(*[b"x"] * 10)
    query = Query(desk.reader(**given))
    assert len(query.rows(query.next())) == 10
    desk.say(End(cell=desk.cell(), offsets=OffsetSet.of((0, 10))))
    desk.until(lambda cursor: cursor.totals.acked == 10)
    desk.say(Seek(cell=desk.cell(), position=5))
    assert query.rows(query.next()) == [(offset, 1) for offset in range(5, 10)]
    desk.say(End(cell=desk.cell(), offsets=OffsetSet.of((5, 10))))
    desk.until(lambda cursor: cursor.totals.acked == 15)

    query.reader.stop()
    name, partitions = {"queue": (other, 1), "redeliveries": (desk.control.redeliveries, PARTITIONS)}[topic]
    desk.topics.delete(name)
    desk.topics.create({name: (partitions, {})})
    query = Query(desk.reader(**given), query.end)
    assert query.reader.latestOffset(query.start, query.reader.getDefaultReadLimit()) == query.start
    produce(desk.control.config, other, [{"value": b"new", "partition": 0}])
    assert query.rows(query.next()) == [(0, 1)]


def test_a_query_goes_on_when_the_cursors_topic_is_created_again(make_desk: MakeDesk) -> None:
    # S(0-1, 1) | the cursors topic is deleted and created again | S(2, 1), and the leases of before are kept
    desk = make_desk()
    desk.put(b"a", b"b")
    query = Query(desk.reader())
    assert query.rows(query.next()) == [(0, 1), (1, 1)]
    desk.until(lambda cursor: len(cursor.leased) == 2)
    topics = ClusterAdmin(desk.control.config)
    topics.delete(desk.control.cursors)
    topics.ensure_cursors(desk.control.cursors)
    desk.put(b"c")
    assert query.until_rows(lambda offset, _: offset == 2) == [(2, 1)]
    desk.until(lambda cursor: (cursor.read_position, len(cursor.leased)) == (3, 3))
