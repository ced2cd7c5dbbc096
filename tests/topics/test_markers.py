"""Markers on a real broker: whole, in order, confirmed, or an error that says how many are not."""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient, NewPartitions

from spark_cursor_source.core.marker import Block, End, EndUpTo, Hello, KeepAlive, Marker, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import (
    KafkaFailure,
    MarkersNotDurable,
    MarkersPartitionsChanged,
    NotAuthorized,
    TopicNotFound,
)
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.marker_producer import borrowed_producer
from spark_cursor_source.topics.markers import MAX_MARKER_BYTES, MarkerSender, marker_values
from spark_cursor_source.topics.read_reports import ReportSender
from spark_cursor_source.wire import marker as wire
from tests.conftest import READY_S
from tests.kafka.control_plane import PARTITIONS, Control, cell_of, login, offsets, read_all, stored_at_last

pytestmark = pytest.mark.broker

MakeControl = Callable[[dict[str, str]], Control]


@pytest.fixture
def sender(control: Control) -> MarkerSender:
    return MarkerSender(control.config, control.markers, PARTITIONS)


def end(control: Control, *ranges: tuple[int, int], partition: int = 0) -> End:
    return End(cell=cell_of(control.queue, partition), offsets=offsets(*ranges))


def markers_in(control: Control) -> list[Marker]:
    decoded = [
        wire.decode(record.key(), record.value()) for record in read_all(control.config, control.markers)
    ]
    assert not [marker for marker in decoded if isinstance(marker, wire.MarkerV1)]
    return [marker for marker in decoded if not isinstance(marker, wire.MarkerV1)]


def test_markers_of_a_cell_are_in_its_partition_in_the_order_given(
    control: Control, sender: MarkerSender
) -> None:
    cell = cell_of(control.queue, 3)
    given: list[Marker] = [
        Hello(cell=cell, run_id="run", position=0),
        Start(cell=cell, offsets=offsets((0, 10)), lease_ms=60_000, delivery_count=1, run_id="run"),
        KeepAlive(cell=cell, offsets=offsets((0, 10)), lease_ms=60_000, run_id="run"),
        End(cell=cell, offsets=offsets((0, 3), (7, 8))),
        EndUpTo(cell=cell, position=10),
    ]
    assert sender.send(given) == len(given)
    sender.flush()
    records = read_all(control.config, control.markers)
    assert {record.partition() for record in records} == {cell.control_partition(PARTITIONS)}
    assert {record.key() for record in records} == {cell.key}
    assert markers_in(control) == given


def test_markers_are_on_the_broker_when_flush_returns(control: Control, sender: MarkerSender) -> None:
    topics = ClusterAdmin(control.config)
    for count in range(1, 6):
        sender.send(end(control, (n, n + 1), partition=n) for n in range(100))
        sender.flush(30)
        assert stored_at_last(topics, control.markers, count * 100) == count * 100


def test_a_flush_of_nothing_is_nothing(control: Control, sender: MarkerSender) -> None:
    assert sender.flush(0) is None
    assert sender.send([]) == 0
    assert sender.flush(0) is None


def test_a_flush_tells_when_the_broker_wrote_the_last_of_its_markers(
    control: Control, sender: MarkerSender
) -> None:
    sender.send(end(control, (n, n + 1), partition=n) for n in range(20))
    appended_ms = sender.flush(30)
    assert appended_ms == max(
        at for _, at in map(Message.timestamp, read_all(control.config, control.markers))
    )


def test_a_set_too_large_for_a_record_becomes_several_in_ascending_order(
    control: Control, sender: MarkerSender
) -> None:
    many = OffsetSet.from_offsets(random.Random(1).sample(range(20_000_000), 2_000_000))
    records = sender.send([End(cell=cell_of(control.queue), offsets=many)])
    sender.flush(60)
    assert records > 2
    stored = read_all(control.config, control.markers)
    assert max(len(record.value() or b"") for record in stored) <= MAX_MARKER_BYTES
    pieces = [marker.offsets for marker in markers_in(control) if isinstance(marker, End)]
    assert len(pieces) == records
    assert OffsetSet.union(pieces) == many
    bounds = [(piece.first or 0, piece.last or 0) for piece in pieces]
    assert bounds == sorted(bounds)
    assert all(before[1] < after[0] for before, after in pairwise(bounds))


def test_a_piece_is_never_smaller_than_one_offset() -> None:
    marker = End(cell=cell_of("orders"), offsets=offsets((5, 6), (10**12, 10**12 + 1)))
    pieces = [wire.decode(marker.cell.key, value) for value in marker_values(marker, max_bytes=10)]
    assert [piece.offsets.ranges for piece in pieces if isinstance(piece, End)] == [
        ((5, 6),),
        ((10**12, 10**12 + 1),),
    ]


