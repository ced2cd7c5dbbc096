"""The history of one message: what its markers have changed, and how it has ended."""

from __future__ import annotations

import pytest

from spark_cursor_source.admin import read_message_history
from spark_cursor_source.admin.message_event import LEASE_EXPIRED
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, EndLeased, Leave, Marker, Reject, Release, Start
from spark_cursor_source.kafka.admin import ClusterAdmin
from tests.admin.test_doctor import store
from tests.kafka.control_plane import Control, cell_of, cursor_of, offsets, produce

pytestmark = pytest.mark.broker

#: name of a history -> its markers without cells and offsets
_Made = tuple[type[Marker], dict[str, object]]
START_1: _Made = (Start, {"run_id": "a", "delivery_count": 1, "lease_ms": 60_000})
START_2: _Made = (Start, {"run_id": "b", "delivery_count": 2, "lease_ms": 60_000})
BATCH_1: _Made = (EndLeased, {"run_id": "a", "delivery_count": 1})
BATCH_2: _Made = (EndLeased, {"run_id": "b", "delivery_count": 2})
RELEASE_1: _Made = (Release, {"delivery_count": 1, "delay_ms": 0})
REJECT_1: _Made = (Reject, {"delivery_count": 1, "reason": "bad"})
REJECT_2: _Made = (Reject, {"delivery_count": 2, "reason": "bad"})
LEAVE_1: _Made = (Leave, {"delivery_count": 1})
LEAVE_OF_OTHER: _Made = (Leave, {"delivery_count": 1, "run_id": "other"})
ACK: _Made = (End, {})

HISTORIES: dict[str, tuple[list[_Made], str, str]] = {
    # the markers, the kinds of the events, the outcome if the message is settled
    "acked-with-its-batch": ([START_1, BATCH_1], "START END_LEASED", "acked"),
    "left": ([START_1, LEAVE_1, BATCH_1, ACK], "START LEAVE END", "acked"),
    "left-by-another-run": ([START_1, LEAVE_OF_OTHER, BATCH_1], "START LEAVE END_LEASED", "acked"),
    "released": ([START_1, RELEASE_1, BATCH_1], "START RELEASE", "dead letter or expired"),
    "of-an-older-delivery": (
        [START_1, START_2, BATCH_1, BATCH_2],
        "START START END_LEASED",
        "acked",
    ),
    "late-release": (
        [START_1, START_2, RELEASE_1, BATCH_2],
        "START START RELEASE END_LEASED",
        "acked",
    ),
    "late-leave": (
        [START_1, START_2, LEAVE_1, BATCH_2],
        "START START LEAVE END_LEASED",
        "acked",
    ),
    "late-reject": (
        [START_1, START_2, REJECT_1, BATCH_2],
        "START START REJECT END_LEASED",
        "acked",
    ),
    "an-ack-wins": ([START_1, ACK, RELEASE_1], "START END RELEASE", "acked"),
    "an-ack-of-an-older-delivery-wins": (
        [START_1, START_2, ACK, REJECT_2],
        "START START END REJECT",
        "acked",
    ),
    "ack-of-a-dead-letter": ([START_1, REJECT_1, ACK], "START REJECT END", "dead letter"),
    "forgotten-start": ([REJECT_1], "REJECT", "dead letter"),
}


def test_late_markers_change_no_outcome(control: Control) -> None:
    ClusterAdmin(control.config).create({control.queue: (1, {})})
    produce(control.config, control.queue, [{"value": b"v"}])
    cells = {name: cell_of(control.queue, subscription=name) for name in HISTORIES}
    store(control, *(cursor_of(cell, 1) for cell in cells.values()))
    control.write(*(made(one, cells[name]) for name, (markers, *_) in HISTORIES.items() for one in markers))
    history = read_message_history(control.config, control.queue, 0, 0, **control.topics, **control.groups)
    kinds: dict[str, list[str]] = {name: [] for name in HISTORIES}
    for event in history.events:
        # A lease expires at the time of the next Start, which here is that of the first one too.
        if event.kind != LEASE_EXPIRED:
            kinds[event.subscription].append(event.kind)
    outcomes = {one.subscription: one.outcome for one in history.states}
    found = {name: (" ".join(kinds[name]), outcomes[name]) for name in HISTORIES}
    assert found == {name: (events, outcome) for name, (_, events, outcome) in HISTORIES.items()}


def made(one: _Made, cell: Cell) -> Marker:
    kind, values = one
    return kind(cell=cell, offsets=offsets((0, 1)), **values)  # type: ignore[arg-type, call-arg]
