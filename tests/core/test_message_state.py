"""The state of a message, as its cursor tells it: of blocked messages and of those that they wait for."""

from __future__ import annotations

from spark_cursor_source.core.blocked import Blocked
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import Available, CursorSnapshot, HeldLetters, Lease
from spark_cursor_source.core.delivery_times import FirstDeliveries
from spark_cursor_source.core.message_state import outstanding_of, state_of
from spark_cursor_source.core.offsets import OffsetSet

# 0 leased for the 3rd time | 1 2 wait for 0 | 3 acked | 4 held | 5 waits for 4 | 6 available | 7 waits for 0
CURSOR = CursorSnapshot(
    cell=Cell(subscription="s", topic="t", partition=0),
    read_position=8,
    next_marker=0,
    leases=((Lease(60_000, 3, "run"), OffsetSet.of((0, 1))),),
    available=((Available(1, False), OffsetSet.of((6, 7))),),
    held=((HeldLetters(5, "bad"), OffsetSet.of((4, 5))),),
    blocked=Blocked(
        offsets=OffsetSet.of((1, 3), (5, 6), (7, 8)), behind=(0, 0, 4, 0), delivery_counts=(0, 2, 0, 4)
    ),
    first_deliveries=FirstDeliveries(((0, 1_000),)),
)


def test_a_blocked_message_names_what_it_waits_for() -> None:
    two = state_of(CURSOR, 2)
    assert (two.state, two.behind, two.blocks, two.delivery_count) == ("blocked", 0, 0, 2)
    assert (two.first_delivery_ms, two.until_ms, two.run) == (1_000, None, None)
    assert two.key_order == "waits for offset 0"
    assert two.to_json()["behind"] == 0


def test_a_message_that_others_wait_for_says_how_many() -> None:
    told = {offset: (one := state_of(CURSOR, offset)).state + ": " + one.key_order for offset in (0, 4, 6)}
    assert told == {0: "leased: blocks 3 messages", 4: "held: blocks 1 message", 6: "available: "}


def test_a_message_may_wait_and_be_waited_for() -> None:
    blocked = Blocked(offsets=OffsetSet.of((1, 3)), behind=(0, 1), delivery_counts=(0, 0))
    cursor = CursorSnapshot(cell=CURSOR.cell, read_position=3, next_marker=0, blocked=blocked)
    assert state_of(cursor, 1).key_order == "waits for offset 0, blocks 1 message"


def test_blocked_messages_are_among_the_oldest_and_the_most_delivered() -> None:
    oldest = outstanding_of(CURSOR, "oldest", 99)
    assert [(one.offset, one.state, one.behind, one.blocks) for one in oldest] == [
        (0, "leased", None, 3),
        (1, "blocked", 0, 0),
        (2, "blocked", 0, 0),
        (4, "held", None, 1),
        (5, "blocked", 4, 0),
        (6, "available", None, 0),
        (7, "blocked", 0, 0),
    ]
    most = outstanding_of(CURSOR, "most_delivered", 99)
    assert [one.offset for one in most] == [4, 7, 0, 2, 6, 1, 5]
    assert sorted(most, key=lambda one: one.offset) == oldest
    assert outstanding_of(CURSOR, "most_delivered", 3) == most[:3]
    assert outstanding_of(CURSOR, "oldest", 3) == oldest[:3]
