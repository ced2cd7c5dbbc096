"""A queue topic whose end the tracker cannot read holds up no other, and ends no tracker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation

from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import EndOffsetObserved
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import KafkaUnavailable, MarkersNotDurable, NotAuthorized
from spark_cursor_source.kafka.admin import ClusterAdmin, Partition
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.tracker import Tracker, queue_ends, watch
from spark_cursor_source.tracker.queue_ends import QueueEnds
from spark_cursor_source.tracker.tracked_cells import TrackedCells
from spark_cursor_source.tracker.watch import QueueWatch
from spark_cursor_source.wire import marker as marker_wire
from tests.kafka.control_plane import (
    PARTITIONS,
    Control,
    allow_bob,
    cell_of,
    login,
    new_control,
    produce,
    read_all,
)
from tests.kafka.tracker_thread import options_of
from tests.tracker.spark_twin import SparkTwin
from tests.tracker.test_standalone import answered, cursors, hello, put
from tests.waiting import wait_until


@pytest.mark.broker
@pytest.mark.parametrize("kind", [Tracker, SparkTwin])
def test_a_queue_that_may_not_be_described_ends_no_tracker_and_others_expire(
    guarded_broker: EmbeddedKafka, tmp_path: Path, kind: type[Tracker | SparkTwin]
) -> None:
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers, "log_level": "0"}
    control = new_control(servers | login("admin", "of-admin"))
    denied, other = cell_of(f"closed-{control.name}"), cell_of(control.queue)
    for cell in (denied, other):
        ClusterAdmin(control.config).create({cell.topic: (1, {})})
        produce(control.config, cell.topic, [{"value": b"v"}] * 3)
    allow_bob(control, {other.topic: AclOperation.ALL})
    bob = Control(servers | login("bob", "of-bob"), control.name)
    for run_id in ("first", "after a restart"):
        with kind(options_of(bob, tmp_path, messageTtl="1s")) as tracker:

            def goes_on(tracker: Tracker | SparkTwin = tracker) -> None:
                assert tracker.failure is None

            put(control, hello(denied, run_id))
            wait_until(answered(control, [denied], run_id), between=goes_on)
            put(control, hello(other, run_id))
            wait_until(answered(control, [other], run_id), between=goes_on)
            wait_until(lambda: cursors(control)[other].totals.expired == 3, between=goes_on)
    assert cursors(control)[denied].totals.expired == 0


class Topics:
    """Topics of one partition each, some of them in trouble, instead of an admin client."""

    def __init__(self, **ends: int | Exception | None) -> None:
        self.ends = ends  # None: no leader
        self.asked: list[set[str]] = []
        self.limits_s: list[float] = []

    def within(self, deadline: Deadline) -> Topics:
        self.limits_s.append(deadline.left_s())
        return self

    def without_leader(self, partitions: Collection[Partition]) -> set[Partition]:
        return {one for one in partitions if self.ends[one[0]] is None}

    def existing_ends(self, partitions: Collection[Partition], *, committed: bool) -> dict[Partition, int]:
        assert committed
        self.asked.append({topic for topic, _ in partitions})
        ends = {one: self.ends[one[0]] for one in partitions}
        for end in ends.values():
            if isinstance(end, Exception):
                raise end
        assert None not in ends.values(), "the brokers were asked for what they cannot tell"
        return ends  # type: ignore[return-value]


def looks_at(**ends: int | Exception | None) -> tuple[Topics, Callable[[], tuple[set[str], set[str]]]]:
    """Topics, and a look at them that returns the topics with an end, and those whose end is not known."""
    topics = Topics(**ends)
    found_by = QueueEnds(topics)  # type: ignore[arg-type]

    def look() -> tuple[set[str], set[str]]:
        found, unknown = found_by.look([(topic, 0) for topic in topics.ends])
        assert all(found[topic, 0] == topics.ends[topic] for topic, _ in found)
        return {topic for topic, _ in found}, {topic for topic, _ in unknown}

    return topics, look


def told(caplog: pytest.LogCaptureFixture) -> list[Any]:
    """The topics of which the log has told trouble."""
    lines = [one for one in caplog.records if "event=queue_end_unknown" in one.getMessage()]
    return [one.args[0] for one in lines if isinstance(one.args, tuple)]


def test_only_the_topics_in_trouble_have_no_known_end_and_each_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed, slow = NotAuthorized("b", "describe topic"), KafkaUnavailable("list offsets", 1, "timed out")
    topics, look = looks_at(a=3, b=closed, c=5, d=None, e=slow, f=7)
    with caplog.at_level(logging.WARNING):
        assert look() == ({"a", "c", "f"}, {"b", "d", "e"})
        assert sorted(told(caplog)) == ["b", "d", "e"]
        topics.asked.clear()
        assert look() == ({"a", "c", "f"}, {"b", "d", "e"})
        assert topics.asked == [{"a", "c", "f"}, {"b"}, {"e"}], "trouble is asked for last, and alone"
        assert len(told(caplog)) == 3
        topics.ends |= {"b": 4, "d": 5}
        assert look() == ({"a", "b", "c", "d", "f"}, {"e"})
        topics.ends["b"] = closed
        assert look() == ({"a", "c", "d", "f"}, {"b", "e"})
        assert sorted(told(caplog)) == ["b", "b", "d", "e"]


def test_a_look_ends_after_a_few_seconds_whatever_the_number_of_topics_in_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = KafkaUnavailable("list offsets", 1, "timed out")
    topics, look = looks_at(a=slow, b=slow, c=3)
    look()
    assert max(topics.limits_s) <= queue_ends.ASK_MS / 1000 < queue_ends.LOOK_MS / 1000 < 10
    monkeypatch.setattr(queue_ends, "LOOK_MS", 0)
    topics.asked.clear()
    assert look() == (set(), {"a", "b", "c"}), "no time was left to ask"
    assert topics.asked == []


# ---- markers that are not confirmed


@pytest.mark.broker
def test_an_observation_that_the_brokers_have_not_confirmed_is_written_at_a_later_look(
    control: Control, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topics, cell = ClusterAdmin(control.config), cell_of(control.queue)
    topics.create({control.queue: (1, {})})
    produce(control.config, control.queue, [{"value": b"v"}] * 3)
    options = TrackerOptions.parse(control.options(checkpointLocation="none", messageTtl="1h"))
    cursor = CursorSnapshot(cell=cell, read_position=0, next_marker=0, owner="run")
    cells = TrackedCells({cell: cursor}.get)
    cells.update({cell: cursor})
    limits_s: list[float] = []

    def too_few_replicas(_: MarkerSender, timeout_s: float = 180.0) -> None:
        limits_s.append(timeout_s)
        raise MarkersNotDurable(control.markers, 1, "not enough in-sync replicas")

    with closing(QueueWatch(options, topics, PARTITIONS)) as queues, caplog.at_level(logging.WARNING):
        queues.note({cell: cursor})
        with monkeypatch.context() as patched:
            patched.setattr(MarkerSender, "send", lambda *_: 1)
            patched.setattr(MarkerSender, "flush", too_few_replicas)
            patched.setattr(watch, "AGAIN_MS", 0)
            queues.look(cells, {})
            patched.setattr(watch, "AGAIN_MS", 3_600_000)
            queues.look(cells, {})
            queues.look(cells, {})
            assert len(limits_s) == 2, "a pause follows, because all other work waits for a look"
            assert max(limits_s) < 10
            assert caplog.text.count("event=queue_ends_unwritten") == 1
    with closing(QueueWatch(options, topics, PARTITIONS)) as queues:
        queues.note({cell: cursor})
        with monkeypatch.context() as patched:
            patched.setattr(MarkerSender, "send", lambda *_: 1)
            patched.setattr(MarkerSender, "flush", too_few_replicas)
            patched.setattr(watch, "AGAIN_MS", 0)
            queues.look(cells, {})
        queues.look(cells, {})
    found = read_all(control.config, control.markers)
    written = [marker_wire.decode(one.key(), one.value()) for one in found]
    assert written == [EndOffsetObserved(cell=cell, position=3)]
