"""Announcements read from the redeliveries topic: any range, from memory or from the topic."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from spark_cursor_source.consumer.pending import ClientRedeliveries, PlannedRedeliveries
from spark_cursor_source.core.batch import SourceOffset
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.tracker import Redeliver
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import NotAuthorized, RedeliveriesTopicRecreated
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.redeliveries import RedeliveryLog
from spark_cursor_source.topics.redelivery_partitions import RedeliveryPartitions
from spark_cursor_source.wire import offset_json
from spark_cursor_source.wire import redelivery as wire
from tests.conftest import DeleteTopic
from tests.kafka.control_plane import (
    PARTITIONS,
    Control,
    cell_of,
    login,
    produce,
    redeliver_of,
    transaction,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

MakeControl = Callable[[dict[str, str]], Control]
Found = list[tuple[int, int, Redeliver]]


@pytest.fixture
def tail(control: Control) -> RedeliveryLog:
    return RedeliveryLog(control.config, control.redeliveries)


def announcement(offset: int) -> Redeliver:
    return redeliver_of(cell_of("orders"), (offset, offset + 1))


def announce(control: Control, count: int, *, partition: int = 0, first: int = 0) -> None:
    """``count`` announcements, each of the offset that it stands at itself."""
    records = [
        {"key": b"k", "value": wire.encode(announcement(first + n)), "partition": partition}
        for n in range(count)
    ]
    produce(control.config, control.redeliveries, records)


def between(tail: RedeliveryLog, starts: dict[int, int], stops: dict[int, int]) -> Found:
    return [(one.partition, one.offset, one.redeliver) for one in tail.between(starts, stops)]


def expected(partition: int, start: int, stop: int) -> Found:
    return [(partition, offset, announcement(offset)) for offset in range(start, stop)]


def test_what_was_polled_is_given_in_ranges(control: Control, tail: RedeliveryLog) -> None:
    assert tail.poll({0: 0, 3: 0}) == 0
    announce(control, 10)
    announce(control, 4, partition=3)
    assert tail.poll({0: 10, 3: 4}) == 14
    assert tail.poll({0: 10, 3: 4}) == 0
    assert between(tail, {0: 2, 3: 1}, {0: 5, 3: 3}) == expected(0, 2, 5) + expected(3, 1, 3)
    assert between(tail, {0: 5}, {0: 5, 3: 4}) == expected(3, 0, 4)


def test_announcements_of_other_subscriptions_are_not_kept(control: Control) -> None:
    own, other = cell_of("orders"), cell_of("orders", 0, "shipping")
    records = [
        {"key": cell.key, "value": wire.encode(redeliver_of(cell, (n, n + 1))), "partition": 0}
        for n, cell in enumerate([own, other] * 20)
    ]
    produce(control.config, control.redeliveries, records)
    with closing(RedeliveryLog(control.config, control.redeliveries, subscription=own.subscription)) as tail:
        found = tail.between({}, {0: 40})
        assert [one.offset for one in found] == list(range(0, 40, 2))
        assert len(tail) == 20


def test_what_was_never_polled_is_read_from_the_topic(control: Control, tail: RedeliveryLog) -> None:
    announce(control, 10)
    assert between(tail, {0: 6}, {0: 8}) == expected(0, 6, 8)
    assert between(tail, {}, {0: 10}) == expected(0, 0, 10)


def test_a_first_poll_at_the_end_leaves_the_past_to_whoever_asks_for_it(
    control: Control, tail: RedeliveryLog
) -> None:
    announce(control, 6)
    assert tail.poll({0: 6}) == 0
    announce(control, 2, first=6)
    assert tail.poll({0: 8}) == 2
    assert between(tail, {0: 3}, {0: 8}) == expected(0, 3, 8)


def test_what_was_discarded_can_be_read_again(control: Control, tail: RedeliveryLog) -> None:
    announce(control, 8)
    assert between(tail, {}, {0: 8}) == expected(0, 0, 8)
    tail.discard({0: 5, 7: 3})
    assert between(tail, {0: 5}, {0: 8}) == expected(0, 5, 8)
    assert between(tail, {0: 2}, {0: 6}) == expected(0, 2, 6)


def test_any_sequence_of_questions_gets_the_answers_of_the_topic(
    control: Control, tail: RedeliveryLog
) -> None:
    announce(control, 60)
    choose = random.Random(7)
    for _ in range(60):
        start, stop = sorted(choose.sample(range(61), 2))
        match choose.randrange(3):
            case 0:
                tail.poll({0: stop})
            case 1:
                tail.discard({0: start})
            case _:
                assert between(tail, {0: start}, {0: stop}) == expected(0, start, stop)


def test_nothing_of_an_aborted_transaction_is_announced(control: Control, tail: RedeliveryLog) -> None:
    # 0 committed, 1 its end, 2 aborted, 3 its end, 4 committed, 5 its end
    for offset, commit in ((0, True), (2, False), (4, True)):
        record = {"key": b"k", "value": wire.encode(announcement(offset))}
        transaction(control.config, [(control.redeliveries, record)], commit=commit)
    assert between(tail, {}, {0: 6}) == expected(0, 0, 1) + expected(0, 4, 5)
    assert between(tail, {0: 5}, {0: 6}) == []


def test_records_that_retention_has_removed_are_just_gone(
    control: Control, tail: RedeliveryLog, admin: AdminClient
) -> None:
    announce(control, 10)
    removed = admin.delete_records([TopicPartition(control.redeliveries, 0, 7)])
    next(iter(removed.values())).result(timeout=20)
    assert between(tail, {}, {0: 10}) == expected(0, 7, 10)
    assert between(RedeliveryLog(control.config, control.redeliveries), {0: 2}, {0: 5}) == []


def test_records_that_are_no_announcements_are_skipped_and_named(
    control: Control, tail: RedeliveryLog, caplog: pytest.LogCaptureFixture
) -> None:
    announce(control, 1)
    values: list[bytes | None] = [b"\xff\xff", b"", None]
    produce(control.config, control.redeliveries, [{"key": b"k", "value": value} for value in values])
    announce(control, 1, first=4)
    with caplog.at_level(logging.WARNING):
        assert between(tail, {}, {0: 5}) == expected(0, 0, 1) + expected(0, 4, 5)
    for offset in (1, 2, 3):
        assert (
            f"announcement_skipped topic={control.redeliveries} partition=0 offset={offset} " in caplog.text
        )


def test_a_range_of_a_topic_that_was_made_again_since_is_empty(
    control: Control, delete_topic: DeleteTopic, topics: ClusterAdmin
) -> None:
    announce(control, 10)
    delete_topic(control.redeliveries)
    topics.create({control.redeliveries: (PARTITIONS, {})})
    announce(control, 2)
    tail = RedeliveryLog(control.config, control.redeliveries)
    assert between(tail, {0: 5}, {0: 10}) == []


def test_a_restart_of_the_broker_is_waited_for(mortal: EmbeddedKafka, make_control: MakeControl) -> None:
    control = make_control({"bootstrap.servers": mortal.bootstrap_servers})
    tail = RedeliveryLog(control.config, control.redeliveries)
    announce(control, 5)
    assert between(tail, {}, {0: 5}) == expected(0, 0, 5)
    mortal.restart()
    announce(control, 5, first=5)
    assert tail.poll({0: 10}) == 5
    assert between(tail, {}, {0: 10}) == expected(0, 0, 10)


def test_whoever_may_not_read_redeliveries_is_told(
    guarded_broker: EmbeddedKafka, make_control: MakeControl
) -> None:
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers, "log_level": "0"}
    control = make_control(servers | login("admin", "of-admin"))
    announce(control, 1)
    tail = RedeliveryLog(servers | login("bob", "of-bob"), control.redeliveries)
    with pytest.raises(NotAuthorized) as refused:
        tail.between({}, {0: 1})
    assert refused.value.resource == control.redeliveries


def test_a_client_and_a_query_read_partitions_that_the_topic_was_given_since(control: Control) -> None:
    # eight partitions | sixteen | an announcement in the last one
    topics = ClusterAdmin(control.config)
    announced = announced_of(control, topics)
    announced.begin(announced.ends())
    pending = inbox_of(control, topics)
    grow(control, 16)
    announce(control, 1, partition=15)
    announced.count_partitions()
    announced.read(announced.ends())
    assert announced.waiting([], alone=False) == 1
    pending.count_partitions()
    start = SourceOffset(queue={}, redeliveries=dict.fromkeys(range(PARTITIONS), 0))
    assert [one.partition for one in pending.pending(start, pending.ends())] == [15]
    pending.close()
    announced.close()


def test_positions_in_a_redeliveries_topic_that_was_made_anew_are_none(
    control: Control, delete_topic: DeleteTopic
) -> None:
    # a batch ends at 5 of the first topic | the topic is made anew, with an announcement at 0
    topics = ClusterAdmin(control.config)
    announce(control, 5)
    before = inbox_of(control, topics)
    announced = announced_of(control, topics)
    batch = SourceOffset(queue={}, redeliveries=before.ends(), redeliveries_id=before.topic_id)
    assert before.here(batch) is batch
    delete_topic(control.redeliveries)
    topics.create({control.redeliveries: (PARTITIONS, {})})
    with pytest.raises(RedeliveriesTopicRecreated, match="Start the query again with its checkpoint"):
        before.count_partitions()
    with closing(announced), pytest.raises(RedeliveriesTopicRecreated, match="or open the consumer again"):
        announced.count_partitions()
    announce(control, 1)
    after = inbox_of(control, topics)
    stored = offset_json.decode(offset_json.encode(batch))
    start = after.here(stored)
    assert [one.redeliver for one in after.pending(start, after.ends())] == [announcement(0)]
    untold = replace(batch, redeliveries_id=None)
    assert after.here(untold) is untold, "of an earlier version: it is taken for the same topic"
    before.close()
    after.close()


def inbox_of(control: Control, topics: ClusterAdmin) -> PlannedRedeliveries:
    log, places = RedeliveryLog(control.config, control.redeliveries), partitions_of(control, topics)
    return PlannedRedeliveries(log, places, Everything(), Everything())  # type: ignore[arg-type]


def announced_of(control: Control, topics: ClusterAdmin) -> ClientRedeliveries:
    log, places = RedeliveryLog(control.config, control.redeliveries), partitions_of(control, topics)
    return ClientRedeliveries(log, places, Everything(), Everything())  # type: ignore[arg-type]


def partitions_of(control: Control, topics: ClusterAdmin) -> RedeliveryPartitions:
    return RedeliveryPartitions(topics, control.redeliveries)


class Everything:
    """Stands for a run that has all cells."""

    def owns(self, cell: Cell) -> bool:
        return True

    def id_of(self, cell: Cell) -> str:
        return "run"


def grow(control: Control, partitions: int) -> None:
    admin = AdminClient(control.config)
    made = admin.create_partitions([NewPartitions(control.redeliveries, partitions)])
    made[control.redeliveries].result(20)
    topics = ClusterAdmin(control.config)
    wait_until(lambda: topics.describe([control.redeliveries])[control.redeliveries].partitions == partitions)
