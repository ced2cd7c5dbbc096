"""Troubles of the rescue before retention stay with the topic that has them."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourceType,
)

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import Delete, End, Hello, Marker, Start
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.tracker import Tracker
from spark_cursor_source.tracker.rescue_copier import RescueCopier
from spark_cursor_source.wire import marker as marker_wire
from spark_cursor_source.wire.rescue import decode, read_key
from tests.kafka.control_plane import (
    PARTITIONS,
    Control,
    allow_bob,
    bind_bob,
    cell_of,
    login,
    new_control,
    offsets,
    produce,
    read_all,
    set_config,
)
from tests.kafka.raw_headers import produce_with_headers
from tests.kafka.tracker_thread import options_of
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

#: longer than the retention, so that each unacked message is due at once
RESCUE = {"rescueBefore": "300d"}


def rescue_of(control: Control) -> str:
    return f"rescue-{control.name}"


def put(control: Control, *markers: Marker) -> None:
    records = [
        {
            "key": one.cell.key,
            "value": marker_wire.encode(one),
            "partition": one.cell.control_partition(PARTITIONS),
        }
        for one in markers
    ]
    produce(control.config, control.markers, records)


def queue_with(control: Control, topic: str, messages: int, **settings: object) -> Cell:
    """A queue topic with messages that a subscription has not read."""
    week = {"retention.ms": 7 * 86_400_000}
    ClusterAdmin(control.config).create({topic: (1, {**week, **settings})})
    produce(control.config, topic, [{"value": b"%d" % number} for number in range(messages)])
    return cell_of(topic)


def copied(control: Control, topic: str) -> set[int | None]:
    """The offsets of a topic that have a copy."""
    name, found = rescue_of(control), set()
    if name not in ClusterAdmin(control.config).existing([name]):
        return set()
    for record in read_all(control.config, name):
        read = read_key(record.key() or b"")
        assert read is not None
        if read[1].topic == topic:
            (found.discard if record.value() is None else found.add)(read[2])
    return found


def test_a_topic_that_the_tracker_may_not_read_holds_up_no_other_and_is_tried_again(
    guarded_broker: EmbeddedKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers}
    control = new_control(servers | login("admin", "of-admin"))
    admin = AdminClient(control.config)
    denied, other = (queue_with(control, f"{name}-{control.name}", 3) for name in ("a", "b"))
    # To read a topic is not to see its settings.
    rights = {denied.topic: AclOperation.READ, other.topic: AclOperation.ALL}
    allow_bob(control, rights | {rescue_of(control): AclOperation.ALL})
    bob = Control(config=servers | login("bob", "of-bob"), name=control.name)
    options = options_of(bob, tmp_path, rescueTopic=rescue_of(control), **RESCUE)
    with Tracker(options) as tracker, caplog.at_level(logging.WARNING):
        put(control, *(Hello(cell=cell, run_id="run", position=0) for cell in (denied, other)))
        wait_until(lambda: copied(control, other.topic) == {0, 1, 2})
        wait_until(lambda: f"event=rescue_of_topic_failed topic={denied.topic}" in caplog.text)
        assert copied(control, denied.topic) == set()
        missing = (ResourceType.TOPIC, denied.topic, AclOperation.DESCRIBE_CONFIGS)
        bind_bob(admin, *missing, AclPermissionType.ALLOW)
        wait_until(lambda: copied(control, denied.topic) == {0, 1, 2})
        tracker.check()


@pytest.mark.parametrize("place", ["check", "begin"])
def test_an_error_that_nobody_expects_does_not_end_the_rescue(
    control: Control,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    cells = [queue_with(control, f"{name}-{control.name}", 3) for name in ("a", "b")]
    real, failures = getattr(RescueCopier, place), [SystemError("a bug of a library"), ValueError()]

    def failing(copier: RescueCopier, what: Any, *arguments: Any) -> Any:
        if failures and (place == "begin" or what.topic == cells[0].topic):
            raise failures.pop()
        return real(copier, what, *arguments)

    monkeypatch.setattr(RescueCopier, place, failing)
    options = options_of(control, tmp_path, rescueTopic=rescue_of(control), **RESCUE)
    with Tracker(options), caplog.at_level(logging.WARNING):
        put(control, *(Hello(cell=cell, run_id="run", position=0) for cell in cells))
        wait_until(lambda: all(copied(control, cell.topic) == {0, 1, 2} for cell in cells))
    assert "why=ValueError()" in caplog.text
    assert "event=rescue_ended" not in caplog.text


def test_a_message_with_a_header_that_is_not_utf_8_is_copied(control: Control, tmp_path: Path) -> None:
    cell = queue_with(control, control.queue, 1)
    servers = control.config["bootstrap.servers"]
    produce_with_headers(servers, cell.topic, b"1", [(b"caf\xe9", b"open")])
    put(control, Hello(cell=cell, run_id="run", position=0))
    with Tracker(options_of(control, tmp_path, rescueTopic=rescue_of(control), **RESCUE)) as tracker:
        wait_until(lambda: copied(control, cell.topic) == {0, 1}, between=tracker.check)
    records = read_all(control.config, rescue_of(control))
    found = [decode(record.value() or b"").headers for record in records if record.value()]
    assert (("caf\ufffd", b"open"),) in found


def test_a_topic_without_retention_is_not_copied_and_a_tracker_without_the_option_has_no_rescue(
    control: Control, tmp_path: Path
) -> None:
    kept = queue_with(control, f"kept-{control.name}", 3, **{"retention.ms": -1, "retention.bytes": -1})
    compacted = queue_with(control, f"compact-{control.name}", 0, **{"cleanup.policy": "compact"})
    produce(control.config, compacted.topic, [{"key": b"k", "value": b"v"}])
    due = queue_with(control, f"due-{control.name}", 3)
    cells = (kept, compacted, due)
    with Tracker(options_of(control, tmp_path)):
        put(control, *(Hello(cell=cell, run_id="run", position=0) for cell in cells))
        wait_until(lambda: len(read_all(control.config, control.cursors)) >= len(cells))
        assert "cursorq-rescuer" not in {thread.name for thread in threading.enumerate()}
        assert not ClusterAdmin(control.config).existing([rescue_of(control)])
    with Tracker(options_of(control, tmp_path, rescueTopic=rescue_of(control), **RESCUE)):
        wait_until(lambda: copied(control, due.topic) == {0, 1, 2})
        assert copied(control, kept.topic) == copied(control, compacted.topic) == set()


def test_an_acked_message_is_not_copied_and_an_outstanding_one_is(control: Control, tmp_path: Path) -> None:
    # 0 acked, 1 leased, 2 acked, 3 leased, 4 unread
    cell = queue_with(control, control.queue, 5)
    start = Start(cell=cell, offsets=offsets((0, 4)), lease_ms=600_000, delivery_count=1, run_id="run")
    put(control, Hello(cell=cell, run_id="run", position=0), start)
    put(control, End(cell=cell, offsets=offsets((0, 1), (2, 3))))
    with Tracker(options_of(control, tmp_path)):
        wait_until(lambda: len(read_all(control.config, control.cursors)) >= 1)
    with Tracker(options_of(control, tmp_path, rescueTopic=rescue_of(control), **RESCUE)):
        wait_until(lambda: copied(control, cell.topic) == {1, 3, 4})
        put(control, Delete(cell=cell))


def test_a_message_that_is_too_large_is_told_and_its_neighbours_are_copied(
    control: Control, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ClusterAdmin(control.config).ensure_rescue(rescue_of(control))
    set_config(AdminClient(control.config), rescue_of(control), "max.message.bytes", "2000")
    cell = queue_with(control, control.queue, 2)
    produce(control.config, cell.topic, [{"value": b"x" * 5_000}, {"value": b"3"}])
    put(control, Hello(cell=cell, run_id="run", position=0))
    with (
        Tracker(options_of(control, tmp_path, rescueTopic=rescue_of(control), **RESCUE)),
        caplog.at_level(logging.ERROR),
    ):
        wait_until(lambda: "event=message_too_large_to_rescue" in caplog.text)
        wait_until(lambda: copied(control, cell.topic) >= {0, 1, 3})
        assert 2 not in copied(control, cell.topic)


@pytest.mark.parametrize("ahead_s", [400 * 86_400, -400 * 86_400], ids=["ahead", "behind"])
def test_the_clock_of_the_tracker_does_not_decide_when_a_message_is_copied(
    control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    week_ms = 7 * 86_400_000
    young = queue_with(control, f"a-{control.name}", 2)
    due = queue_with(control, f"b-{control.name}", 0, **{"retention.ms": -1})
    old_ms = int(time.time() * 1000) - week_ms + 3_600_000
    produce(control.config, due.topic, [{"value": b"old", "timestamp": old_ms}, {"value": b"new"}])
    set_config(AdminClient(control.config), due.topic, "retention.ms", str(week_ms))
    with Tracker(options_of(control, tmp_path)):
        put(control, *(Hello(cell=cell, run_id="run", position=0) for cell in (young, due)))
        wait_until(lambda: len(read_all(control.config, control.cursors)) >= 2)
    # The markers topic is quiet from here on, so that this tracker has to ask for the brokers' time.
    wall = time.time
    monkeypatch.setattr(time, "time", lambda: wall() + ahead_s)
    rescue = {"rescueTopic": rescue_of(control), "rescueBefore": "1d"}
    with Tracker(options_of(control, tmp_path, **rescue)):
        wait_until(lambda: copied(control, due.topic) >= {0})
        assert copied(control, due.topic) == {0}
        assert copied(control, young.topic) == set()
