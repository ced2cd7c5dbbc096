"""Planning for kafka-mq-go's tracker, on a real broker, without Spark: one Start a message, whatever dies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from spark_cursor_source.consumer.planner import Planner
from spark_cursor_source.core.batch import SourceOffset
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import DataLoss, MarkerFormatChanged, QueueTopicRecreated
from spark_cursor_source.interop.planner import PlannerV1
from spark_cursor_source.interop.redelivery_count import HEADER_REDELIVERY_COUNT
from spark_cursor_source.interop.sender import MarkerSenderV1
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.spark.reader import CursorqStreamReader, LeasedSlices
from spark_cursor_source.wire.marker import MarkerType, MarkerV1, decode
from tests.kafka.control_plane import produce, read_all
from tests.logged import events
from tests.spark.harness import logged, wait_until

pytestmark = pytest.mark.broker

PARTITIONS = 4


class Desk:
    """A queue topic, its markers topic, and planners that are run as Spark would run them."""

    def __init__(self, servers: str, queue: str, markers: str) -> None:
        self.config = {"bootstrap.servers": servers}
        self.queue, self.markers_topic = queue, markers
        self.topics = ClusterAdmin(self.config)
        self.topics.ensure_markers(markers, partitions=PARTITIONS)
        self._planners: list[PlannerV1] = []

    def close(self) -> None:
        for planner in self._planners:
            planner.close()

    def options(self, **more: object) -> SourceOptions:
        given = {
            "kafka.bootstrap.servers": self.config["bootstrap.servers"],
            "subscribe": self.queue,
            "subscription": self.queue,  # in a group of its own nobody is waited for that is gone
            "markerFormat": "v1",
            "markersTopic": self.markers_topic,
        }
        return SourceOptions.parse(given | {name: str(value) for name, value in more.items()})

    def planner(self, **more: object) -> PlannerV1:
        """The next run, when the one before is gone."""
        self.close()
        self._planners.append(PlannerV1(self.options(**more)))
        return self._planners[-1]

    def put(self, *keys: bytes | None, partition: int = 0, **record: Any) -> None:
        """A message of each of these keys."""
        records = [{"key": key, "value": b"of-%s" % (key or b""), "partition": partition} for key in keys]
        produce(self.config, self.queue, [one | record for one in records])

    def markers(self, kind: int | None = None) -> list[MarkerV1]:
        decoded = [decode(one.key(), one.value()) for one in read_all(self.config, self.markers_topic)]
        found = [one for one in decoded if isinstance(one, MarkerV1)]
        assert len(found) == len(decoded)
        return [one for one in found if kind in (None, one.type)]

    def started(self) -> list[tuple[int, int]]:
        """(partition, offset) of each Start."""
        return sorted((one.partition, one.offset) for one in self.markers(MarkerType.START))


@pytest.fixture
def make_desk(broker: EmbeddedKafka, create_topic: Callable[..., str]) -> Iterator[Callable[..., Desk]]:
    made: list[Desk] = []

    def make(partitions: int = 1) -> Desk:
        queue = create_topic(partitions)
        made.append(Desk(broker.bootstrap_servers, queue, f"markers-of-{queue}"))
        return made[-1]

    yield make
    for desk in made:
        desk.close()


def ids(tasks: Sequence[Sequence[Slice]], count: int | None = None) -> list[tuple[int, int]]:
    """(partition, offset) of all that a batch delivers, of one delivery count or of any."""
    pieces = [piece for task in tasks for piece in task if count in (None, piece.delivery_count)]
    return sorted((piece.partition, offset) for piece in pieces for offset in piece.offsets)


def test_each_message_of_a_batch_has_its_start_with_key_and_value_before_it_is_handed_out(
    make_desk: Callable[..., Desk],
) -> None:
    desk = make_desk(2)
    desk.put(b"q1", b"q2", b"q1")
    desk.put(b"q2", partition=1)
    planner = desk.planner(leaseTimeout="7s")
    start = planner.initial_offset()
    end = planner.latest_offset(start, max_offsets=None)
    assert desk.markers() == [], "the offset log comes first"
    tasks = planner.plan(start, end).tasks
    assert ids(tasks, 1) == desk.started() == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert all(
        one.key == one.queue_id and one.value == b"of-" + one.key and one.redeliver_after_ms == 7_000
        for one in desk.markers(MarkerType.START)
    )
    assert planner.latest_offset(end, max_offsets=None) is end, "nothing more"


def test_an_idle_query_waits_for_an_append_instead_of_asking_for_ends(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk()
    planner = desk.planner()
    start = planner.initial_offset()
    appends = planner._appends

    def rests() -> bool:
        assert planner.latest_offset(start, max_offsets=None) is start
        return bool(appends._fetched)

    wait_until(rests, "it leaves a fetch at the broker")
    desk.put(b"q")
    end = wait_until(
        lambda: end if (end := planner.latest_offset(start, max_offsets=None)) is not start else None, "news"
    )
    assert not appends._fetched, "a batch ends the fetch"
    assert ids(planner.plan(start, end).tasks) == [(0, 0)]


def test_a_batch_that_is_asked_for_twice_holds_the_same_messages(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk()
    desk.put(b"a", b"b")
    reader = CursorqStreamReader(desk.options())
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    first, second = reader.partitions(start, end), reader.partitions(start, end)
    reader.stop()
    (task,) = first
    assert isinstance(task, LeasedSlices)
    assert ids([task.slices]) == [(0, 0), (0, 1)]
    assert second == first
    assert desk.started() == [(0, 0), (0, 1)]


def test_a_replayed_batch_holds_what_has_no_start_and_leaves_the_rest_to_the_tracker(
    make_desk: Callable[..., Desk],
) -> None:
    # run 1: log(0-5), Starts of 0, 1 and 3, killed    run 2: plans 0-5 again: 2, 4, 5    run 3: nothing
    desk = make_desk()
    desk.put(*[b"q%d" % (n % 3) for n in range(6)])
    first = desk.planner()
    start = first.initial_offset()
    end = first.latest_offset(start, max_offsets=None)
    sender = MarkerSenderV1(desk.config, desk.markers_topic, PARTITIONS)
    with closing(sender):
        sender.send(
            MarkerV1(
                queue_id=b"q%d" % (n % 3), type=MarkerType.START, partition=0, offset=n, key=b"q%d" % (n % 3)
            )
            for n in (0, 1, 3)
        )
        # An End or a KeepAlive is no Start, and neither is a Start of another partition.
        sender.send([MarkerV1(queue_id=b"q2", type=MarkerType.END, partition=0, offset=2)])
        sender.send([MarkerV1(queue_id=b"q2", type=MarkerType.START, partition=1, offset=2, key=b"q2")])
        sender.flush()
    second = desk.planner()
    assert ids(second.plan(logged(start), logged(end)).tasks) == [(0, 2), (0, 4), (0, 5)]
    third = desk.planner()
    assert ids(third.plan(logged(start), logged(end)).tasks) == []
    assert [one for one in desk.started() if one[0] == 0] == [(0, n) for n in range(6)], "one Start each"
    assert ids(third.plan(logged(start), logged(start)).tasks) == []


def test_starts_of_earlier_batches_do_not_count_for_a_replay(make_desk: Callable[..., Desk]) -> None:
    # batch 0: 0-1, done    batch 1: 2-3, killed before its Starts    replay: 2-3
    desk = make_desk()
    desk.put(b"q", b"q")
    first = desk.planner()
    start = first.initial_offset()
    middle = first.latest_offset(start, max_offsets=None)
    first.plan(start, middle)
    desk.put(b"q", b"q")
    end = first.latest_offset(middle, max_offsets=None)
    assert sum(end.markers.values()) == 2, "where the markers ended before this batch's"
    assert ids(desk.planner().plan(logged(middle), logged(end)).tasks) == [(0, 2), (0, 3)]


def test_what_was_logged_and_not_committed_gets_the_starts_that_it_does_not_have(
    make_desk: Callable[..., Desk],
) -> None:
    # log(0-2) S -- log(2-5), and a member no more: a Start of 3 at most -- the next run goes on at 2
    desk = make_desk()
    desk.put(*[b"q"] * 6)
    first = desk.planner()
    start = first.initial_offset()
    middle = first.latest_offset(start, max_offsets=2)
    first.plan(start, middle)
    end = first.latest_offset(middle, max_offsets=3)
    with closing(MarkerSenderV1(desk.config, desk.markers_topic, PARTITIONS)) as sender:
        sender.send([MarkerV1(queue_id=b"q", type=MarkerType.START, partition=0, offset=3, key=b"q")])
        sender.flush()
    second = desk.planner()
    last = second.latest_offset(logged(end), max_offsets=None)
    assert last.origins == {(desk.queue, 0): 2}
    assert ids(second.plan(logged(end), logged(last)).tasks) == [(0, 2), (0, 4), (0, 5)]
    assert desk.started() == [(0, n) for n in range(6)], "one Start each"
    third = desk.planner()
    assert ids(third.plan(logged(end), logged(last)).tasks) == [], "a replay begins where the batch began"


def test_messages_without_a_key_belong_to_no_queue_and_are_counted(
    make_desk: Callable[..., Desk], caplog: pytest.LogCaptureFixture
) -> None:
    desk = make_desk()
    desk.put(b"q", None, b"", b"q", None)
    planner = desk.planner()
    start = planner.initial_offset()
    end = planner.latest_offset(start, max_offsets=None)
    with caplog.at_level(logging.WARNING):
        assert ids(planner.plan(start, end).tasks) == [(0, 0), (0, 3)]
    assert events(caplog.records) == [
        f"messages_without_key topic={desk.queue} partition=0 first=0 last=4 skipped=3"
    ]
    assert desk.started() == [(0, 0), (0, 3)]


def test_messages_of_other_queue_ids_get_no_start(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk()
    desk.put(b"mine", b"theirs", b"mine")
    planner = desk.planner(queueId="mine")
    start = planner.initial_offset()
    end = planner.latest_offset(start, max_offsets=None)
    assert ids(planner.plan(start, end).tasks) == desk.started() == [(0, 0), (0, 2)]


def test_a_copy_says_in_a_header_how_often_its_message_came(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk()
    desk.put(b"q")
    desk.put(b"q", headers=[("other", b"9"), (HEADER_REDELIVERY_COUNT, b"2")])
    desk.put(b"q", headers=[(HEADER_REDELIVERY_COUNT, b"many")])
    desk.put(b"q", headers=[(HEADER_REDELIVERY_COUNT, None)])
    desk.put(b"q", headers=[(HEADER_REDELIVERY_COUNT, b"9" * 5_000)])
    desk.put(b"q", headers=[(HEADER_REDELIVERY_COUNT, b"9" * 50)])
    planner = desk.planner()
    start = planner.initial_offset()
    tasks = planner.plan(start, planner.latest_offset(start, max_offsets=None)).tasks
    assert ids(tasks, 3) == [(0, 1)]
    assert ids(tasks, 1) == [(0, 0), (0, 2), (0, 3), (0, 4), (0, 5)], "what is no number is not counted"


def test_a_batch_is_limited_and_split_as_with_our_own_markers(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk(2)
    desk.put(*[b"q"] * 30)
    desk.put(*[b"q"] * 10, partition=1)
    planner = desk.planner(maxRecordsPerPartition=10, minOffsetsPerTrigger=5)
    start = planner.initial_offset()
    end = planner.latest_offset(start, max_offsets=20)
    assert end.queue == {(desk.queue, 0): 15, (desk.queue, 1): 5}
    tasks = planner.plan(start, end).tasks
    assert [sum(len(piece.offsets) for piece in task) for task in tasks] == [10, 5, 5]
    assert len(desk.started()) == 20


def test_leases_are_extended_while_a_batch_lasts_and_ended_by_the_source_that_acks(
    make_desk: Callable[..., Desk],
) -> None:
    # S(0-2) -- K -- K ... completed: E(0-2), and no K after that
    desk = make_desk()
    desk.put(b"q1", b"q2", b"q1")
    planner = desk.planner(leaseTimeout="1s", ackMode="batch")
    start = planner.initial_offset()
    end = planner.latest_offset(start, max_offsets=None)
    planner.plan(start, end)
    wait_until(lambda: len(desk.markers(MarkerType.KEEP_ALIVE)) >= 6, "all leases are extended twice")
    planner.completed(end)
    kept, ended = desk.markers(MarkerType.KEEP_ALIVE), desk.markers(MarkerType.END)
    assert {(one.queue_id, one.partition, one.offset) for one in kept} == {
        (b"q1", 0, 0),
        (b"q2", 0, 1),
        (b"q1", 0, 2),
    }
    assert {one.redeliver_after_ms for one in kept} == {1_000}
    assert sorted(one.offset for one in ended) == [0, 1, 2]
    planner.completed(end)
    assert len(desk.markers(MarkerType.END)) == 3, "once"


def test_what_was_started_is_not_read_again_without_a_checkpoint_either(
    make_desk: Callable[..., Desk],
) -> None:
    desk = make_desk()
    desk.put(b"q", b"q")
    first = desk.planner()
    start = first.initial_offset()
    first.plan(start, first.latest_offset(start, max_offsets=None))
    desk.put(b"q")
    second = desk.planner()
    again = second.initial_offset()
    assert ids(second.plan(again, second.latest_offset(again, max_offsets=None)).tasks) == [(0, 2)]


def test_messages_that_are_gone_before_their_start_are_data_loss(
    make_desk: Callable[..., Desk], admin: AdminClient
) -> None:
    desk = make_desk()
    desk.put(b"q", b"q", b"q")
    planner = desk.planner()
    start = planner.initial_offset()
    end = planner.latest_offset(start, max_offsets=None)
    removed = [TopicPartition(desk.queue, 0, 2)]
    for future in admin.delete_records(removed).values():
        future.result(20)
    with pytest.raises(DataLoss, match="Messages 0 to 1"):
        planner.plan(start, end)
    tolerant = desk.planner(failOnDataLoss="false")
    assert ids(tolerant.plan(logged(start), logged(end)).tasks) == [(0, 2)]
    assert desk.started() == [(0, 2)]


def test_a_checkpoint_of_the_other_marker_format_is_refused(make_desk: Callable[..., Desk]) -> None:
    desk = make_desk()
    of_v1 = desk.planner().initial_offset()
    of_v2 = SourceOffset(queue=of_v1.queue, redeliveries={0: 5}, topic_ids=of_v1.topic_ids)
    with pytest.raises(MarkerFormatChanged, match=r"written with markerFormat=v2.*markerFormat=v1"):
        desk.planner().latest_offset(of_v2, max_offsets=None)
    ours = SourceOptions.parse(
        {
            "kafka.bootstrap.servers": desk.config["bootstrap.servers"],
            "subscribe": desk.queue,
            "subscription": "s",
            "markersTopic": desk.markers_topic,
            "redeliveriesTopic": f"{desk.queue}-r",
            "cursorsTopic": f"{desk.queue}-c",
        }
    )
    with closing(Planner(ours)) as planner, pytest.raises(MarkerFormatChanged):
        planner.latest_offset(of_v1, max_offsets=None)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("deletion_seen", [False, True])
def test_a_topic_that_is_created_again_fails_the_query_also_where_loss_is_no_failure(
    make_desk: Callable[..., Desk], deletion_seen: bool, restarted: bool
) -> None:
    # three started | deleted, which the query may see | created again, and is longer than before
    desk = make_desk()
    desk.put(*[b"q"] * 3)
    planner = desk.planner(failOnDataLoss="false")
    start = planner.initial_offset()
    end = planner.latest_offset(start, max_offsets=None)
    assert len(ids(planner.plan(start, end).tasks)) == 3
    was = desk.topics.describe([desk.queue])[desk.queue]
    desk.topics.delete(desk.queue)
    if deletion_seen:
        wait_until(
            lambda: planner.latest_offset(end, max_offsets=None) is end and not planner._queue.partitions,
            "the query skips the topic",
        )
    desk.topics.create({desk.queue: (was.partitions, {})})
    desk.put(*[b"q"] * 5)
    if restarted:
        planner = desk.planner(failOnDataLoss="false")
    with pytest.raises(QueueTopicRecreated, match="new checkpoint and a new subscription"):
        wait_until(lambda: planner.latest_offset(logged(end), max_offsets=None) is None, "the error")
    assert desk.started() == [(0, 0), (0, 1), (0, 2)]


def test_a_range_is_started_in_pieces_and_handed_out_whole(
    make_desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_cursor_source.interop.planner._PIECE", 4)
    desk = make_desk()
    desk.put(*[b"q%d" % (n % 2) for n in range(10)])
    planner = desk.planner()
    start = planner.initial_offset()
    tasks = planner.plan(start, planner.latest_offset(start, max_offsets=None)).tasks
    ((only,),) = tasks
    assert only.offsets == OffsetSet.of((0, 10))
    assert desk.started() == [(0, n) for n in range(10)]
