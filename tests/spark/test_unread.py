"""Acks of the source where the sink left messages unread; a real broker and tracker, without Spark."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from spark_cursor_source.core.marker import End, EndLeased, Release
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.read_report import WORTH_MESSAGES
from spark_cursor_source.spark.reader import LeasedSlices
from tests.kafka.control_plane import produce, read_all
from tests.spark.desk import Desk, MakeDesk, Query
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

MODES = pytest.mark.parametrize("mode", ["batch", "cumulative"])
FAR = "1h"
IN_ORDER = {"ackMode": "batch", "ordering": "key", "leaseTimeout": "10m"}


def put(desk: Desk, *delays: str | None, partition: int = 0) -> None:
    """One message for each delay, whose header is ``deliverAfter``; None: without it."""
    for delay in delays:
        headers: dict[str, str] = {} if delay is None else {"deliverAfter": delay}
        desk.put(b"x", partition=partition, headers=headers)


def put_due(desk: Desk, due_ms: int, count: int) -> None:
    """A message that is due at this time, and so many that are due now, all at once."""
    later = {"value": b"x", "headers": {"deliverAt": str(due_ms)}}
    produce(desk.control.config, desk.queue, [later, *[{"value": b"x"}] * count])


def put_many(desk: Desk, count: int, partition: int = 0) -> None:
    """A message that is far from due, and so many that are due."""
    put(desk, FAR, partition=partition)
    records = [{"value": b"x", "partition": partition}] * count
    produce(desk.control.config, desk.queue, records)


def at_work(desk: Desk, mode: str) -> Query:
    """A query that plans at once what is written next: it has acked message 0."""
    query = Query(desk.reader(ackMode=mode))
    put(desk, None)
    query.next()
    commit(query)
    desk.until(lambda cursor: cursor.mark_delete == 0)
    return query


def dead_run(desk: Desk, mode: str) -> Query:
    """A query that has ended: of its one batch, messages 0 to 2, nothing was read, and 0 is far from due."""
    query = Query(desk.reader(ackMode=mode))
    put(desk, FAR, None, None)
    query.next()
    query.reader.stop()
    desk.until(lambda cursor: len(cursor.leased) == 3)
    return query


def dead_run_in_order(desk: Desk) -> tuple[Query, OffsetSet]:
    """A query that has ended, and its last batch of which nothing was read: 1 waits for 0, and 2 does not."""
    dead = Query(desk.reader(**IN_ORDER))
    desk.put(b"x", key=b"a")
    assert dead.rows(dead.next()) == [(0, 1)]
    zero = OffsetSet.of((0, 1))
    desk.say(Release(cell=desk.cell(), offsets=zero, delivery_count=1, delay_ms=3_600_000))
    desk.until(lambda cursor: cursor.delayed)
    for key in (b"a", b"b"):
        desk.put(b"x", key=key)
    dead.next()
    dead.reader.stop()
    unread = OffsetSet.of((1, 3))
    desk.until(lambda cursor: cursor.leased == unread)
    return dead, unread


def commit(query: Query) -> None:
    """What Spark says when the sink has returned, read or not."""
    query.reader.commit(query.end)


def taken_back(desk: Desk, partition: int = 0) -> int:
    """How often the first message of a partition was given back because it was not due."""
    cell = desk.cell(partition)
    return sum(one.cell == cell and 0 in one.offsets for one in desk.markers(Release))


@MODES
def test_messages_that_are_not_due_and_were_not_read_are_delivered_when_they_are(
    make_desk: MakeDesk, mode: str
) -> None:
    # S(1-3, 1) of which nothing is read -- Spark commits -- 2 and 3 are acked -- S(1, 1) when it is due
    desk = make_desk()
    query = at_work(desk, mode)
    due_ms = round(time.time() * 1000) + 8_000
    put_due(desk, due_ms, 2)
    (task,) = query.next()
    assert task.now_ms < due_ms, "the machine is too slow for this test"
    commit(query)
    desk.until(lambda cursor: cursor.outstanding == OffsetSet.of((1, 2)) and not cursor.leased)
    assert query.until_rows(lambda *_: True) == [(1, 1)]
    assert time.time() * 1000 >= due_ms
    commit(query)
    desk.until(lambda cursor: cursor.mark_delete == 3)
    cursor = desk.cursor()
    assert cursor is not None
    assert (cursor.totals.delivered, cursor.totals.acked) == (4, 4)


@MODES
def test_messages_that_a_dead_run_left_unread_in_a_committed_batch_are_given_back(
    make_desk: MakeDesk, mode: str
) -> None:
    # run A: S(0-2, 1), Spark commits, and it dies     run B: 1 and 2 are acked, 0 waits until it is due
    desk = make_desk()
    dead = dead_run(desk, mode)
    reader = desk.reader(ackMode=mode)
    reader.latestOffset(dead.end, reader.getDefaultReadLimit())
    desk.until(lambda cursor: cursor.outstanding == OffsetSet.of((0, 1)) and not cursor.leased)
    assert taken_back(desk) == 1


def test_messages_that_a_dead_run_did_not_read_behind_one_of_their_key_are_delivered(
    make_desk: MakeDesk,
) -> None:
    # run A: 0 (key a) is released for long, S(1-2, 1) of keys a and b, Spark commits, and it dies
    # run B: 2 comes again, and 1 when 0 has ended
    desk = make_desk()
    dead, unread = dead_run_in_order(desk)
    query = Query(desk.reader(**IN_ORDER), dead.end)
    for _ in range(2):
        query.look()  # at the tracker's answer
    assert not any(1 in one.offsets for one in desk.markers(EndLeased))
    desk.say(Release(cell=desk.cell(), offsets=unread, delivery_count=1, delay_ms=0))
    assert query.until_rows(lambda *_: True) == [(2, 2)]
    commit(query)
    desk.say(End(cell=desk.cell(), offsets=OffsetSet.of((0, 1))))
    assert [offset for offset, _ in query.until_rows(lambda *_: True)] == [1]
    commit(query)
    desk.until(lambda cursor: cursor.mark_delete == 2)


@MODES
def test_messages_that_a_run_held_back_are_not_acked_by_one_that_ignores_delivery_times(
    make_desk: MakeDesk, mode: str
) -> None:
    # run A: S(0-2, 1), Spark commits, and it dies     run B: 1 and 2 are acked, S(0, 1) at once
    desk = make_desk()
    dead = dead_run(desk, mode)
    query = Query(desk.reader(ackMode=mode, delayedDelivery="false"), dead.end)
    assert query.until_rows(lambda *_: True) == [(0, 1)]
    commit(query)
    desk.until(lambda cursor: cursor.mark_delete == 2)


@MODES
def test_messages_that_a_run_held_back_behind_one_of_their_key_are_not_acked_by_one_without_order(
    make_desk: MakeDesk, mode: str
) -> None:
    # run A: 0 (key a) is released for long, S(1-2, 1) of keys a and b, Spark commits, and it dies
    # run B, without an order: 1 and 2 come again
    desk = make_desk()
    dead, unread = dead_run_in_order(desk)
    query = Query(desk.reader(ackMode=mode), dead.end)
    for _ in range(2):
        query.look()  # at the tracker's answer
    desk.put(b"x", key=b"c")
    assert query.rows(query.next()) == [(3, 1)]
    commit(query)
    desk.until(lambda cursor: cursor.totals.acked == 1)
    desk.until(lambda cursor: cursor.leased == unread)


def test_messages_that_became_due_after_a_run_died_are_delivered(make_desk: MakeDesk) -> None:
    # run A: S(1-2, 1), Spark commits, and it dies     1 is due     run B: 2 is acked, S(1, 1)
    desk = make_desk()
    dead = at_work(desk, "batch")
    due_ms = round(time.time() * 1000) + 8_000
    put_due(desk, due_ms, 1)
    (task,) = dead.next()
    assert task.now_ms < due_ms, "the machine is too slow for this test"
    dead.reader.stop()
    wait_until(lambda: time.time() * 1000 > due_ms + 500)
    query = Query(desk.reader(ackMode="batch"), dead.end)
    assert query.until_rows(lambda *_: True) == [(1, 1)]
    commit(query)
    desk.until(lambda cursor: cursor.mark_delete == 2)


@MODES
def test_messages_of_a_replayed_batch_that_were_not_read_are_given_back(
    make_desk: MakeDesk, mode: str
) -> None:
    # run A: S(0-2, 1), and it dies     run B: S(0-2, 2) of which nothing is read -- Spark commits
    desk = make_desk()
    dead = dead_run(desk, mode)
    query = Query(desk.reader(ackMode=mode), dead.begun)
    query.end = dead.end
    assert len(query.tasks()) == 1
    commit(query)
    desk.until(lambda cursor: cursor.outstanding == OffsetSet.of((0, 1)) and not cursor.leased)


def test_what_a_task_has_read_to_its_end_is_not_read_again(make_desk: MakeDesk) -> None:
    # 0 of either partition is far from due; one task reads all, of the other the sink takes one row
    desk = make_desk(partitions=2)
    for partition in range(2):
        put_many(desk, WORTH_MESSAGES, partition)
    query = Query(desk.reader(ackMode="batch"))
    tasks = {task.slices[0].partition: task for task in query.next()}
    assert len(query.rows([tasks[0]])) == WORTH_MESSAGES
    assert taken_back(desk) == 1
    some = query.reader.read(tasks[1])
    next(some)
    some.close()  # type: ignore[attr-defined]
    commit(query)
    for partition in range(2):
        desk.until(lambda cursor: cursor.outstanding == OffsetSet.of((0, 1)) and not cursor.leased, partition)
        assert taken_back(desk, partition) == 1


def test_a_report_that_is_not_written_costs_a_second_reading_and_no_message(
    make_desk: MakeDesk,
) -> None:
    # the redeliveries topic has another number of partitions than the task was told
    desk = make_desk()
    put_many(desk, WORTH_MESSAGES)
    query = Query(desk.reader(ackMode="batch"))
    (task,) = query.next()
    assert task.report_to is not None
    wrong = LeasedSlices(
        task.slices, task.markers_partitions, task.now_ms, replace(task.report_to, partitions=7)
    )
    assert len(query.rows([wrong])) == WORTH_MESSAGES
    commit(query)
    desk.until(lambda cursor: cursor.outstanding == OffsetSet.of((0, 1)) and not cursor.leased)
    assert taken_back(desk) == 2


def test_tasks_that_share_the_keys_of_a_partition_are_spoken_for_apart(
    make_desk: MakeDesk,
) -> None:
    # four messages that are far from due, of four keys, in two tasks; one of the tasks is read
    desk = make_desk()
    options = {"ackMode": "batch", "subscriptionType": "key_shared", "minPartitions": 2}
    query = Query(desk.reader(**options))
    for key in (b"a", b"b", b"c", b"d"):
        desk.put(b"x", key=key, headers={"deliverAfter": FAR})
    tasks = query.next()
    assert len(tasks) == 2
    assert query.rows(tasks[:1]) == []
    commit(query)
    desk.until(lambda cursor: len(cursor.outstanding) == 4 and not cursor.leased)


def test_messages_are_not_looked_at_where_nothing_delays_them(make_desk: MakeDesk) -> None:
    desk = make_desk()
    query = Query(desk.reader(ackMode="batch", delayedDelivery="false"))
    put(desk, FAR, None)
    (task,) = query.next()
    assert task.report_to is None
    commit(query)
    desk.until(lambda cursor: cursor.mark_delete == 1)
    assert desk.markers(Release) == []


@pytest.mark.parametrize("ordering", ["none", "key"])
def test_a_topic_that_is_deleted_during_a_batch_ends_nothing_where_loss_is_no_failure(
    make_desk: MakeDesk, ordering: str
) -> None:
    # S(0-1, 1) of two topics, of which nothing is read | one is deleted | 1 of the other is acked, 0 not due
    desk = make_desk()
    other = f"{desk.queue}-other"
    desk.topics.create({other: (2, {})})
    topics = f"{desk.queue},{other}"
    query = Query(desk.reader(ackMode="batch", subscribe=topics, failOnDataLoss="false", ordering=ordering))
    records = [{"value": b"x", "partition": partition} for partition in (0, 0, 1)]
    produce(desk.control.config, other, records)
    for key, headers in ((b"a", {"deliverAfter": FAR}), (b"b", {})):
        desk.put(b"x", key=key, headers=headers)
    deleted = [task for task in query.next() if task.slices[0].topic == other]
    assert len(deleted) == 2
    desk.topics.delete(other)
    query.look()
    desk.until(lambda cursor: cursor.outstanding == OffsetSet.of((0, 1)) and not cursor.leased)
    assert query.rows(deleted[:1]) == []
    assert not any(one.cell.topic == other for one in desk.markers(End))
    desk.put(b"x", key=b"c")
    assert query.rows(query.next()) == [(2, 1)]


def test_who_acks_each_message_is_not_asked_what_was_read(make_desk: MakeDesk) -> None:
    desk = make_desk()
    query = Query(desk.reader())
    put_many(desk, WORTH_MESSAGES)
    tasks = query.next()
    assert [task.report_to for task in tasks] == [None]
    query.rows(tasks)
    commit(query)
    assert read_all(desk.control.config, desk.control.redeliveries) == []
