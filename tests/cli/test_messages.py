"""The verbs that show messages: what a user sees of a queue that is stuck."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from spark_cursor_source.admin import read_due, read_message_history, read_outstanding, read_stuck
from spark_cursor_source.admin.partition_map import partition_map_of
from spark_cursor_source.cli import main
from spark_cursor_source.cli.holes import lines_of
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, Lease
from spark_cursor_source.core.marker import Block, Hello, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import InvalidArgument, UnknownQueueTopic, UnknownSubscription
from spark_cursor_source.wire.marker import encode
from tests.cli.conftest import Says
from tests.client.conftest import Rig, receive
from tests.kafka.control_plane import PARTITIONS, produce
from tests.waiting import wait_until


@pytest.fixture
def stuck(make_rig: Callable[..., Rig]) -> Rig:
    """Four messages: acked; released with a reason and leased again; leased; and leased until it expired."""
    rig = make_rig(1)
    rig.tracker(backoff=["0s"])
    rig.send(b'{"order": 0}', b"one", b"two", b"\xff")
    consumer = rig.consumer(redelivery_timeout_ms=3_600_000)  # no lease is extended before the test ends
    first = {one.offset: one for one in receive(consumer, 4)}
    first[0].ack()
    first[1].nack(0, reason="BankClosed: at night")
    (again,) = receive(consumer, 1)
    assert (again.offset, again.delivery_count) == (1, 2)
    first[3].extend(1_000)
    (again,) = receive(consumer, 1)
    assert (again.offset, again.delivery_count) == (3, 2)
    # The tracker reads a Start after the consumer has the message.
    wait_until(lambda: leases(rig) == {1: 2, 2: 1, 3: 2})
    return rig


def leases(rig: Rig) -> dict[int, int]:
    """The delivery count of each leased message, as the tracker knows it."""
    cursor = rig.cursor()
    of_each = cursor.leases if cursor else ()
    return {offset: lease.delivery_count for lease, messages in of_each for offset in messages}


@pytest.fixture
def says(stuck: Rig, says_of: Callable[[Rig], Says]) -> Says:
    return says_of(stuck)


@pytest.mark.broker
def test_a_stuck_queue_is_looked_at(stuck: Rig, says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = stuck.control.config
    names = {"cursors_topic": stuck.control.cursors, **stuck.control.groups}
    oldest = read_outstanding(kafka, topic=stuck.topic, **names)
    assert [(one.offset, one.state, one.delivery_count) for one in oldest] == [
        (1, "leased", 2),
        (2, "leased", 1),
        (3, "leased", 2),
    ]
    assert all(one.host and one.run and one.first_delivery_ms and one.until_ms for one in oldest)
    most = read_outstanding(kafka, subscription="s", order="most_delivered", limit=2, **names)
    assert [one.offset for one in most] == [1, 3]
    found = read_stuck(kafka, markers_topic=stuck.control.markers, **names)
    assert [(one.offset, one.reason) for one in found.most_delivered] == [
        (1, "BankClosed: at night"),
        (3, None),
    ]
    with pytest.raises(UnknownSubscription):
        read_outstanding(kafka, subscription="t", **names)
    with pytest.raises(UnknownQueueTopic):
        read_outstanding(kafka, topic="never-there", **names)
    with pytest.raises(InvalidArgument, match="at least 1"):
        read_outstanding(kafka, limit=0, **names)

    lines = says("stuck", "--limit", "2")
    assert [line.split()[:4] for line in lines if line.startswith("Q/")] == [
        ["Q/0/1", "s", "leased", "2"],
        ["Q/0/2", "s", "leased", "1"],
        ["Q/0/1", "s", "leased", "2"],
        ["Q/0/3", "s", "leased", "2"],
    ]
    assert lines[2].endswith("BankClosed: at night")
    told = json.loads("\n".join(says("stuck", "--json")))
    assert [one["offset"] for one in told["oldest"]] == [1, 2, 3]

    check_the_history(stuck, says)
    check_the_stats(says)
    check_the_holes(says)
    check_previews(says)
    check_the_masks(says, monkeypatch)


@pytest.mark.broker
def test_what_blocks_whom_is_seen(make_rig: Callable[..., Rig], says_of: Callable[[Rig], Says]) -> None:
    # 0 3 leased | 1 2 wait for 0 | 4 waits for 3
    rig = make_rig(1)
    rig.tracker()
    rig.send(b"a0", b"a1", b"a2", b"b0", b"b1")
    cell, control = Cell(subscription="s", topic=rig.topic, partition=0), rig.control
    lease_ms, home = 3_600_000, {"partition": cell.control_partition(PARTITIONS)}
    blocked = OffsetSet.of((1, 3), (4, 5))
    markers = [
        Hello(cell=cell, run_id="run", position=0),
        Start(cell=cell, offsets=OffsetSet.of((0, 5)), lease_ms=lease_ms, delivery_count=1, run_id="run"),
        Block(cell=cell, offsets=blocked, behind=(0, 0, 3), delivery_count=1),
    ]
    records = [{"key": cell.key, "value": encode(one)} | home for one in markers]
    produce(control.config, control.markers, records)
    wait_until(lambda: (now := rig.cursor()) is not None and now.blocked.offsets == blocked)

    kafka, cursors = control.config, {"cursors_topic": control.cursors}
    oldest = read_outstanding(kafka, topic=rig.topic, **cursors)
    assert [(one.offset, one.state, one.behind, one.blocks) for one in oldest] == [
        (0, "leased", None, 2),
        (1, "blocked", 0, 0),
        (2, "blocked", 0, 0),
        (3, "leased", None, 1),
        (4, "blocked", 3, 0),
    ]
    (due,) = read_due(kafka, topic=rig.topic, **cursors)
    assert (due.ready, due.blocked, due.leased) == (0, 3, 2)
    history = read_message_history(kafka, rig.topic, 0, 4, markers_topic=control.markers, **cursors)
    assert [(one.kind, one.behind) for one in history.events] == [("START", None), ("BLOCK", 3)]

    says = says_of(rig)
    assert "leased=2 available=0 delayed=0 blocked=3 blocking=2 held=0 ack_holes=0" in says("stats")[0]
    lines = says("stuck")
    assert lines[1].endswith("order of the key")
    assert [line.split()[2] for line in lines[2:7]] == ["leased", "blocked", "blocked", "leased", "blocked"]
    orders = ["blocks 2 messages", "waits for offset 0", "waits for offset 0", "blocks 1 message"]
    assert [line.split("  ")[-1].strip() for line in lines[2:7]] == [*orders, "waits for offset 3"]
    told = json.loads("\n".join(says("stuck", "--json")))
    assert [(one["behind"], one["blocks"]) for one in told["oldest"]][:2] == [(None, 2), (0, 0)]
    lines = says("message", "Q/0/2")
    assert "s: blocked, waits for offset 0" in lines
    assert lines[-1].split()[2:4] == ["BLOCK", "1"]
    assert lines[-1].endswith("waits for offset 0")
    assert any(line.endswith(", delivery 1, blocks 2 messages") for line in says("message", "Q/0/0"))
    assert says("holes", "Q", "--subscription", "s") == ["Q/0  0 to 5: 2 leased, 3 blocked", "LBBLB"]
    assert says("due")[1].split() == ["Q", "s", "0", "0", "0", "0", "3", "2", "-"]
    assert says("markers")[-1].split()[3:] == [
        *("BLOCK", "s", "Q/0", "1-2,4", "delivery", "1", "behind", "0,3"),
    ]
    assert json.loads(says("markers", "--json")[-1])["behind"] == [0, 0, 3]
    (row,) = json.loads(says("top", "--rounds", "1", "--json")[0])
    assert (row["leased"], row["blocked"]) == (2, 3)


def check_the_history(rig: Rig, says: Says) -> None:
    def history(offset: int, **more: Any) -> Any:
        names = rig.control.topics
        return read_message_history(
            rig.control.config, rig.topic, 0, offset, **names, **rig.control.groups, **more
        )

    acked, released, expired = history(0), history(1, payload=True), history(3, payload=True)
    assert [(one.kind, one.delivery_count) for one in acked.events] == [("START", 1), ("END", None)]
    assert [(one.state, one.outcome) for one in acked.states] == [("settled", "acked")]
    assert acked.value is None
    told = [(one.kind, one.delivery_count, one.reason) for one in released.events]
    assert told == [("START", 1, None), ("RELEASE", 1, "BankClosed: at night"), ("START", 2, None)]
    assert len({one.run for one in released.events}) == 1
    assert all(one.host is not None for one in released.events)
    assert released.value == b"one"
    assert [one.kind for one in expired.events] == ["START", "KEEPALIVE", "LEASE_EXPIRED", "START"]
    assert (expired.value, expired.to_json()["value"]) == (b"\xff", "0xff")
    with pytest.raises(InvalidArgument, match="ends at offset 4"):
        history(4)
    with pytest.raises(InvalidArgument, match="partitions 0 to 0"):
        read_message_history(rig.control.config, rig.topic, 1, 0, markers_topic=rig.control.markers)

    lines = says("message", "Q/0/1", "--payload")
    assert lines[0].startswith("Q/0/1, 20")
    assert "value: one" in lines
    assert any(line.startswith("s: leased until ") and line.endswith(", delivery 2") for line in lines)
    assert lines[-2].split()[2:4] == ["RELEASE", "1"]
    assert lines[-2].endswith("BankClosed: at night")
    assert says("message", "Q/0/9", code=1)[0].endswith("ends at offset 4. Correct the call.")
    assert json.loads("\n".join(says("message", "Q/0/1", "--json")))["value"] is None


def check_the_masks(says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "value: ***" in says("message", "Q/0/1", "--payload", "--mask")
    assert 'value: {"order": "***"}' in says("message", "Q/0/0", "--payload", "--mask-field", "order")
    values = [json.loads(one)["value"] for one in says("tail", "Q", "--payload", "--json", "--mask")]
    assert values == ["***"] * 4
    monkeypatch.setenv("CURSORQ_MASK_FIELDS", "card order")
    assert says("tail", "Q", "--payload")[0].endswith('{"order": "***"}')


def check_the_stats(says: Says) -> None:
    (line,) = says("stats")
    assert line.startswith("Q s backlog=3 outstanding=3 leased=3")


def check_the_holes(says: Says) -> None:
    of = ("Q", "--subscription", "s")
    assert says("holes", *of) == ["Q/0  1 to 4: 3 leased", "LLL"]
    assert says("holes", *of, "--first", "2", "--end", "3") == ["Q/0  2 to 3: 1 leased", "L"]
    (drawn,) = json.loads("\n".join(says("holes", *of, "--json")))
    assert (drawn["mark_delete"], drawn["runs"]) == (0, [[1, 4, "leased"]])
    assert says("holes", "Q", "--subscription", "t", code=1)
    (refused,) = says("holes", *of, "--partition", "7", code=1)
    assert "partition=7 is invalid: 's' has read these partitions: 0." in refused


def test_a_few_messages_among_many_are_small_letters() -> None:
    leases = ((Lease(60_000, 1, "run"), OffsetSet.of((0, 10), (50, 51))),)
    cell = Cell(subscription="s", topic="t", partition=3)
    cursor = CursorSnapshot(cell=cell, read_position=80, next_marker=7, leases=leases)
    one = partition_map_of(cursor, log_start=0, log_end=1_100)
    assert list(lines_of(one, 10)) == ["t/3  0 to 1,100: 69 acked, 11 leased, 1,020 unread", "l_________"]
    assert list(lines_of(one, 8, first=0, end=80))[1] == "L....l.."
    done = CursorSnapshot(cell=cell, read_position=80, next_marker=7)
    told = lines_of(partition_map_of(done, log_start=0, log_end=80), 8)
    assert list(told) == ["t/3  80 to 80: all messages are acked"]


def check_previews(says: Says) -> None:
    of = ("--subscription", "s", "--topic", "Q")
    dry = "s: {} will come again, {} will be dropped"
    assert says("subscription", "seek", *of, "--earliest", "--dry-run") == [
        dry.format("4 messages", "0 messages")
    ]
    assert says("subscription", "seek", *of, "--offsets", "0=3", "--dry-run") == [
        dry.format("1 message", "2 messages")
    ]
    assert says("subscription", "skip", *of, "--messages", "1", "--dry-run") == [
        dry.format("0 messages", "1 message")
    ]
    told = json.loads("\n".join(says("subscription", "skip-all", *of, "--dry-run", "--json")))
    assert [(one["again"], one["dropped"]) for one in told["preview"]] == [(0, 3)]
    assert says("stats")[0].startswith("Q s backlog=3"), "nothing was done"
    assert says("subscription", "skip-all", *of) == ["s has nothing left below Q partition 0 offset 4"]
    assert says("stuck") == ["no message is outstanding"]


@pytest.mark.parametrize("id", ["orders", "orders/0", "orders/x/1", "/0/1", "orders/0/-1"])
def test_an_id_that_is_none_is_wrong_usage(id: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["message", id])
    assert ended.value.code == 2
    assert "is not of the form TOPIC/PARTITION/OFFSET, such as orders/0/17" in capsys.readouterr().err
