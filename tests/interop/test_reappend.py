"""Messages appended again: whole, to the right place, followed by the End that their consumers expect."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient

from spark_cursor_source.core.stats import ReappendTrouble, Stats
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.interop import lease_table_wire as table_wire
from spark_cursor_source.interop.lease_table import END, START, LeaseTable, MessageMarkers
from spark_cursor_source.interop.lease_tables import reappend_troubles
from spark_cursor_source.interop.markers_wire import decode, kmq_row, row_of
from spark_cursor_source.interop.reappend import Reappender
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.transaction import Record
from spark_cursor_source.options.reappend import MarkerFormat, ReappendOptions
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.tracker.fold import MarkerFold
from spark_cursor_source.wire import marker as marker_wire
from spark_cursor_source.wire.marker import MarkerV1
from tests.kafka.control_plane import (
    Control,
    allow_bob,
    login,
    new_control,
    produce,
    read_all,
    set_config,
)
from tests.kafka_version import KAFKA
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

PARTITIONS = 3
#: setting of a topic: how much older than the broker's time a timestamp may be
OLDEST_TIMESTAMP = f"message.timestamp.{'before' if KAFKA >= (3, 6) else 'difference'}.max.ms"
_REAPPEND_V1 = ReappendOptions(
    queue_topic="jobs",
    marker_format=MarkerFormat.PROTOBUF,
    max_deliveries=None,
    dead_letter_topic="jobs-dead",
)


@pytest.fixture
def options(control: Control, topics: ClusterAdmin) -> ReappendOptions:
    topics.create({control.queue: (PARTITIONS, {})})
    return ReappendOptions(
        queue_topic=control.queue,
        marker_format=MarkerFormat.PROTOBUF,
        max_deliveries=None,
        dead_letter_topic=f"{control.queue}-dead",
    )


@pytest.fixture
def reappender(
    control: Control, topics: ClusterAdmin, options: ReappendOptions
) -> Iterator[Callable[[ReappendOptions], Reappender]]:
    made: list[Reappender] = []

    def make(options: ReappendOptions) -> Reappender:
        made.append(
            Reappender(control.config, topics, options, markers_topic=control.markers, patience_ms=20_000)
        )
        return made[-1]

    yield make
    for one in made:
        one.close()


def due(*messages: tuple[int, int, int]) -> dict[int, LeaseTable]:
    """Leases that are over, of markers partition 1: (partition, offset, where the Start is)."""
    rows = [(start, 0, START, partition, offset, 0) for partition, offset, start in messages]
    return {1: LeaseTable.resume(None).apply(MessageMarkers.of(sorted(rows)))}


def test_a_message_is_appended_whole_and_its_end_is_that_of_its_queue(
    control: Control, options: ReappendOptions, reappender: Callable[[ReappendOptions], Reappender]
) -> None:
    headers = [("trace", b"1"), ("trace", None)]
    first = {"key": b"q1", "value": b"one", "headers": headers, "timestamp": 1_700_000_000_000}
    produce(control.config, control.queue, [first, {"key": b"q2", "value": None}])
    ends = reappender(options).reappend(due((0, 0, 40), (0, 1, 41)))
    copies = {m.key(): m for m in read_all(control.config, control.queue) if not _is_original(m)}
    assert copies[b"q1"].value() == b"one"
    # Retention goes by the timestamp: with the old one, a copy could be removed before anybody reads it.
    assert copies[b"q1"].timestamp()[1] > 1_700_000_000_000
    assert copies[b"q1"].headers() == [
        *headers,
        ("cursorq-partition", b"0"),
        ("cursorq-offset", b"0"),
        ("cursorq-redelivery-count", b"1"),
        ("cursorq-timestamp", b"1700000000000"),
    ]
    assert copies[b"q2"].value() is None
    assert [(end.topic, end.partition, end.key) for end in ends] == [
        (control.markers, 1, b"q1"),
        (control.markers, 1, b"q2"),
    ]
    assert marker_wire.decode(b"q2", ends[1].value) == MarkerV1(
        queue_id=b"q2", type=marker_wire.MarkerType.END, partition=0, offset=1
    )


def test_a_copy_that_is_appended_again_counts_on_and_names_the_copy(
    control: Control, options: ReappendOptions, reappender: Callable[[ReappendOptions], Reappender]
) -> None:
    own = [
        ("cursorq-partition", b"2"),
        ("cursorq-offset", b"9"),
        ("cursorq-redelivery-count", b"4"),
        ("cursorq-timestamp", b"1700000000000"),
    ]
    produce(control.config, control.queue, [{"key": b"q1", "value": b"one", "headers": own}])
    reappender(options).reappend(due((0, 0, 40)))
    (copy,) = [m for m in read_all(control.config, control.queue) if m.headers() != own]
    assert copy.headers() == [
        ("cursorq-partition", b"0"),
        ("cursorq-offset", b"0"),
        ("cursorq-redelivery-count", b"5"),
        ("cursorq-timestamp", b"1700000000000"),
    ]


def test_a_message_that_retention_has_taken_comes_from_its_start(
    control: Control, options: ReappendOptions, reappender: Callable[[ReappendOptions], Reappender]
) -> None:
    produce(control.config, control.queue, [{"key": b"q1", "value": str(n).encode()} for n in range(3)])
    start = MarkerV1(
        queue_id=b"q1", type=marker_wire.MarkerType.START, partition=0, offset=0, key=b"q1", value=b"0"
    )
    # The Start of offset 0 is there, that of offset 1 is another's, and offset 2 is still in the topic.
    produce(control.config, control.markers, [_start_record(start), _start_record(start)])
    _delete_below(control, 2)
    one = reappender(options)
    ends = one.reappend(due((0, 0, 0), (0, 1, 1), (0, 2, 2)))
    copies = [m.value() for m in read_all(control.config, control.queue) if not _is_original(m)]
    assert sorted(filter(None, copies)) == [b"0", b"2"]
    assert (len(ends), one.lost) == (2, 1)


def test_a_message_at_its_last_delivery_is_a_dead_letter_and_has_an_end(
    control: Control, options: ReappendOptions, reappender: Callable[[ReappendOptions], Reappender]
) -> None:
    count = [("cursorq-redelivery-count", b"2")]
    produce(control.config, control.queue, [{"key": b"q1", "value": b"one", "headers": count}])
    ends = reappender(replace(options, max_deliveries=3)).reappend(due((0, 0, 40)))
    (letter,) = read_all(control.config, options.dead_letter_topic)
    headers = dict(letter.headers() or [])
    assert (letter.key(), letter.value(), len(ends)) == (b"q1", b"one", 1)
    assert headers["cursorq-delivery-count"] == b"3"
    assert headers["cursorq-subscription"] == b"kafka-mq-go"
    assert "cursorq-redelivery-count" not in headers, "one that is sent back begins anew"
    assert len(read_all(control.config, control.queue)) == 1


def test_a_message_of_kmq_comes_back_to_its_partition_three_times(
    control: Control, options: ReappendOptions, reappender: Callable[[ReappendOptions], Reappender]
) -> None:
    kmq = replace(options, marker_format=MarkerFormat.KMQ, max_deliveries=4)
    again = reappender(kmq)
    produce(control.config, control.queue, [{"key": None, "value": b"one", "partition": 2}])
    for offset in range(4):
        (end,) = again.reappend(due((2, offset, 40)))
        assert (end.partition, end.key, end.value) == (1, _kmq_key(2, offset), b"\x00")
    records = read_all(control.config, control.queue)
    assert [m.partition() for m in records] == [2] * 4
    counts = [dict(m.headers() or []).get("kmq-redelivery-count") for m in records]
    assert counts == [None, b"\x01", b"\x02", b"\x03"]
    assert [m.value() for m in read_all(control.config, kmq.dead_letter_topic)] == [b"one"]


def test_a_message_of_kmq_with_the_largest_count_keeps_it(
    control: Control, options: ReappendOptions, reappender: Callable[[ReappendOptions], Reappender]
) -> None:
    kmq = replace(options, marker_format=MarkerFormat.KMQ, max_deliveries=None)
    count = [("kmq-redelivery-count", b"\x7f\xff\xff\xff")]
    produce(control.config, control.queue, [{"value": b"one", "partition": 2, "headers": count}])
    assert len(reappender(kmq).reappend(due((2, 0, 40)))) == 1
    records = read_all(control.config, control.queue)
    assert [dict(m.headers() or [])["kmq-redelivery-count"] for m in records] == [b"\x7f\xff\xff\xff"] * 2


def test_a_queue_topic_that_is_gone_loses_its_messages_with_a_count_and_no_end(
    control: Control, options: ReappendOptions, reappender: Callable[[ReappendOptions], Reappender]
) -> None:
    one = reappender(replace(options, queue_topic="no-such-topic", marker_format=MarkerFormat.KMQ))
    assert (one.reappend(due((0, 0, 40))), one.lost) == ([], 1)


@pytest.mark.parametrize("marker_format", list(MarkerFormat))
def test_a_message_that_cannot_be_appended_stays_open_for_longer_each_time_and_holds_up_no_other(
    control: Control,
    options: ReappendOptions,
    reappender: Callable[[ReappendOptions], Reappender],
    topics: ClusterAdmin,
    marker_format: MarkerFormat,
) -> None:
    # Its limit was lowered; a broker refuses together what was sent together.
    small = f"{control.queue}-small"
    topics.create({small: (1, {"max.message.bytes": 500})})
    for value in (b"x" * 400, b"fits"):
        produce(control.config, small, [{"key": b"q1", "value": value}])
    one = reappender(replace(options, queue_topic=small, marker_format=marker_format))
    for pause_ms in (2_000, 4_000):
        again, end = rows_of(one.reappend(due((0, 0, 40), (0, 1, 41))), marker_format)
        assert again == (START, 0, 0, pause_ms)
        assert end[:3] == (END, 0, 1)
    why, messages = one.trouble(1)
    assert ("MSG_SIZE_TOO_LARGE" in why, messages) == (True, 1)
    copies = [m.value() for m in read_all(control.config, small)]
    assert copies == [b"x" * 400, b"fits", b"fits", b"fits"]


def test_a_topic_that_refuses_each_timestamp_leaves_its_messages_open_until_it_takes_them(
    control: Control,
    options: ReappendOptions,
    reappender: Callable[[ReappendOptions], Reappender],
) -> None:
    produce(control.config, control.queue, [{"key": b"q1", "value": b"one"}])
    one, admin = reappender(options), AdminClient(control.config)
    set_config(admin, control.queue, OLDEST_TIMESTAMP, "0")
    ((*again, pause_ms),) = rows_of(one.reappend(due((0, 0, 40))), options.marker_format)
    assert again == [START, 0, 0]
    assert pause_ms >= 2_000
    why, messages = one.trouble(1)
    assert ("INVALID_TIMESTAMP" in why, messages) == (True, 1)
    set_config(admin, control.queue, OLDEST_TIMESTAMP, "9223372036854775807")
    # A topic that answered late is left alone for some seconds.
    wait_until(lambda: rows_of(one.reappend(due((0, 0, 41))), options.marker_format)[0][:3] == (END, 0, 0))
    assert one.trouble(1)[1] == 0


@pytest.mark.parametrize("allowed", [AclOperation.READ, AclOperation.WRITE])
def test_a_right_that_is_missing_leaves_the_messages_open(
    guarded_broker: EmbeddedKafka, allowed: AclOperation
) -> None:
    # The tracker may read its queue topic and not write to it, or the other way round.
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers, "log_level": "0"}
    control = new_control(servers | login("admin", "of-admin"))
    ClusterAdmin(control.config).create({control.queue: (1, {})})
    produce(control.config, control.queue, [{"value": b"one"}])
    allow_bob(control, {control.queue: allowed})
    bob = servers | login("bob", "of-bob")
    options = ReappendOptions(
        queue_topic=control.queue,
        marker_format=MarkerFormat.KMQ,
        max_deliveries=None,
        dead_letter_topic=f"{control.queue}-dead",
    )
    tracker = Reappender(bob, ClusterAdmin(bob), options, markers_topic=control.markers, patience_ms=20_000)
    with closing(tracker) as one:
        ((*again, pause_ms),) = rows_of(one.reappend(due((0, 0, 40))), MarkerFormat.KMQ)
        assert again == [START, 0, 0]
        assert pause_ms >= 2_000  # longer where the answer took long
        why, messages = one.trouble(1)
    assert (control.queue in why or "AUTHORIZATION_FAILED" in why, messages) == (True, 1)


def test_a_dead_letter_that_cannot_be_written_leaves_its_message_open(
    control: Control, options: ReappendOptions, reappender: Callable[[ReappendOptions], Reappender]
) -> None:
    produce(control.config, control.queue, [{"key": b"q1", "value": b"one"}])
    illegal = replace(options, max_deliveries=1, dead_letter_topic="no/topic")
    one = reappender(illegal)
    (start,) = one.reappend(due((0, 0, 40)))
    again = marker_wire.decode(start.key, start.value)
    assert isinstance(again, MarkerV1)
    assert again.redeliver_after_ms >= 2_000
    assert again == MarkerV1(
        queue_id=b"q1",
        type=marker_wire.MarkerType.START,
        partition=0,
        offset=0,
        redeliver_after_ms=again.redeliver_after_ms,
        key=b"q1",
        value=b"one",
    )
    why, messages = one.trouble(1)
    assert ("no/topic" in why, messages) == (True, 1)


def test_while_a_topic_is_late_a_message_without_a_start_stays_open(
    control: Control, options: ReappendOptions, reappender: Callable[[ReappendOptions], Reappender]
) -> None:
    produce(control.config, control.queue, [{"key": b"q1", "value": str(n).encode()} for n in range(2)])
    _delete_below(control, 1)
    one = reappender(options)
    one._troubles.failed({(1, 9): "no answer"}, {(1, 9): 1}, alone=(), spent_ms=2_000)
    # retention has removed both Starts; only offset 1 is still in the queue topic
    held = one.reappend(due((0, 0, 40), (0, 1, 41)))
    assert opened_by(held) == [(0, 0), (0, 1)]
    assert {hold.partition for hold in held} == {1}
    assert one.lost == 0
    assert [m.value() for m in read_all(control.config, control.queue)] == [b"1"]


def test_a_message_without_key_and_start_stays_open_while_it_cannot_be_appended(
    control: Control,
    options: ReappendOptions,
    reappender: Callable[[ReappendOptions], Reappender],
    topics: ClusterAdmin,
) -> None:
    small = f"{control.queue}-small"
    topics.create({small: (1, {"max.message.bytes": 500})})
    produce(control.config, small, [{"value": b"x" * 400}])
    one = reappender(replace(options, queue_topic=small))
    (hold,) = one.reappend(due((0, 0, 40)))
    marker = marker_wire.decode(hold.key, hold.value)
    assert isinstance(marker, MarkerV1)
    # kafka-mq-go's tracker ignores it: it would append the empty content of a Start
    assert marker.type is marker_wire.MarkerType.KEEP_ALIVE
    assert "MSG_SIZE_TOO_LARGE" in marker.trouble
    assert opened_by([hold]) == [(0, 0)]
    assert one.lost == 0
    set_config(AdminClient(control.config), small, "max.message.bytes", "1000000")
    wait_until(lambda: one.reappend(due((0, 0, 41))) == [], "no consumer can read an End without a queue id")
    assert [m.value() for m in read_all(control.config, small)] == [b"x" * 400] * 2
    assert one.lost == 0


def test_a_queue_topic_that_cannot_be_read_holds_its_messages_and_fails_no_batch(
    guarded_broker: EmbeddedKafka,
) -> None:
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers, "log_level": "0"}
    control = new_control(servers | login("admin", "of-admin"))
    ClusterAdmin(control.config).create({control.queue: (1, {})})
    produce(control.config, control.queue, [{"key": b"q1", "value": b"one"}])
    allow_bob(control, {control.queue: AclOperation.WRITE})
    bob = servers | login("bob", "of-bob")
    options = ReappendOptions(
        queue_topic=control.queue,
        marker_format=MarkerFormat.PROTOBUF,
        max_deliveries=None,
        dead_letter_topic=f"{control.queue}-dead",
    )
    tracker = Reappender(bob, ClusterAdmin(bob), options, markers_topic=control.markers, patience_ms=20_000)
    with closing(tracker) as one:
        for tried in range(1, 3):
            held = one.reappend(due((0, 0, 40)))
            assert opened_by(held) == [(0, 0)], f"try {tried}"
        assert one.lost == 0
        why, messages = one.trouble(1)
        assert (control.queue in why or "AUTHORIZATION_FAILED" in why, messages) == (True, 1)
        allow_bob(control, {control.queue: AclOperation.READ})
        # A topic that answered late is left alone for some seconds.
        wait_until(
            lambda: rows_of(one.reappend(due((0, 0, 41))), options.marker_format)[0][0] == END, timeout_s=90
        )
    assert [m.value() for m in read_all(control.config, control.queue)] == [b"one"] * 2


def test_what_cannot_be_appended_again_is_shown_by_the_stats(control: Control) -> None:
    cell = table_wire.table_cell("jobs", control.markers, 1)
    value = table_wire.encode_record(LeaseTable.resume(None), cell, trouble="too large", troubled=2)
    produce(control.config, control.cursors, [{"key": cell.key, "value": value}])
    with closing(CursorTable(control.config, control.cursors)) as tail:
        tail.refresh()
        (found,) = reappend_troubles(tail, control.markers)
    assert found == ReappendTrouble(topic="jobs", messages=2, trouble="too large")
    told = Stats(subscriptions=(), reappend_troubles=(found,))
    assert told.to_text() == "trouble: jobs: 2 messages could not be appended again, because too large"
    assert json.loads(told.to_json())["reappend_troubles"][0]["messages"] == 2


def rows_of(records: Sequence[Record], marker_format: MarkerFormat) -> list[tuple[int, ...]]:
    """Kind, partition, offset and lease of markers, Starts first."""
    rows = []
    for record in records:
        if marker_format is MarkerFormat.KMQ:
            rows.append(kmq_row(0, 0, record.key, record.value)[2:])
        else:
            marker = marker_wire.decode(record.key, record.value)
            assert isinstance(marker, MarkerV1)
            rows.append(row_of(0, 0, marker)[2:])
    return sorted(rows)


def opened_by(records: Sequence[Record]) -> list[tuple[int, int]]:
    """Messages that a lease table holds after these V1 markers, by partition and offset."""
    fold = MarkerFold(1, "markers", _REAPPEND_V1)
    keys, values = [record.key for record in records], [record.value for record in records]
    fold.add_all(range(len(records)), [0] * len(records), keys, values)
    bodies = [row.body for row in fold.rows()]
    markers = MessageMarkers.concatenated([decode(body) for body in bodies])
    table = LeaseTable.resume(None).apply(markers)
    return list(zip(table.partitions.tolist(), table.offsets.tolist(), strict=True))


def _is_original(message: Message) -> bool:
    return "cursorq-offset" not in dict(message.headers() or [])


def _start_record(start: MarkerV1) -> dict[str, object]:
    return {"key": start.queue_id, "value": marker_wire.encode_v1(start), "partition": 1}


def _kmq_key(partition: int, offset: int) -> bytes:
    return partition.to_bytes(4, "big") + offset.to_bytes(8, "big")


def _delete_below(control: Control, offset: int) -> None:
    admin = AdminClient(control.config)
    for done in admin.delete_records([TopicPartition(control.queue, 0, offset)]).values():
        done.result(timeout=20)
