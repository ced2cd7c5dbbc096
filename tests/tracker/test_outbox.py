"""What the tracker has decided is carried out: whole, once as far as can be, and never lost."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import Available, CursorSnapshot, MarkersLog
from spark_cursor_source.core.delivery_times import FirstDeliveries
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.tracker import DeadLetter, Redeliver
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import (
    KafkaUnavailable,
    MarkersPartitionsChanged,
    NotAuthorized,
    TopicNotFound,
    TrackerFenced,
    TrackerOwnedByAnother,
)
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics import tracker_progress
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.tracker_progress import REPLICA, metadata, read_progress
from spark_cursor_source.tracker.outbox import Outbox, Share, tracker_group
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import redelivery as wire
from tests.conftest import READY_S
from tests.forgotten import FAULT, TRIES, offsets_are_forgotten
from tests.forked import start_forked
from tests.kafka.behind import deny_once
from tests.kafka.control_plane import (
    PARTITIONS,
    Control,
    cell_of,
    cursor_of,
    dead_letter_of,
    login,
    outbox_of,
    produce,
    read_all,
    redeliver_of,
    transaction,
)
from tests.tracker import outbox_app
from tests.tracker.outbox_app import BATCHES
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

MakeControl = Callable[[dict[str, str]], Control]
MakeOutbox = Callable[..., Outbox]


@pytest.fixture
def new_outbox() -> Iterator[MakeOutbox]:
    """``new_outbox(control, "query", **settings)``: one more tracker of the control topics."""
    made: list[Outbox] = []

    def make(control: Control, query_id: str = "query", **settings: Any) -> Outbox:
        policies = settings.pop("policies", {})
        settings.setdefault("copy_patience_ms", 60_000)
        settings["policy_for"] = lambda subscription: policies.get(subscription, RedeliveryPolicy())
        outbox = outbox_of(control, query_id, **settings)
        made.append(outbox)
        return outbox

    yield make
    for outbox in made:
        outbox.close()


@pytest.fixture
def outbox(control: Control, new_outbox: MakeOutbox) -> Outbox:
    opened = new_outbox(control)
    opened.open(take_over=False)
    return opened


@pytest.fixture
def queue(control: Control, topics: ClusterAdmin) -> Cell:
    """Partition 1 of a queue topic of three, with the messages 0 to 9."""
    return with_messages(control, topics)


def with_messages(control: Control, topics: ClusterAdmin) -> Cell:
    topics.create({control.queue: (3, {})})
    messages = [
        {
            "key": None if n == 4 else b"key %d" % n,
            "value": None if n == 5 else b"value %d" % n,
            "headers": [("trace", b"\x00\xff"), ("empty", None)] if n == 6 else [],
            "timestamp": 1_000_000 + n,
            "partition": 1,
        }
        for n in range(10)
    ]
    produce(control.config, control.queue, messages)
    return cell_of(control.queue, 1)


def announced(control: Control) -> list[Redeliver]:
    return [wire.decode(record.value()) for record in read_all(control.config, control.redeliveries)]


def dead(control: Control, subscription: str = "billing") -> list[bytes | None]:
    """The values of the dead letters."""
    return [record.value() for record in read_all(control.config, f"{control.queue}-{subscription}-DLQ")]


def shows(control: Control, *cursors: CursorSnapshot) -> bool:
    tail = CursorTable(control.config, control.cursors)
    tail.refresh()
    # The outbox names its markers topic in each record.
    found = {cell: replace(one, log=None) for cell, one in tail.all().items()}
    tail.close()
    return found == {cursor.cell: cursor for cursor in cursors}


def progress(control: Control) -> tuple[str | None, dict[int, int]]:
    now = read_progress(ClusterAdmin(control.config), control.markers)
    return now.query_id, dict(now.next_markers)


def positions(**given: int) -> dict[int, int]:
    """``positions(p3=5)``: the next marker of partition 3 is 5, of all others 0."""
    return dict.fromkeys(range(PARTITIONS), 0) | {int(name[1:]): at for name, at in given.items()}


# -- a batch -----------------------------------------------------------------------------------------------


def test_announcements_cursors_and_positions_of_a_batch_are_there_together(
    control: Control, outbox: Outbox
) -> None:
    cells = [cell_of("orders", number) for number in range(5)]
    cursors = [cursor_of(cell, 10, (2, 4)) for cell in cells]
    redelivers = [redeliver_of(cell, (2, 4)) for cell in cells]
    done = outbox.carry_out(0, decisions=redelivers, cursors=cursors, next_markers={3: 7, 5: 2})
    assert done is True
    wait_until(lambda: shows(control, *cursors))
    # The partitions of a transaction become visible one by one.
    wait_until(lambda: len(announced(control)) == len(redelivers))
    records = read_all(control.config, control.redeliveries)
    assert sorted(announced(control), key=lambda one: one.cell) == redelivers
    for record in records:
        cell = wire.decode(record.value()).cell
        assert record.key() == cell.key
        assert record.partition() == cell.control_partition(PARTITIONS)
    assert progress(control) == ("query", positions(p3=7, p5=2))


def test_a_cursor_names_its_markers_topic_and_a_batch_what_it_was(control: Control, outbox: Outbox) -> None:
    cell = cell_of("orders")
    outbox.carry_out(0, decisions=[], cursors=[cursor_of(cell, 5)], next_markers={}, identity="read.policies")
    log = MarkersLog(
        control.markers, ClusterAdmin(control.config).describe([control.markers])[control.markers].topic_id
    )
    tail = CursorTable(control.config, control.cursors)
    wait_until(lambda: tail.refresh() and tail.all() == {cell: replace(cursor_of(cell, 5), log=log)})
    tail.close()
    assert read_progress(ClusterAdmin(control.config), control.markers).identity == "read.policies"


def test_announcements_of_a_cell_keep_their_order(control: Control, outbox: Outbox) -> None:
    redelivers = [redeliver_of(cell_of("orders"), (n, n + 1)) for n in range(500)]
    outbox.carry_out(0, decisions=redelivers, cursors=[], next_markers={})
    wait_until(lambda: announced(control) == redelivers)


def test_a_batch_that_changes_nothing_is_remembered_too(control: Control, outbox: Outbox) -> None:
    assert outbox.carry_out(0, decisions=[], cursors=[], next_markers={}) is True
    assert progress(control) == ("query", positions())
    assert outbox.carry_out(0, decisions=[], cursors=[], next_markers={}) is False


def test_positions_that_a_batch_does_not_name_stay(control: Control, outbox: Outbox) -> None:
    outbox.carry_out(0, decisions=[], cursors=[], next_markers={1: 5, 2: 6})
    outbox.carry_out(1, decisions=[], cursors=[], next_markers={2: 9})
    assert progress(control) == ("query", positions(p1=5, p2=9))


def test_a_large_cursor_is_written_in_parts_which_a_small_one_removes(
    control: Control, new_outbox: MakeOutbox
) -> None:
    # every second offset: nothing that a bitmap could make small
    waiting = OffsetSet.from_offsets(range(0, 40_000_000, 2))
    large = CursorSnapshot(
        cell=cell_of("orders"),
        read_position=40_000_000,
        next_marker=3,
        available=((Available(2, False), waiting),),
    )
    first = new_outbox(control)
    first.open(take_over=False)
    first.carry_out(0, decisions=[], cursors=[large], next_markers={})
    wait_until(lambda: shows(control, large))
    assert max(len(record.value() or b"") for record in read_all(control.config, control.cursors)) < 1_000_000
    first.close()
    # by another process: which parts there are is known from the topic
    second = new_outbox(control)
    second.open(take_over=False)
    small = replace(large, available=())
    second.carry_out(1, decisions=[], cursors=[small], next_markers={})
    wait_until(lambda: shows(control, small))
    assert keys_of(control) == {large.cell.key}


def test_nothing_is_left_of_a_deleted_cursor_nor_of_its_parts(
    control: Control, new_outbox: MakeOutbox
) -> None:
    gone, other = cursor_of(cell_of("orders"), 40, (3, 9)), cursor_of(cell_of("orders", 1), 5)
    for one, max_bytes in ((gone, 20), (other, 900_000)):
        home = one.cell.control_partition(PARTITIONS)
        values = cursor_wire.to_records(one.cell.key, cursor_wire.encode(one), max_bytes=max_bytes)
        records = [{"key": key, "value": value, "partition": home} for key, value in values]
        produce(control.config, control.cursors, records)
    outbox = new_outbox(control)
    outbox.open(take_over=False)
    outbox.carry_out(0, decisions=[], cursors=[], deleted=[gone.cell], next_markers={})
    wait_until(lambda: keys_of(control) == {other.cell.key})
    outbox.carry_out(1, decisions=[], cursors=[gone], next_markers={})
    wait_until(lambda: shows(control, gone, other))
    assert keys_of(control) == {gone.cell.key, other.cell.key}


def keys_of(control: Control) -> frozenset[bytes]:
    """Of the records that are left in the cursors topic."""
    tail = CursorTable(control.config, control.cursors)
    tail.refresh()
    keys = tail.record_keys()
    tail.close()
    return keys


# -- each batch once ---------------------------------------------------------------------------------------


def test_a_batch_that_was_carried_out_is_skipped_by_the_same_query_only(
    control: Control, new_outbox: MakeOutbox
) -> None:
    redeliver = redeliver_of(cell_of("orders"), (0, 1))
    batch: dict[str, Any] = {"decisions": [redeliver], "cursors": [], "next_markers": {}}
    outbox = new_outbox(control)
    outbox.open(take_over=False)
    assert [outbox.carry_out(number, **batch) for number in (0, 1, 1, 0)] == [True, True, False, False]
    again = new_outbox(control)
    assert again.open(take_over=False).includes("query", 1)
    assert [again.carry_out(number, **batch) for number in (1, 2)] == [False, True]
    other = new_outbox(control, "other")
    other.open(take_over=True)
    assert [other.carry_out(number, **batch) for number in (0, 0)] == [True, False]
    wait_until(lambda: announced(control) == [redeliver] * 4)


def test_a_crash_after_the_transaction_repeats_nothing(
    control: Control, new_outbox: MakeOutbox, queue: Cell
) -> None:
    # copies ---- transaction ---- X ---- replay: skipped
    batch: dict[str, Any] = {
        "decisions": [redeliver_of(queue, (3, 4)), dead_letter_of(queue, (0, 2))],
        "cursors": [cursor_of(queue, 10, (3, 4))],
        "next_markers": {1: 4},
    }
    first = new_outbox(control)
    first.open(take_over=False)
    assert first.carry_out(7, **batch) is True
    second = new_outbox(control)
    assert second.open(take_over=False).next_markers == positions(p1=4)
    assert second.carry_out(7, **batch) is False
    wait_until(lambda: announced(control) == [redeliver_of(queue, (3, 4))])
    assert dead(control) == [b"value 0", b"value 1"]


def test_a_crash_after_the_copies_repeats_them_and_loses_nothing(
    control: Control, new_outbox: MakeOutbox, queue: Cell
) -> None:
    # copies ---- X ---- replay: copies again, each naming its message, and the transaction
    letters = [dead_letter_of(queue, (0, 2))]
    first = new_outbox(control)
    first.open(take_over=False)
    first.copy(letters)
    second = new_outbox(control)
    assert second.open(take_over=False).query_id is None
    cursors = [cursor_of(queue, 10)]
    assert second.carry_out(0, decisions=letters, cursors=cursors, next_markers={1: 4}) is True
    wait_until(lambda: shows(control, *cursors))
    assert dead(control) == [b"value 0", b"value 1"] * 2
    records = read_all(control.config, f"{control.queue}-billing-DLQ")
    named = [dict(record.headers() or [])["cursorq-offset"] for record in records]
    assert named == [b"0", b"1", b"0", b"1"]


def test_a_crash_within_the_transaction_leaves_nothing_of_it(
    control: Control, new_outbox: MakeOutbox
) -> None:
    # begin ---- announcement ---- X ---- replay: announced once
    redeliver = redeliver_of(cell_of("orders"), (0, 1))
    died = Producer({**control.config, "transactional.id": tracker_group(control.markers)})
    died.init_transactions(30)
    died.begin_transaction()
    died.produce(
        control.redeliveries,
        wire.encode(redeliver),
        redeliver.cell.key,
        partition=redeliver.cell.control_partition(PARTITIONS),
    )
    assert died.flush(30) == 0
    outbox = new_outbox(control)
    outbox.open(take_over=False)
    assert outbox.carry_out(0, decisions=[redeliver], cursors=[], next_markers={}) is True
    wait_until(lambda: announced(control) == [redeliver])
    assert len(read_all(control.config, control.redeliveries, committed=False)) == 2
    died.purge()


def test_a_tracker_that_died_before_its_commit_holds_the_next_one_up_for_nothing(
    control: Control, new_outbox: MakeOutbox
) -> None:
    # begin ---- announcement ---- positions ---- X: until somebody ends it, its positions are "not stable"
    first = new_outbox(control)
    first.open(take_over=False)
    first.carry_out(0, decisions=[], cursors=[], next_markers={0: 3})
    died = Producer({**control.config, "transactional.id": tracker_group(control.markers)})
    died.init_transactions(30)
    died.begin_transaction()
    member = Consumer({**control.config, "group.id": tracker_group(control.markers)})
    reached = TopicPartition(control.markers, 0, 9, metadata("query", 1, PARTITIONS))
    died.send_offsets_to_transaction([reached], member.consumer_group_metadata(), 30)
    second = new_outbox(control, patience_ms=20_000)
    assert second.open(take_over=False).next_markers == positions(p0=3)
    assert second.carry_out(1, decisions=[], cursors=[], next_markers={0: 4}) is True
    assert progress(control) == ("query", positions(p0=4))
    member.close()
    died.purge()


def test_a_tracker_that_dies_before_each_call_of_its_producers_doubles_only_copies(
    control: Control, queue: Cell, tmp_path: Path
) -> None:
    # One process dies before call 0, the next one before call 1, ... until one has done all that is left.
    log = tmp_path / "done"
    log.touch()
    told = {"config": control.config, "name": control.name, "log": str(log)}
    deaths = 0
    while run_outbox(told | {"die_at": deaths}) == -signal.SIGKILL:
        deaths += 1
    assert len(log.read_bytes()) == BATCHES
    assert deaths > 8  # begin, copy, transaction, announcement, cursor, positions, commit: each at least once
    wait_until(lambda: announced(control) == [redeliver_of(queue, (n, n + 1)) for n in range(BATCHES)])
    wait_until(lambda: shows(control, cursor_of(queue, BATCHES)))
    assert progress(control) == ("query", positions(p1=BATCHES))
    copies = dead(control)
    assert set(copies) == {b"value %d" % n for n in range(BATCHES)}
    assert len(copies) <= BATCHES + deaths


def run_outbox(told: dict[str, Any]) -> int:
    """How a process of :mod:`tests.tracker.outbox_app` has ended."""
    process = start_forked(outbox_app.run, told, Path(told["log"]).parent)
    process.join(60)
    assert process.exitcode is not None, "it does not end"
    return process.exitcode


# -- brokers that come and go --------------------------------------------------------------------------------


def test_a_restart_between_and_during_batches_loses_and_doubles_nothing(
    mortal: EmbeddedKafka, make_control: MakeControl, new_outbox: MakeOutbox
) -> None:
    for _ in range(TRIES):
        control = make_control({"bootstrap.servers": mortal.bootstrap_servers})
        try:
            restart_between_and_during_batches(mortal, control, new_outbox(control))
        except KafkaUnavailable:
            if not offsets_are_forgotten(mortal, tracker_group(control.markers)):
                raise
        else:
            return
    pytest.xfail(FAULT)


def restart_between_and_during_batches(mortal: EmbeddedKafka, control: Control, outbox: Outbox) -> None:
    outbox.open(take_over=False)
    cell = cell_of("orders")
    restarts: list[threading.Thread] = []
    for number in range(40):
        if number in (10, 25):
            for earlier in restarts:
                earlier.join()  # one at a time: the broker's handle is no thread's but one's
            restarts.append(
                threading.Thread(target=mortal.restart if number == 10 else kill_and_start(mortal))
            )
            restarts[-1].start()
        redeliver = redeliver_of(cell, (number, number + 1))
        cursor = cursor_of(cell, number + 1, (number, number + 1))
        assert outbox.carry_out(number, decisions=[redeliver], cursors=[cursor], next_markers={0: number})
        time.sleep(0.02)
    for restart in restarts:
        restart.join()
    expected = [redeliver_of(cell, (number, number + 1)) for number in range(40)]
    wait_until(lambda: announced(control) == expected)
    wait_until(lambda: shows(control, cursor_of(cell, 40, (39, 40))))
    assert progress(control) == ("query", positions(p0=39))


def kill_and_start(broker: EmbeddedKafka) -> Callable[[], None]:
    def run() -> None:
        broker.kill()
        broker.start()

    return run


@pytest.mark.parametrize("pause_after_s", [0.0, 0.005, 0.02])
def test_calls_that_time_out_are_found_out_about_and_tried_again(
    mortal: EmbeddedKafka, make_control: MakeControl, new_outbox: MakeOutbox, pause_after_s: float
) -> None:
    # The broker freezes while a batch is being carried out, for longer than a call waits: the transaction
    # may have been committed or not, and its batch is to be seen once.
    control = make_control({"bootstrap.servers": mortal.bootstrap_servers})
    outbox = new_outbox(control, call_timeout_ms=500)
    outbox.open(take_over=False)
    cell = cell_of("orders")
    for number in range(4):
        pause = threading.Timer(pause_after_s, mortal.pause)
        resume = threading.Timer(pause_after_s + 1.5, mortal.resume)
        if number == 2:
            pause.start()
            resume.start()
        redeliver = redeliver_of(cell, (number, number + 1))
        assert outbox.carry_out(number, decisions=[redeliver], cursors=[], next_markers={0: number})
        if number == 2:
            pause.join()
            resume.join()
    expected = [redeliver_of(cell, (number, number + 1)) for number in range(4)]
    wait_until(lambda: announced(control) == expected)
    assert progress(control) == ("query", positions(p0=3))


def is_opened(outbox: Outbox) -> bool:
    """Opens an outbox. False: it was not patient enough for a busy machine."""
    try:
        outbox.open(take_over=False)
    except KafkaUnavailable:
        return False
    return True


def test_a_broker_that_stays_away_is_an_error_and_the_batch_can_be_tried_again(
    mortal: EmbeddedKafka, make_control: MakeControl, new_outbox: MakeOutbox
) -> None:
    control = make_control({"bootstrap.servers": mortal.bootstrap_servers})
    new_outbox(control).open(take_over=False)  # patiently: the broker may have started just now
    outbox = new_outbox(control, patience_ms=2_000, call_timeout_ms=500)
    wait_until(lambda: is_opened(outbox))
    redeliver = redeliver_of(cell_of("orders"), (0, 1))
    mortal.kill()
    with pytest.raises(KafkaUnavailable) as unavailable:
        outbox.carry_out(0, decisions=[redeliver], cursors=[], next_markers={})
    assert unavailable.value.waited_ms >= 2_000
    mortal.start()
    again = new_outbox(control)
    again.open(take_over=False)
    assert again.carry_out(0, decisions=[redeliver], cursors=[], next_markers={}) is True
    wait_until(lambda: announced(control) == [redeliver])


# -- one tracker ---------------------------------------------------------------------------------------------


def test_a_second_outbox_fences_the_first_for_good(control: Control, new_outbox: MakeOutbox) -> None:
    first, second = new_outbox(control), new_outbox(control)
    batch: dict[str, Any] = {"decisions": [], "cursors": [], "next_markers": {}}
    first.open(take_over=False)
    assert first.carry_out(0, **batch) is True
    second.open(take_over=False)
    for _ in range(2):
        with pytest.raises(TrackerFenced, match="Run one tracker"):
            first.carry_out(1, **batch)
    assert second.carry_out(1, **batch) is True


def test_nothing_of_a_fenced_tracker_s_batch_is_seen(control: Control, new_outbox: MakeOutbox) -> None:
    first, second = new_outbox(control), new_outbox(control)
    first.open(take_over=False)
    second.open(take_over=False)
    cell = cell_of("orders")
    with pytest.raises(TrackerFenced):
        first.carry_out(
            0, decisions=[redeliver_of(cell, (0, 1))], cursors=[cursor_of(cell, 1)], next_markers={0: 9}
        )
    second.carry_out(0, decisions=[redeliver_of(cell, (5, 6))], cursors=[], next_markers={})
    wait_until(lambda: announced(control) == [redeliver_of(cell, (5, 6))])
    assert shows(control)
    assert progress(control) == ("query", positions())


def test_a_tracker_of_another_checkpoint_is_turned_away_and_the_owner_goes_on(
    control: Control, new_outbox: MakeOutbox
) -> None:
    owner, other = new_outbox(control, "owner"), new_outbox(control, "other")
    batch: dict[str, Any] = {"decisions": [], "cursors": [], "next_markers": {2: 3}}
    owner.open(take_over=False)
    owner.carry_out(0, **batch)
    with pytest.raises(TrackerOwnedByAnother, match="takeOver=true") as turned_away:
        other.open(take_over=False)
    assert turned_away.value.owner == "owner"
    assert owner.carry_out(1, **batch) is True
    assert other.open(take_over=True).next_markers == positions(p2=3)
    with pytest.raises(TrackerFenced):
        owner.carry_out(2, **batch)
    assert other.carry_out(0, **batch) is True
    with pytest.raises(TrackerOwnedByAnother):
        owner.open(take_over=False)


def test_a_tracker_that_lost_its_producer_does_not_push_its_successor_out(
    control: Control, new_outbox: MakeOutbox
) -> None:
    # first: batch 0 ---- a call times out, its producer is thrown away ---- batch 1 again: fenced
    # successor:                            batch 1 -------------------------------- batch 2: carried out
    first, successor = new_outbox(control), new_outbox(control)
    batch: dict[str, Any] = {"decisions": [], "cursors": [], "next_markers": {}}
    first.open(take_over=False)
    first.carry_out(0, **batch)
    successor.open(take_over=False)
    successor.carry_out(1, **batch)
    successor.carry_out(2, **batch)
    first._producer.discard()
    with pytest.raises(TrackerFenced):
        first.carry_out(1, **batch)
    assert successor.carry_out(3, **batch) is True


def test_a_tracker_whose_partitions_several_others_have_got_repeats_nothing(
    control: Control, new_outbox: MakeOutbox
) -> None:
    # first: batches 0 to 4 of partitions 0 and 1 -- its producer is thrown away -- batch 5: fenced
    # second: gets partition 0, batch 0    a third gets partition 1, and has had nothing to do

    def share(*partitions: int) -> Share:
        return Share(frozenset(partitions), member.consumer_group_metadata)

    with closing(Consumer({**control.config, "group.id": tracker_group(control.markers)})) as member:
        first = new_outbox(control, f"{REPLICA}first", share=share(0, 1))
        second = new_outbox(control, f"{REPLICA}second", share=share(0))
        batch: dict[str, Any] = {"decisions": [], "cursors": []}
        first.open(take_over=False)
        for number in range(5):
            first.carry_out(number, next_markers={0: number, 1: number}, **batch)
        second.open(take_over=False)
        second.carry_out(0, next_markers={0: 50}, **batch)
        first._producer.discard()
        with pytest.raises(TrackerFenced):
            first.carry_out(5, next_markers={0: 5, 1: 5}, **batch)
        assert progress(control)[1] == {0: 50, 1: 4}
        assert second.carry_out(1, next_markers={0: 51}, **batch) is True


def test_a_tracker_that_was_replaced_copies_no_dead_letter(
    control: Control, new_outbox: MakeOutbox, queue: Cell
) -> None:
    # first: batch 0 -------------------------------- batch 1, the same dead letter: fenced
    # successor:       batch 0, with a dead letter
    first, successor = new_outbox(control, "first"), new_outbox(control, "successor")
    batch: dict[str, Any] = {"decisions": [dead_letter_of(queue, (0, 1))], "cursors": [], "next_markers": {}}
    first.open(take_over=False)
    first.carry_out(0, decisions=[], cursors=[], next_markers={})
    successor.open(take_over=True)
    successor.carry_out(0, **batch)
    for _ in range(2):
        with pytest.raises(TrackerFenced):
            first.carry_out(1, **batch)
    assert dead(control) == [b"value 0"]


def test_a_tracker_that_is_shown_the_commit_from_before_its_first_is_not_fenced(
    control: Control, new_outbox: MakeOutbox, queue: Cell
) -> None:
    earlier, outbox = new_outbox(control, "earlier"), new_outbox(control)
    earlier.open(take_over=False)
    earlier.carry_out(0, decisions=[], cursors=[], next_markers={})
    outbox.open(take_over=True)
    outbox.carry_out(0, decisions=[], cursors=[], next_markers={})
    commit_again(control, "earlier", 0)
    letters = [dead_letter_of(queue, (0, 1))]
    assert outbox.carry_out(1, decisions=letters, cursors=[], next_markers={}) is True


def commit_again(control: Control, query_id: str, batch_id: int) -> None:
    """Commit as this batch, so that the broker shows the progress of then."""
    text = metadata(query_id, batch_id, PARTITIONS)
    before = [TopicPartition(control.markers, number, 0, text) for number in range(PARTITIONS)]
    with closing(Consumer({**control.config, "group.id": tracker_group(control.markers)})) as member:
        member.commit(offsets=before, asynchronous=False)


def test_a_tracker_whose_own_last_commit_is_shown_late_is_not_fenced(
    control: Control, new_outbox: MakeOutbox
) -> None:
    # batch 0, batch 1 -- its producer is thrown away, the broker still shows batch 0 -- batch 2: carried out
    outbox = new_outbox(control)
    outbox.open(take_over=False)
    for number in range(2):
        outbox.carry_out(number, decisions=[], cursors=[], next_markers={})
    outbox._producer.discard()
    commit_again(control, "query", 0)
    assert outbox.carry_out(2, decisions=[], cursors=[], next_markers={}) is True


def test_a_successor_whose_commit_is_not_seen_yet_is_not_pushed_out(
    control: Control, new_outbox: MakeOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    # first: batch 0 -- its producer is thrown away ------ batch 1 again: fenced, and nobody else is
    # successor:        batch 1 -- positions of batch 2 ------ their commit ---------- batch 3
    monkeypatch.setattr(tracker_progress, "_COMMIT_SEEN_MS", 60_000)  # this thread may stand still meanwhile
    first = new_outbox(control)
    first.open(take_over=False)
    first.carry_out(0, decisions=[], cursors=[], next_markers={})
    successor = Producer({**control.config, "transactional.id": tracker_group(control.markers)})
    successor.init_transactions(30)
    member = Consumer({**control.config, "group.id": tracker_group(control.markers)})

    def send_positions(batch_id: int) -> None:
        successor.begin_transaction()
        reached = TopicPartition(control.markers, 0, 9, metadata("query", batch_id, PARTITIONS))
        successor.send_offsets_to_transaction([reached], member.consumer_group_metadata(), 30)

    send_positions(1)
    successor.commit_transaction(30)
    send_positions(2)
    with ThreadPoolExecutor(1) as pool:
        first._producer.discard()
        reopening = pool.submit(first.carry_out, 1, decisions=[], cursors=[], next_markers={})
        time.sleep(0.5)
        successor.commit_transaction(30)
        with pytest.raises(TrackerFenced):
            reopening.result(120)
    send_positions(3)
    successor.commit_transaction(30)
    member.close()


def test_a_tracker_that_stood_still_says_that_another_one_has_taken_over(
    mortal: EmbeddedKafka, make_control: MakeControl, new_outbox: MakeOutbox
) -> None:
    # first: batch 0 ------------- batch 1: no answer until its time is over, and then it looks
    # successor:       batch 1 2                    [the broker stands still]
    control = make_control({"bootstrap.servers": mortal.bootstrap_servers})
    first, successor = new_outbox(control, call_timeout_ms=300), new_outbox(control)
    batch: dict[str, Any] = {"decisions": [], "cursors": [], "next_markers": {}}
    first.open(take_over=False)
    first.carry_out(0, **batch)
    successor.open(take_over=False)
    for number in (1, 2):
        successor.carry_out(number, **batch)
    first._patience_ms = 500
    mortal.pause()
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(first.carry_out, 1, **batch)
        time.sleep(1.2)  # longer than its patience
        mortal.resume()
        with pytest.raises(TrackerFenced):
            ending.result(60)


def test_a_tracker_whose_offsets_the_brokers_have_forgotten_goes_on(
    control: Control, new_outbox: MakeOutbox, topics: ClusterAdmin
) -> None:
    # A week without markers: the group's offsets are removed, and the producer's id too.
    outbox = new_outbox(control)
    outbox.open(take_over=False)
    outbox.carry_out(0, decisions=[], cursors=[], next_markers={1: 5})
    assert topics.delete_group(tracker_group(control.markers))
    outbox._producer.discard()
    assert outbox.carry_out(1, decisions=[], cursors=[], next_markers={2: 6}) is True
    assert progress(control) == ("query", positions(p1=5, p2=6))


def test_a_transaction_that_takes_longer_than_a_call_may_is_committed(
    control: Control, new_outbox: MakeOutbox
) -> None:
    # A slow way to the broker: one record a request, and the next one after the answer.
    slow = {"batch.num.messages": "1", "max.in.flight": "1"}
    outbox = new_outbox(control, config=control.config | slow, call_timeout_ms=400)
    outbox.open(take_over=False)
    redelivers = [redeliver_of(cell_of("orders"), (n, n + 1)) for n in range(5_000)]
    assert outbox.carry_out(0, decisions=redelivers, cursors=[], next_markers={}) is True
    wait_until(lambda: len(announced(control)) == len(redelivers))


def test_offsets_that_another_tool_has_set_belong_to_nobody(
    control: Control, new_outbox: MakeOutbox, topics: ClusterAdmin
) -> None:
    topics.commit(tracker_group(control.markers), {(control.markers, 0): 5})
    assert progress(control) == (None, {0: 5})
    outbox = new_outbox(control)
    assert outbox.open(take_over=False).next_markers == {0: 5}


def test_nobody_has_been_there_before_the_first_batch(control: Control) -> None:
    assert progress(control) == (None, {})


# -- refused -------------------------------------------------------------------------------------------------


def test_a_markers_topic_with_another_number_of_partitions_than_before_is_refused(
    control: Control, new_outbox: MakeOutbox, admin: AdminClient, topics: ClusterAdmin
) -> None:
    outbox = new_outbox(control)
    outbox.open(take_over=False)
    outbox.carry_out(0, decisions=[], cursors=[], next_markers={})
    made = admin.create_partitions([NewPartitions(control.markers, PARTITIONS + 1)])
    made[control.markers].result(timeout=20)
    while topics.describe([control.markers])[control.markers].partitions == PARTITIONS:
        time.sleep(0.02)
    with pytest.raises(MarkersPartitionsChanged) as changed:
        new_outbox(control).open(take_over=False)
    assert (changed.value.was, changed.value.now) == (PARTITIONS, PARTITIONS + 1)


def test_control_topics_that_are_not_there_are_named(config: dict[str, str], new_outbox: MakeOutbox) -> None:
    with pytest.raises(TopicNotFound, match="markers-nowhere"):
        new_outbox(Control(config, "nowhere")).open(take_over=False)


def test_an_outbox_is_opened_before_it_is_used(control: Control, new_outbox: MakeOutbox) -> None:
    with pytest.raises(RuntimeError, match="not open"):
        new_outbox(control).carry_out(0, decisions=[], cursors=[], next_markers={})


def test_whoever_may_not_be_the_tracker_is_told(
    guarded_broker: EmbeddedKafka, make_control: MakeControl, new_outbox: MakeOutbox
) -> None:
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers, "log_level": "0"}
    control = make_control(servers | login("admin", "of-admin"))
    outbox = new_outbox(control, config=servers | login("bob", "of-bob"))
    with pytest.raises(NotAuthorized):
        outbox.open(take_over=False)


# -- dead letters --------------------------------------------------------------------------------------------


def test_a_dead_letter_is_the_whole_message_and_says_where_it_is_from(
    control: Control, outbox: Outbox, queue: Cell
) -> None:
    letter = replace(
        dead_letter_of(queue, (3, 7), reason="rejected", count=5),
        error="no such customer: Żółć",
        first_deliveries=FirstDeliveries(((0, 1_700_000_000_000), (5, 0), (6, 1_700_000_060_000))),
        last_delivery_ms=1_700_000_090_250,
    )
    first = {3: 1_700_000_000_000, 4: 1_700_000_000_000, 6: 1_700_000_060_000}
    outbox.carry_out(0, decisions=[letter], cursors=[], next_markers={})
    copies = read_all(control.config, f"{control.queue}-billing-DLQ")
    originals = read_all(control.config, control.queue)[3:7]
    assert len(copies) == 4
    for offset, copy, original in zip(range(3, 7), copies, originals, strict=True):
        assert (copy.key(), copy.value()) == (original.key(), original.value())
        assert copy.timestamp()[1] > original.timestamp()[1] + 1_000_000
        assert copy.partition() == 1
        added = [
            ("cursorq-reason", b"rejected"),
            ("cursorq-delivery-count", b"5"),
            ("cursorq-topic", control.queue.encode()),
            ("cursorq-partition", b"1"),
            ("cursorq-offset", str(offset).encode()),
            ("cursorq-subscription", b"billing"),
            ("cursorq-error", "no such customer: Żółć".encode()),
            *([("cursorq-first-delivery", str(first[offset]).encode())] if offset in first else []),
            ("cursorq-last-delivery", b"1700000090250"),
            ("cursorq-timestamp", str(original.timestamp()[1]).encode()),
        ]
        assert copy.headers() == [*(original.headers() or []), *added]
    assert [copy.key() for copy in copies].count(None) == 1
    assert [copy.value() for copy in copies].count(None) == 1


def test_what_is_not_known_of_a_dead_letter_has_no_header(
    control: Control, outbox: Outbox, queue: Cell
) -> None:
    # 0: nothing is known     1, 2: one was due after the batch that held both was delivered
    produce(
        control.config,
        control.queue,
        [
            {"partition": 0, "headers": {"deliverAt": due}, "timestamp": 1_000}
            for due in ("0", "1700000000001", "1700000000000")
        ],
    )
    at_once = replace(dead_letter_of(cell_of(control.queue), (0, 1), count=1), last_delivery_ms=5)
    late = replace(
        dead_letter_of(cell_of(control.queue), (1, 3), count=2),
        first_deliveries=FirstDeliveries(((0, 1_700_000_000_000),)),
    )
    outbox.carry_out(0, decisions=[at_once, late], cursors=[], next_markers={})
    copies = read_all(control.config, f"{control.queue}-billing-DLQ")
    times = [
        [
            (name, value)
            for name, value in copy.headers() or []
            if "error" in name or name.endswith("-delivery")
        ]
        for copy in copies
    ]
    assert times == [
        [("cursorq-first-delivery", b"5"), ("cursorq-last-delivery", b"5")],
        [],
        [("cursorq-first-delivery", b"1700000000000")],
    ]


def test_messages_between_dead_letters_are_not_copied(control: Control, outbox: Outbox, queue: Cell) -> None:
    outbox.carry_out(
        0, decisions=[dead_letter_of(queue, (0, 1), (3, 4), (9, 10))], cursors=[], next_markers={}
    )
    assert dead(control) == [b"value 0", b"value 3", b"value 9"]
    assert (outbox.copied, outbox.lost) == (3, 0)


def test_dead_letters_that_lie_far_apart_are_all_found(
    control: Control, outbox: Outbox, topics: ClusterAdmin
) -> None:
    topics.create({control.queue: (2, {})})
    produce(
        control.config,
        control.queue,
        ({"value": b"%d" % (n // 2), "partition": n % 2} for n in range(40_000)),
    )
    wanted = (0, 7, 2_500, 9_000, 9_001, 19_999)
    letters = [
        dead_letter_of(cell_of(control.queue, number), *((offset, offset + 1) for offset in wanted))
        for number in range(2)
    ]
    outbox.carry_out(0, decisions=letters, cursors=[], next_markers={})
    assert dead(control) == [b"%d" % offset for offset in wanted] * 2


def test_a_message_that_two_subscriptions_give_up_is_copied_for_each(
    control: Control, new_outbox: MakeOutbox, queue: Cell
) -> None:
    outbox = new_outbox(
        control, policies={"audit": RedeliveryPolicy(dead_letter_topic="{subscription}.of.{topic}")}
    )
    outbox.open(take_over=False)
    letters = [dead_letter_of(queue, (2, 3)), dead_letter_of(replace(queue, subscription="audit"), (2, 4))]
    outbox.carry_out(0, decisions=letters, cursors=[], next_markers={})
    assert dead(control) == [b"value 2"]
    audit = read_all(control.config, f"audit.of.{control.queue}")
    assert [record.value() for record in audit] == [b"value 2", b"value 3"]


def test_the_dead_letter_topic_is_made_like_the_queue_and_kept_if_it_is_there(
    control: Control, outbox: Outbox, queue: Cell, topics: ClusterAdmin
) -> None:
    outbox.carry_out(0, decisions=[dead_letter_of(queue, (0, 1))], cursors=[], next_markers={})
    assert topics.describe([f"{control.queue}-billing-DLQ"]).popitem()[1].partitions == 3
    topics.create({f"{control.queue}-few-DLQ": (1, {})})
    few = replace(queue, subscription="few")
    outbox.carry_out(1, decisions=[dead_letter_of(few, (0, 2))], cursors=[], next_markers={})
    assert dead(control, "few") == [b"value 0", b"value 1"]


def test_dead_letters_of_old_messages_are_kept(
    control: Control, outbox: Outbox, queue: Cell, topics: ClusterAdmin
) -> None:
    outbox.carry_out(0, decisions=[dead_letter_of(queue, (0, 2))], cursors=[], next_markers={})
    settings = topics.settings(f"{control.queue}-billing-DLQ")
    assert (settings["retention.ms"], settings["message.timestamp.type"]) == ("-1", "CreateTime")


def test_a_message_larger_than_the_clients_limit_is_copied(
    control: Control, outbox: Outbox, topics: ClusterAdmin
) -> None:
    topics.create({control.queue: (1, {"max.message.bytes": 5_000_000})})
    large = {"value": b"x" * 4_990_000}
    produce(control.config | {"message.max.bytes": "6000000"}, control.queue, [large])
    outbox.carry_out(
        0, decisions=[dead_letter_of(cell_of(control.queue), (0, 1))], cursors=[], next_markers={}
    )
    assert [len(value or b"") for value in dead(control)] == [4_990_000]


def test_a_record_of_an_aborted_transaction_is_copied_as_it_is(
    control: Control, outbox: Outbox, topics: ClusterAdmin
) -> None:
    # A reader of isolation=read_uncommitted was given it, and has rejected it.
    topics.create({control.queue: (1, {})})
    transaction(control.config, [(control.queue, {"value": b"aborted"})], commit=False)
    outbox.carry_out(
        0, decisions=[dead_letter_of(cell_of(control.queue), (0, 1))], cursors=[], next_markers={}
    )
    assert dead(control) == [b"aborted"]


def test_of_messages_that_were_never_delivered_those_are_copied_that_a_reader_would_be_given(
    control: Control, outbox: Outbox, topics: ClusterAdmin, caplog: pytest.LogCaptureFixture
) -> None:
    # 0 aborted, 1 control, 2-3 plain, 4 committed, 5 control; all of them expired
    topics.create({control.queue: (1, {})})
    transaction(control.config, [(control.queue, {"value": b"aborted"})], commit=False)
    produce(control.config, control.queue, [{"value": b"2"}, {"value": b"3"}])
    transaction(control.config, [(control.queue, {"value": b"4"})])
    letter = dead_letter_of(cell_of(control.queue), (0, 6), reason="expired", count=0)
    outbox.carry_out(0, decisions=[letter], cursors=[], next_markers={})
    assert dead(control) == [b"2", b"3", b"4"]
    assert (outbox.copied, outbox.lost) == (3, 0)
    assert not caplog.records, "a gap of the log is no message that was lost"


def test_messages_that_retention_has_removed_are_counted_and_said_aloud(
    control: Control, outbox: Outbox, queue: Cell, admin: AdminClient, caplog: pytest.LogCaptureFixture
) -> None:
    removed = admin.delete_records([TopicPartition(control.queue, 1, 5)])
    next(iter(removed.values())).result(timeout=20)
    with caplog.at_level(logging.ERROR):
        outbox.carry_out(0, decisions=[dead_letter_of(queue, (3, 7))], cursors=[], next_markers={})
    assert (outbox.copied, outbox.lost) == (2, 2)
    assert dead(control) == [None, b"value 6"]
    assert f"event=dead_letters_lost messages=2 cell={queue} " in caplog.text
    assert "((3, 5),)" in caplog.text


@pytest.mark.parametrize(
    ("topic", "partition", "offset"),
    [("not-here", 0, 0), ("no topic can be named so", 0, 0), (None, 77, 0), (None, 1, 10**12)],
)
def test_messages_that_never_were_stop_no_tracker(
    control: Control, outbox: Outbox, queue: Cell, topic: str | None, partition: int, offset: int
) -> None:
    cell = cell_of(topic or control.queue, partition)
    letters: list[DeadLetter] = [dead_letter_of(cell, (offset, offset + 1)), dead_letter_of(queue, (0, 1))]
    assert outbox.carry_out(0, decisions=letters, cursors=[], next_markers={}) is True
    assert (outbox.copied, outbox.lost) == (1, 1)
    assert dead(control) == [b"value 0"]


@pytest.mark.parametrize("below", [0, 1])
def test_a_broker_that_does_not_know_a_topic_or_a_partition_yet_loses_no_dead_letter(
    outbox: Outbox, queue: Cell, monkeypatch: pytest.MonkeyPatch, below: int
) -> None:
    deny_once(monkeypatch, queue.topic, below=below)
    outbox.carry_out(0, decisions=[dead_letter_of(queue, (0, 1))], cursors=[], next_markers={})
    assert (outbox.copied, outbox.lost) == (1, 0)


def test_copies_wait_for_a_broker_that_restarts(
    mortal: EmbeddedKafka, make_control: MakeControl, new_outbox: MakeOutbox
) -> None:
    control = make_control({"bootstrap.servers": mortal.bootstrap_servers})
    cell = with_messages(control, ClusterAdmin(control.config))
    outbox = new_outbox(control, copy_patience_ms=int(READY_S * 1000))
    outbox.open(take_over=False)
    outbox.carry_out(0, decisions=[dead_letter_of(cell, (0, 1))], cursors=[], next_markers={})
    mortal.stop()
    back = threading.Timer(1, mortal.start)
    back.start()
    outbox.carry_out(1, decisions=[dead_letter_of(cell, (1, 3))], cursors=[], next_markers={})
    back.join()
    assert dead(control) == [b"value 0", b"value 1", b"value 2"]
