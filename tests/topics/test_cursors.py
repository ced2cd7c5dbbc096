"""The cursors topic as its readers see it: the latest of each cell, whole, and nothing else."""

from __future__ import annotations

import logging
import random
import statistics
import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from spark_cursor_source.core.cell import Cell, control_partition
from spark_cursor_source.core.cursor import Available, CursorSnapshot
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import InvalidControlRecord, LaterCursorVersion, NotAuthorized, TopicNotFound
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.wire import cursor as wire
from spark_cursor_source.wire.control_pb2 import Cursor as CursorPb
from tests.conftest import DeleteTopic
from tests.kafka.control_plane import (
    PARTITIONS,
    Control,
    cell_of,
    cursor_of,
    login,
    produce,
    transaction,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

MakeControl = Callable[[dict[str, str]], Control]


def records_of(cursor: CursorSnapshot, *, max_bytes: int = 900_000) -> list[dict[str, object]]:
    """The records of a cursor, as the tracker writes them."""
    key = cursor.cell.key
    return [
        {"key": record_key, "value": value, "partition": control_partition(key, PARTITIONS)}
        for record_key, value in wire.to_records(key, wire.encode(cursor), max_bytes=max_bytes)
    ]


def write(control: Control, *cursors: CursorSnapshot, commit: bool = True, max_bytes: int = 900_000) -> None:
    records = [
        (control.cursors, record) for cursor in cursors for record in records_of(cursor, max_bytes=max_bytes)
    ]
    transaction(control.config, records, commit=commit)


def shows(tail: CursorTable, cursor: CursorSnapshot) -> Callable[[], bool]:
    def refreshed() -> bool:
        tail.refresh()
        return tail.get(cursor.cell) == cursor

    return refreshed


@pytest.fixture
def tail(control: Control) -> CursorTable:
    return CursorTable(control.config, control.cursors)


def test_an_empty_topic_has_no_cursors(control: Control, tail: CursorTable) -> None:
    assert tail.refresh() is False
    assert tail.get(cell_of("orders")) is None
    assert tail.all() == {}


def test_the_latest_cursor_of_each_cell_is_there_after_a_refresh(control: Control, tail: CursorTable) -> None:
    cells = [cell_of("orders", number) for number in range(20)]
    for read_position in (10, 20, 30):
        cursors = {cell: cursor_of(cell, read_position, (3, 5)) for cell in cells}
        write(control, *cursors.values())
        for cursor in cursors.values():
            wait_until(shows(tail, cursor))
        assert tail.all() == cursors


def test_cursors_are_found_by_subscription_and_by_topic(control: Control, tail: CursorTable) -> None:
    cells = [cell_of(topic, 0, name) for topic in ("orders", "returns") for name in ("billing", "shipping")]
    cursors = {cell: cursor_of(cell, 5) for cell in cells}
    write(control, *cursors.values())
    for cursor in cursors.values():
        wait_until(shows(tail, cursor))
    assert set(tail.of(subscription="billing")) == {cell_of("orders"), cell_of("returns")}
    assert set(tail.of(topic="orders")) == {cell_of("orders"), cell_of("orders", 0, "shipping")}
    assert set(tail.of(subscription="billing", topic="orders")) == {cell_of("orders")}
    assert tail.of() == cursors


def test_a_reader_of_one_subscription_keeps_nothing_of_others(control: Control) -> None:
    own, other = cell_of("orders"), cell_of("orders", 0, "shipping")
    tail = CursorTable(control.config, control.cursors, subscription=own.subscription)
    write(control, cursor_of(other, 5), cursor_of(own, 7))
    wait_until(shows(tail, cursor_of(own, 7)))
    assert tail.record_keys() == {own.key}
    tail.close()


def test_changes_are_those_since_the_last_call(control: Control, tail: CursorTable) -> None:
    cells = [cell_of("orders", number) for number in range(3)]
    first = {cell: cursor_of(cell, 5) for cell in cells}
    write(control, *first.values())
    for cursor in first.values():
        wait_until(shows(tail, cursor))
    assert tail.changes() == first
    assert tail.changes() == {}
    later = cursor_of(cells[1], 6)
    write(control, later)
    gone = {"key": cells[2].key, "value": None, "partition": cells[2].control_partition(PARTITIONS)}
    produce(control.config, control.cursors, [gone])
    wait_until(shows(tail, later))
    wait_until(lambda: tail.refresh() or tail.get(cells[2]) is None)
    assert tail.changes() == {cells[1]: later, cells[2]: None}


# An empty value says that the cursor is in parts, and there are none.
@pytest.mark.parametrize(
    "value", [b"", wire.encode(cursor_of(cell_of("orders"), 5, (7, 9)))], ids=["torn", "contradictory"]
)
def test_a_torn_cursor_is_left_out_of_the_changes_until_it_is_whole(
    control: Control, tail: CursorTable, caplog: pytest.LogCaptureFixture, value: bytes
) -> None:
    torn, whole = cell_of("orders"), cell_of("orders", 1)
    write(control, cursor_of(whole, 5))
    place = {"key": torn.key, "partition": torn.control_partition(PARTITIONS)}
    produce(control.config, control.cursors, [place | {"value": value}])
    wait_until(shows(tail, cursor_of(whole, 5)))
    wait_until(lambda: tail.refresh() or torn.key in tail.record_keys())
    with pytest.raises(InvalidControlRecord):
        tail.get(torn)
    assert tail.changes() == {whole: cursor_of(whole, 5)}
    assert "event=cursor_torn" in caplog.text
    assert tail.changes() == {}
    write(control, cursor_of(torn, 6))
    wait_until(shows(tail, cursor_of(torn, 6)))
    assert tail.changes() == {torn: cursor_of(torn, 6)}


def test_a_cursor_that_was_deleted_is_gone(control: Control, tail: CursorTable) -> None:
    cell = cell_of("orders")
    write(control, cursor_of(cell, 5))
    wait_until(shows(tail, cursor_of(cell, 5)))
    partition = cell.control_partition(PARTITIONS)
    produce(control.config, control.cursors, [{"key": cell.key, "value": None, "partition": partition}])
    assert tail.refresh() is True
    assert tail.get(cell) is None
    assert tail.all() == {}


def test_nothing_of_open_or_aborted_transactions_is_seen(control: Control, tail: CursorTable) -> None:
    # committed 5 ---- aborted 6 ---- open 7 ---- [seen: 5]
    cell = cell_of("orders")
    write(control, cursor_of(cell, 5))
    write(control, cursor_of(cell, 6), commit=False)
    wait_until(shows(tail, cursor_of(cell, 5)))
    producer = Producer({**control.config, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    for record in records_of(cursor_of(cell, 7)):
        producer.produce(control.cursors, **record)
    assert producer.flush(30) == 0
    for _ in range(5):
        tail.refresh()
        assert tail.get(cell) == cursor_of(cell, 5)
    producer.commit_transaction(30)
    wait_until(shows(tail, cursor_of(cell, 7)))


def test_records_of_other_programs_are_left_alone(
    control: Control, tail: CursorTable, caplog: pytest.LogCaptureFixture
) -> None:
    liftbridge = CursorPb(stream="orders", partition=4, cursor_id="client", offset=17).SerializeToString()
    foreign: list[dict[str, object]] = [
        {"key": b"client,orders,4", "value": liftbridge},
        {"key": b"client,orders,5", "value": b"\xff\x00random"},
        {"key": b"no cell at all", "value": b"x"},
        {"key": b"\xff\xfe", "value": b"x"},
        {"key": b"", "value": b""},
        # somebody else's cursor under a key that is not its own
        {"key": b"client,orders,6", "value": wire.encode(cursor_of(cell_of("orders"), 9))},
    ]
    produce(control.config, control.cursors, foreign)
    write(control, cursor_of(cell_of("orders"), 5))
    wait_until(shows(tail, cursor_of(cell_of("orders"), 5)))
    with caplog.at_level(logging.DEBUG):
        assert list(tail.all()) == [cell_of("orders")]
        assert tail.get(cell_of("orders", 4, "client")) is None
    assert {record.levelno for record in caplog.records if "topics.cursors" in record.name} == {logging.DEBUG}


def test_a_cursor_of_a_later_version_is_never_taken_for_none(control: Control, tail: CursorTable) -> None:
    later = CursorPb(stream="orders", partition=4, cursor_id="billing", offset=17, version=2)
    record = {"key": b"billing,orders,4", "value": later.SerializeToString()}
    produce(control.config, control.cursors, [record])
    tail.refresh()
    with pytest.raises(LaterCursorVersion, match=r"of version 2 .* up to version 1.* Install that version"):
        tail.get(cell_of("orders", 4))


def big_cursor(cell: Cell, seed: int) -> CursorSnapshot:
    """About 150 kB of holes."""
    waiting = OffsetSet.from_offsets(random.Random(seed).sample(range(1_000_000), 200_000))
    return CursorSnapshot(
        cell=cell, read_position=1_000_000, next_marker=3, available=((Available(2, False), waiting),)
    )


def test_a_cursor_in_parts_is_read_whole(control: Control, tail: CursorTable) -> None:
    cell = cell_of("orders")
    for seed in (1, 2):
        cursor = big_cursor(cell, seed)
        assert len(records_of(cursor, max_bytes=20_000)) > 5
        write(control, cursor, max_bytes=20_000)
        wait_until(shows(tail, cursor))
    small = cursor_of(cell, 1_000_001)
    write(control, small)
    wait_until(shows(tail, small))
    assert list(tail.all()) == [cell]


def test_parts_that_do_not_belong_together_are_never_a_cursor(control: Control, tail: CursorTable) -> None:
    cell = cell_of("orders")
    first, second = (records_of(big_cursor(cell, seed), max_bytes=20_000) for seed in (1, 2))
    produce(control.config, control.cursors, [*first, *second[:2]])
    tail.refresh()
    with pytest.raises(InvalidControlRecord, match="do not belong together"):
        tail.get(cell)


def test_a_refresh_without_news_takes_a_few_milliseconds(control: Control, tail: CursorTable) -> None:
    write(control, *(cursor_of(cell_of("orders", number), 5) for number in range(50)))
    wait_until(shows(tail, cursor_of(cell_of("orders", 49), 5)))
    taken = []
    for _ in range(21):
        begun = time.perf_counter()
        tail.refresh()
        tail.get(cell_of("orders", 7))
        taken.append(time.perf_counter() - begun)
    assert statistics.median(taken) < 0.1  # 2 ms on an idle machine; the suite's is not


def test_a_cursor_is_decoded_once(control: Control, tail: CursorTable) -> None:
    cell, other = cell_of("orders"), cell_of("orders", 1)
    write(control, cursor_of(cell, 5))
    wait_until(shows(tail, cursor_of(cell, 5)))
    before = tail.get(cell)
    write(control, cursor_of(other, 6))
    wait_until(shows(tail, cursor_of(other, 6)))
    assert tail.get(cell) is before


def test_partitions_that_are_added_leave_no_old_cursor_in_force(control: Control, admin: AdminClient) -> None:
    # The cell's records are in partition a, then, as the topic grows, in partition b; a keeps the old one.
    cell = next(
        cell
        for cell in (cell_of("orders", number) for number in range(100))
        if cell.control_partition(PARTITIONS) != cell.control_partition(PARTITIONS + 1)
    )
    write(control, cursor_of(cell, 5))
    admin.create_partitions([NewPartitions(control.cursors, PARTITIONS + 1)])[control.cursors].result(20)
    while ClusterAdmin(control.config).describe([control.cursors])[control.cursors].partitions == PARTITIONS:
        time.sleep(0.02)
    record = records_of(cursor_of(cell, 6))[0] | {"partition": cell.control_partition(PARTITIONS + 1)}
    produce(control.config, control.cursors, [record])
    wait_until(shows(CursorTable(control.config, control.cursors), cursor_of(cell, 6)))


def test_a_topic_that_was_made_again_is_read_from_its_beginning(
    control: Control, tail: CursorTable, delete_topic: DeleteTopic, topics: ClusterAdmin
) -> None:
    cell = cell_of("orders")
    write(control, *(cursor_of(cell, position) for position in range(5)))
    wait_until(shows(tail, cursor_of(cell, 4)))
    delete_topic(control.cursors)
    topics.create({control.cursors: (PARTITIONS, {"cleanup.policy": "compact"})})
    write(control, cursor_of(cell, 9))
    wait_until(shows(tail, cursor_of(cell, 9)))


def test_a_topic_that_is_not_there_is_named(config: dict[str, str]) -> None:
    with pytest.raises(TopicNotFound, match="not-here"):
        CursorTable(config, "not-here").refresh()


def test_whoever_may_not_read_cursors_is_told(
    guarded_broker: EmbeddedKafka, make_control: MakeControl
) -> None:
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers, "log_level": "0"}
    control = make_control(servers | login("admin", "of-admin"))
    with pytest.raises(NotAuthorized):
        CursorTable(servers | login("bob", "of-bob"), control.cursors).refresh()


def test_compaction_and_a_restart_leave_the_latest(
    mortal: EmbeddedKafka, create_on: Callable[..., str]
) -> None:
    config = {"bootstrap.servers": mortal.bootstrap_servers}
    cursors = create_on(
        config, PARTITIONS, cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.01
    )
    control = Control(config, cursors.removeprefix("cursors-"))
    tail, cell = CursorTable(config, cursors), cell_of("orders")
    for position in range(12):
        write(control, cursor_of(cell, position), cursor_of(cell_of("orders", 1), position))
        time.sleep(0.1)  # so that there are segments to be compacted
    mortal.restart()
    write(control, cursor_of(cell, 12))
    wait_until(shows(tail, cursor_of(cell, 12)))
    wait_until(shows(CursorTable(config, cursors), cursor_of(cell, 12)))
