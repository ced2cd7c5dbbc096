"""The operator closes a breaker: a marker to each cell, and nothing to anybody else."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from spark_cursor_source.admin.breaker import ClosedBreakers, close_breaker
from spark_cursor_source.admin.pause import Resumed
from spark_cursor_source.admin.tracker_channel import TrackerChannel
from spark_cursor_source.cli.pause import resume_text
from spark_cursor_source.core.breaker import Breaker
from spark_cursor_source.core.cursor import HeldLetters, MarkersLog
from spark_cursor_source.core.marker import CloseBreaker
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import TrackedElsewhere, UnknownSubscription
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import marker as marker_wire
from tests.kafka.control_plane import Control, cell_of, cursor_of, offsets, produce, read_all

pytestmark = pytest.mark.broker


@pytest.fixture
def known(control: Control) -> Control:
    """Cursors of a subscription of two topics, and of another."""
    cells = [cell_of("t", 0), cell_of("t", 1), cell_of("u", 0), cell_of("t", 0, "shipping")]
    records = [{"key": cell.key, "value": cursor_wire.encode(cursor_of(cell, 5))} for cell in cells]
    produce(control.config, control.cursors, records)
    return control


def told(control: Control) -> list[bytes]:
    """The cells that have a Resume."""
    found = [(one.key(), one.value()) for one in read_all(control.config, control.markers)]
    assert all(isinstance(marker_wire.decode(key, value), CloseBreaker) for key, value in found)
    return sorted(key or b"" for key, _ in found)


@pytest.mark.parametrize(
    ("topic", "cells"), [(None, [b"billing,t,0", b"billing,t,1", b"billing,u,0"]), ("u", [b"billing,u,0"])]
)
def test_every_partition_of_the_subscription_is_told(
    known: Control, topic: str | None, cells: list[bytes]
) -> None:
    names = known.topics
    assert close_breaker(known.config, "billing", topic, **names) == ClosedBreakers(0, 0), (
        "it was open nowhere"
    )
    assert told(known) == cells


def test_the_partitions_count_where_the_breaker_was_open(known: Control) -> None:
    opened = replace(cursor_of(cell_of("t", 1), 5), breaker=Breaker(trip="x", opened_ms=1))
    produce(known.config, known.cursors, [{"key": opened.cell.key, "value": cursor_wire.encode(opened)}])
    names = known.topics
    assert close_breaker(known.config, "billing", **names) == ClosedBreakers(opened=1, retried=0)


def test_the_partitions_count_whose_dead_letters_are_tried_again(known: Control) -> None:
    why = HeldLetters(3, "bad", trouble="too large", retry_ms=9_000, tries=1)
    troubled = replace(cursor_of(cell_of("t", 0), 5), held=((why, offsets((2, 3))),))
    by_breaker = replace(
        cursor_of(cell_of("t", 1), 5),
        held=((HeldLetters(3, "bad"), offsets((2, 3))),),
        breaker=Breaker(trip="x", opened_ms=1),
    )
    records = [{"key": one.cell.key, "value": cursor_wire.encode(one)} for one in (troubled, by_breaker)]
    produce(known.config, known.cursors, records)
    names = known.topics
    assert close_breaker(known.config, "billing", **names) == ClosedBreakers(opened=1, retried=1)


@pytest.mark.parametrize(
    ("resumed", "told"),
    [
        (
            Resumed(0, 0, 0),
            "billing is not paused, no breaker of it is open, and no dead letters of it wait to be written "
            "again",
        ),
        (
            Resumed(0, 0, 0, unread=1),
            "billing is not paused, no breaker of it is open, and no dead letters of it wait to be written "
            "again; the tracker has yet to read markers of 1 partition, and a pause among them ends too",
        ),
        (
            Resumed(1, 1, 0),
            "the pause of billing ends, on 1 partition; the breaker of billing closes, on 1 partition",
        ),
        (Resumed(0, 2, 0), "the breaker of billing closes, on 2 partitions"),
        (
            Resumed(0, 0, 1),
            "no breaker of billing is open; its dead letters that could not be written are tried again, "
            "on 1 partition",
        ),
        (
            Resumed(0, 2, 3),
            "the breaker of billing closes, on 2 partitions; its dead letters that could not be written are "
            "tried again, on 3 partitions",
        ),
    ],
)
def test_the_command_tells_what_it_did(resumed: Resumed, told: str) -> None:
    assert resume_text("billing", resumed) == told


def test_a_subscription_that_the_tracker_does_not_know_is_told_apart_from_those_it_does(
    known: Control, broker: EmbeddedKafka
) -> None:
    names = known.topics
    with pytest.raises(
        UnknownSubscription, match=r"'biling' of topic 't'. Its subscriptions are: billing, shipping"
    ):
        close_breaker(known.config, "biling", "t", **names)
    with pytest.raises(
        UnknownSubscription, match=r"of topic 'v'. Its subscriptions are: billing of t, billing of u, "
    ):
        close_breaker(known.config, "billing", "v", **names)
    assert told(known) == []


def test_a_subscription_of_another_markers_topics_tracker_is_refused_and_not_told(control: Control) -> None:
    cell = cell_of("t")
    cursor = replace(cursor_of(cell, 5), log=MarkersLog("of-others", "id"))
    produce(control.config, control.cursors, [{"key": cell.key, "value": cursor_wire.encode(cursor)}])
    with pytest.raises(TrackedElsewhere, match=r"through markers topic 'of-others'.*Set markersTopic to"):
        close_breaker(control.config, "billing", **control.topics)
    talk = TrackerChannel(
        control.config,
        ClusterAdmin(control.config),
        **control.topics,
        timeout_ms=1_000,
    )
    with closing(talk), pytest.raises(TrackedElsewhere):
        talk.find("billing")
    assert told(control) == []