def test_each_piece_of_a_block_says_what_its_own_messages_wait_for() -> None:
    blocked = list(range(1, 900, 3))
    marker = Block(
        cell=cell_of("orders"),
        offsets=OffsetSet.from_offsets(blocked),
        behind=tuple(one // 2 for one in blocked),
        delivery_count=2,
    )
    pieces = [wire.decode(marker.cell.key, value) for value in marker_values(marker, max_bytes=300)]
    blocks = [piece for piece in pieces if isinstance(piece, Block)]
    waits = [one for piece in blocks for one in zip(piece.offsets, piece.behind, strict=True)]
    assert len(blocks) > 3
    assert waits == [(one, one // 2) for one in blocked]


def test_each_thread_flushes_its_own_markers(control: Control, sender: MarkerSender) -> None:
    failures: list[KafkaFailure] = []

    def work(partition: int) -> None:
        try:
            for number in range(200):
                sender.send([end(control, (number, number + 1), partition=partition)])
                sender.flush(30)
        except KafkaFailure as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for partition in range(4):
        own = [marker for marker in markers_in(control) if marker.cell.partition == partition]
        assert own == [end(control, (n, n + 1), partition=partition) for n in range(200)]


# -- brokers away --------------------------------------------------------------------------------------------


def test_markers_that_are_not_confirmed_are_counted_and_the_sender_goes_on_afterwards(
    mortal: EmbeddedKafka, make_control: MakeControl
) -> None:
    control = make_control({"bootstrap.servers": mortal.bootstrap_servers})
    sender = MarkerSender(control.config, control.markers, PARTITIONS)
    sender.send([end(control, (0, 1))])
    sender.flush(30)
    mortal.stop()
    sender.send([end(control, (1, 2)), end(control, (2, 3))])
    with pytest.raises(MarkersNotDurable) as failure:
        sender.flush(0.5)
    assert (failure.value.topic, failure.value.unsent) == (control.markers, 2)
    mortal.start()
    sender.send([end(control, (3, 4))])
    sender.flush(60)
    # What was given up may be written all the same; what was confirmed is there in any case.
    found = markers_in(control)
    assert found[0] == end(control, (0, 1))
    assert found[-1] == end(control, (3, 4))
    sender.close()


def test_a_restart_under_load_loses_and_doubles_nothing(
    mortal: EmbeddedKafka, make_control: MakeControl
) -> None:
    control = make_control({"bootstrap.servers": mortal.bootstrap_servers})
    sender = MarkerSender(control.config, control.markers, PARTITIONS)
    sent = 0
    restart = threading.Thread(target=mortal.restart)
    begun = time.monotonic()
    while restart.is_alive() or sent < 500 or time.monotonic() - begun < 1:
        sender.send([end(control, (sent, sent + 1))])
        sent += 1
        if sent == 100:
            restart.start()
        if sent % 10 == 0:
            sender.flush(READY_S)
            time.sleep(0.002)
    sender.flush(READY_S)
    restart.join()
    assert markers_in(control) == [end(control, (n, n + 1)) for n in range(sent)]
    sender.close()


def test_a_broker_killed_under_load_loses_nothing_that_was_confirmed(
    mortal: EmbeddedKafka, make_control: MakeControl
) -> None:
    control = make_control({"bootstrap.servers": mortal.bootstrap_servers})
    sender = MarkerSender(control.config, control.markers, PARTITIONS)
    for number in range(50):
        sender.send([end(control, (number, number + 1))])
    sender.flush(30)
    mortal.kill()
    sender.send([end(control, (50, 51))])
    mortal.start()
    sender.flush(60)
    assert markers_in(control) == [end(control, (n, n + 1)) for n in range(51)]
    sender.close()


# -- refused -------------------------------------------------------------------------------------------------


def test_another_number_of_partitions_is_refused(control: Control) -> None:
    sender = MarkerSender(control.config, control.markers, 5)
    with pytest.raises(MarkersPartitionsChanged) as changed:
        sender.send([])
    assert (changed.value.was, changed.value.now) == (5, PARTITIONS)


def test_partitions_that_are_added_while_the_topic_is_used_are_found_out(
    control: Control, sender: MarkerSender, admin: AdminClient
) -> None:
    sender.send([])
    made = admin.create_partitions([NewPartitions(control.markers, PARTITIONS + 1)])
    made[control.markers].result(timeout=20)
    while ClusterAdmin(control.config).describe([control.markers])[control.markers].partitions == PARTITIONS:
        time.sleep(0.02)
    with pytest.raises(MarkersPartitionsChanged, match="Set a new topic in markersTopic"):
        MarkerSender(control.config, control.markers, PARTITIONS).send([])


def test_a_markers_topic_that_is_not_there_is_named(config: dict[str, str]) -> None:
    with pytest.raises(TopicNotFound, match="not-here"):
        MarkerSender(config, "not-here", PARTITIONS).send([])


def test_whoever_may_not_write_markers_is_told(
    guarded_broker: EmbeddedKafka, make_control: MakeControl
) -> None:
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers, "log_level": "0"}
    control = make_control(servers | login("admin", "of-admin"))
    with pytest.raises(NotAuthorized) as refused:
        MarkerSender(servers | login("bob", "of-bob"), control.markers, PARTITIONS).send([])
    assert refused.value.resource == control.markers


# -- processes -----------------------------------------------------------------------------------------------


def borrowed(control: Control, **more: str) -> AbstractContextManager[MarkerSender]:
    return borrowed_producer(MarkerSender, control.config | more, control.markers, PARTITIONS)


def test_a_process_keeps_its_sender_of_a_kind_and_configuration_for_the_next_task(control: Control) -> None:
    with borrowed(control) as first, borrowed(control) as beside:
        assert beside is not first, "each sender has one borrower at a time"
    with borrowed(control) as again:
        assert again in (first, beside)
    with borrowed(control, **{"client.id": uuid.uuid4().hex}) as other:
        assert other not in (first, beside)
    with borrowed_producer(ReportSender, control.config, control.markers, PARTITIONS) as reports:
        assert isinstance(reports, ReportSender)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_worker_has_a_sender_of_its_own(control: Control) -> None:
    with borrowed(control) as parents:
        parents.send([end(control, (0, 1))])
        parents.flush(30)
    child = os.fork()
    if child == 0:  # as pyspark's daemon makes its workers
        code = 1
        try:
            with borrowed(control) as sender:
                sender.send([end(control, (1, 2))])
                sender.flush(30)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sorted(marker.offsets.first or 0 for marker in markers_in(control) if isinstance(marker, End)) == [
        0,
        1,
    ]
