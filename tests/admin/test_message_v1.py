"""The life of a message under the markers of kafka-mq-go."""

from __future__ import annotations

import pytest

from spark_cursor_source.admin import MessageHistory, read_message_history
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import End, Start
from spark_cursor_source.errors import UnknownQueueTopic
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire.marker import MarkerType, MarkerV1, encode, encode_v1
from tests.kafka.control_plane import PARTITIONS, Control, cell_of, offsets, produce
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

QUEUE = b"q1"


@pytest.fixture
def queue(control: Control) -> Control:
    """A queue topic with four messages of a queue, and one of another queue."""
    ClusterAdmin(control.config).create({control.queue: (1, {})})
    keys = [QUEUE, QUEUE, QUEUE, QUEUE, b"q2"]
    again = [("cursorq-redelivery-count", b"2")]
    produce(control.config, control.queue, [{"key": key, "value": b"v", "headers": again} for key in keys])
    return control


def mark(control: Control, kind: MarkerType, offset: int, *, lease_ms: int = 0, queue: bytes = QUEUE) -> None:
    marker = MarkerV1(queue_id=queue, type=kind, partition=0, offset=offset, redeliver_after_ms=lease_ms)
    produce(control.config, control.markers, [{"key": queue, "value": encode_v1(marker), "partition": 3}])


def look(control: Control, offset: int, **more: object) -> MessageHistory:
    names = control.topics
    return read_message_history(control.config, control.queue, 0, offset, **names, **more)  # type: ignore[arg-type]


def test_a_message_is_told_by_the_markers_of_its_queue(queue: Control) -> None:
    mark(queue, MarkerType.START, 0, lease_ms=60_000)
    mark(queue, MarkerType.START, 1, lease_ms=60_000)
    mark(queue, MarkerType.START, 0, lease_ms=60_000, queue=b"q2")
    mark(queue, MarkerType.KEEP_ALIVE, 0, lease_ms=90_000)
    found = look(queue, 0)
    assert [(one.kind, one.subscription, one.lease_ms) for one in found.events] == [
        ("START", "q1", 60_000),
        ("KEEPALIVE", "q1", 90_000),
    ]
    (state,) = found.states
    assert (state.subscription, state.state, state.delivery_count) == ("q1", "leased", 3)
    assert state.until_ms == found.events[-1].at_ms + 90_000
    mark(queue, MarkerType.END, 0)
    found = look(queue, 0)
    assert [one.kind for one in found.events] == ["START", "KEEPALIVE", "END"]
    assert [(one.state, one.outcome) for one in found.states] == [("settled", "acked")]


def test_a_lease_that_is_over_and_an_end_after_it_are_told(queue: Control) -> None:
    mark(queue, MarkerType.START, 2, lease_ms=1)

    def is_over() -> bool:
        mark(queue, MarkerType.KEEP_ALIVE, 3, lease_ms=60_000)  # a later marker tells the time
        return look(queue, 2).states[0].state == "available"

    wait_until(is_over)
    mark(queue, MarkerType.END, 2)
    assert [one.outcome for one in look(queue, 2).states] == ["acked late, or appended again"]
    assert look(queue, 3).states == (), "a keep-alive opens no message"
    assert {one.kind for one in look(queue, 3).events} == {"KEEPALIVE"}


def test_a_message_without_any_marker_is_of_an_unknown_topic(queue: Control) -> None:
    with pytest.raises(UnknownQueueTopic):
        look(queue, 4)
    mark(queue, MarkerType.START, 4, lease_ms=1_000, queue=b"q2")
    assert [one.subscription for one in look(queue, 4).events] == ["q2"]
    assert [one.subscription for one in look(queue, 4, subscription="q2").states] == ["q2"]


def test_a_message_is_told_by_the_markers_of_both_versions(queue: Control) -> None:
    # V1 of the queue: START · V2 of the subscription "billing": START, END · V1: END
    cell = cell_of(queue.queue)
    start = Start(cell=cell, offsets=offsets((0, 1)), lease_ms=60_000, delivery_count=1, run_id="run")
    end = End(cell=cell, offsets=offsets((0, 1)), run_id="run")
    cursor = CursorSnapshot(cell=cell, read_position=1, next_marker=0)
    produce(queue.config, queue.cursors, [{"key": cell.key, "value": cursor_wire.encode(cursor)}])
    mark(queue, MarkerType.START, 0, lease_ms=60_000)
    place = {"key": cell.key, "partition": cell.control_partition(PARTITIONS)}
    produce(queue.config, queue.markers, [place | {"value": encode(one)} for one in (start, end)])
    mark(queue, MarkerType.END, 0)
    found = look(queue, 0)
    assert [(one.subscription, one.kind) for one in found.events] == [
        ("q1", "START"),
        ("billing", "START"),
        ("billing", "END"),
        ("q1", "END"),
    ]
    assert {one.subscription: one.outcome for one in found.states} == {"billing": "acked", "q1": "acked"}
    only = look(queue, 0, subscription="billing")
    assert {one.subscription for one in only.events} == {"billing"}
