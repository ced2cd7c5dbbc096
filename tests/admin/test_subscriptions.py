"""Subscriptions are created, moved and deleted by a tracker that is at work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_cursor_source.admin import tracker_channel
from spark_cursor_source.admin.audit import read_audit
from spark_cursor_source.admin.breaker import close_breaker
from spark_cursor_source.admin.limits import Limited, limit_subscription
from spark_cursor_source.admin.past_cursors import cursors_at
from spark_cursor_source.admin.pause import Resumed, pause_subscription, resume_subscription
from spark_cursor_source.admin.subscriptions import (
    EARLIEST,
    LATEST,
    Position,
    Subscriptions,
    at_offsets,
    at_time,
)
from spark_cursor_source.admin.tracker_channel import TrackerChannel
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import End, EndUpTo, Hello, KeepAlive, Seek, Start
from spark_cursor_source.core.offsets import EMPTY
from spark_cursor_source.errors import (
    CommandWaits,
    InvalidArgument,
    KafkaUnavailable,
    PastNotKept,
    SnapshotNotTaken,
    SubscriptionExists,
    SubscriptionHasConsumers,
    TooManySnapshots,
    TopicNotFound,
    TrackerBehind,
    UnknownSnapshot,
    UnknownSubscription,
)
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.tracker_progress import read_progress
from spark_cursor_source.wire import marker as marker_wire
from tests.kafka.control_plane import Control, cell_of, offsets, produce, read_all
from tests.kafka.tracker_thread import running_tracker
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

FIRST_MS = 1_700_000_000_000
Send = Callable[..., None]


@pytest.fixture
def tracked(control: Control, tmp_path: Path) -> Iterator[Control]:
    """Control topics with a tracker, and a queue of two partitions with ten messages each, a second apart."""
    ClusterAdmin(control.config).create({control.queue: (2, {})})
    records = [
        {"partition": number, "value": b"%d" % at, "timestamp": FIRST_MS + 1_000 * at}
        for number in range(2)
        for at in range(10)
    ]
    produce(control.config, control.queue, records)
    with running_tracker(control, tmp_path / "tracker"):
        yield control


@pytest.fixture
def subscriptions(tracked: Control) -> Iterator[Subscriptions]:
    with open_subscriptions(tracked) as opened:
        yield opened


@pytest.fixture
def send(control: Control) -> Iterator[Send]:
    """``send(marker, ...)``: what queries write, and the tracker has read when it returns."""
    talk = TrackerChannel(
        control.config,
        ClusterAdmin(control.config),
        **control.topics,
        timeout_ms=60_000,
    )
    yield lambda *markers: talk.tell(markers)
    talk.close()


def open_subscriptions(control: Control, *, tracker_timeout_ms: int = 60_000) -> Subscriptions:
    return Subscriptions(
        control.config,
        **control.topics,
        **control.groups,
        tracker_timeout_ms=tracker_timeout_ms,
    )


def cursors(control: Control) -> dict[Cell, CursorSnapshot]:
    tail = CursorTable(control.config, control.cursors)
    tail.refresh()
    found = tail.all()
    tail.close()
    return found


def committed(control: Control, subscription: str = "billing") -> dict[int, int]:
    partitions = [(control.queue, number) for number in range(2)]
    found = ClusterAdmin(control.config).committed(control.group(subscription), partitions)
    return {number: at for (_, number), at in found.items()}


def test_a_name_that_is_missing_stands_for_no_subscription_and_no_topic(
    subscriptions: Subscriptions, tracked: Control
) -> None:
    # As a name from a variable that is not set. It must not stand for all subscriptions, or all topics.
    for name in ("billing", "mailer"):
        subscriptions.create(name, tracked.queue, EARLIEST)
    before = cursors(tracked)
    missing: Any = None
    kafka, topics = tracked.config, tracked.topics
    calls: list[tuple[str, Callable[[], object]]] = [
        ("subscription", lambda: subscriptions.delete(missing)),
        ("subscription", lambda: subscriptions.skip_all(missing, tracked.queue)),
        ("subscription", lambda: subscriptions.skip(missing, tracked.queue, 1)),
        ("subscription", lambda: subscriptions.seek(missing, tracked.queue, LATEST)),
        ("subscription", lambda: subscriptions.create(missing, tracked.queue, LATEST)),
        ("subscription", lambda: subscriptions.expire(missing, tracked.queue, before_ms=2 * FIRST_MS)),
        ("subscription", lambda: subscriptions.snapshots(missing)),
        ("subscription", lambda: pause_subscription(kafka, missing, **topics)),
        ("subscription", lambda: resume_subscription(kafka, missing, **topics)),
        ("subscription", lambda: limit_subscription(kafka, missing, rate=1, **topics)),
        ("subscription", lambda: close_breaker(kafka, missing, **topics)),
        ("topic", lambda: subscriptions.skip_all("billing", missing)),
        ("topic", lambda: subscriptions.expire("billing", missing, before_ms=2 * FIRST_MS)),
        ("topic", lambda: subscriptions.create("third", missing, LATEST)),
    ]
    for argument, call in calls:
        with pytest.raises(InvalidArgument, match=f"^The argument {argument}=None is invalid: "):
            call()
    assert cursors(tracked) == before
    rate: Any = "fast"
    with pytest.raises(InvalidArgument, match=r"^The argument rate='fast' is invalid: it is not a number"):
        limit_subscription(kafka, "billing", rate=rate, **topics)
    with pytest.raises(InvalidArgument, match=r"^The argument max_outstanding='fast' is invalid: .* whole"):
        limit_subscription(kafka, "billing", max_outstanding=rate, **topics)


def start(cell: Cell, *span: int, run: str = "run") -> Start:
    return Start(
        cell=cell, offsets=offsets((span[0], span[1])), lease_ms=60_000, delivery_count=1, run_id=run
    )


def hello(cell: Cell, *, run: str = "run", position: int = 0) -> Hello:
    return Hello(cell=cell, run_id=run, position=position)


# ---- create


def test_a_subscription_is_created_at_a_position(tracked: Control, subscriptions: Subscriptions) -> None:
    queue = tracked.queue
    begins: dict[str, tuple[Position, dict[int, int]]] = {
        "earliest": (EARLIEST, {0: 0, 1: 0}),
        "latest": (LATEST, {0: 10, 1: 10}),
        "by-time": (at_time(FIRST_MS + 3_500), {0: 4, 1: 4}),
        "by-offset": (at_offsets(queue, {0: 7}), {0: 7, 1: 0}),
    }
    for name, (at, positions) in begins.items():
        assert subscriptions.create(name, queue, at) == positions, name
    found = cursors(tracked)
    for name, (_, positions) in begins.items():
        cells = {number: found[cell_of(queue, number, name)] for number in range(2)}
        assert {number: cursor.read_position for number, cursor in cells.items()} == positions
        assert all(cursor.sought and cursor.owner is None for cursor in cells.values())
        assert committed(tracked, name) == positions
        with pytest.raises(SubscriptionExists, match=f"'{name}' of topic '{queue}' exists already. Use seek"):
            subscriptions.create(name, queue, LATEST)


def test_what_cannot_be_created_is_refused_before_anything_is_written(
    tracked: Control, subscriptions: Subscriptions
) -> None:
    with pytest.raises(InvalidArgument, match="subscription="):
        subscriptions.create("a,b", tracked.queue, LATEST)
    with pytest.raises(InvalidArgument, match="its dead letters"):
        subscriptions.create("s" * 240, tracked.queue, LATEST)
    with pytest.raises(TopicNotFound, match="nowhere"):
        subscriptions.create("billing", "nowhere", LATEST)
    with pytest.raises(InvalidArgument, match="no such partition"):
        subscriptions.create("billing", tracked.queue, at_offsets(tracked.queue, {2: 0}))
    with pytest.raises(InvalidArgument, match="no such partition"):
        subscriptions.create("billing", tracked.queue, at_offsets("another", {0: 0}))
    assert (cursors(tracked), committed(tracked)) == ({}, {})


def test_without_a_tracker_it_is_said_so_and_done_as_soon_as_one_runs(
    control: Control, tmp_path: Path
) -> None:
    ClusterAdmin(control.config).create({control.queue: (2, {})})
    with (
        open_subscriptions(control, tracker_timeout_ms=200) as subscriptions,
        pytest.raises(CommandWaits, match=r"for 2 queue partitions in 0 s\. It takes effect when"),
    ):
        subscriptions.create("billing", control.queue, EARLIEST)
    assert committed(control) == {0: 0, 1: 0}
    with running_tracker(control, tmp_path / "tracker"):
        wait_until(lambda: len(cursors(control)) == 2)


@pytest.mark.parametrize(
    "why", [KafkaUnavailable("describe group", 30_000, "timed out"), KeyboardInterrupt()]
)
def test_an_operator_who_gets_no_answer_is_told_that_the_command_is_stored(
    control: Control, why: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(*_: object, **__: object) -> NoReturn:
        raise why

    ClusterAdmin(control.config).create({control.queue: (1, {})})
    monkeypatch.setattr(tracker_channel, "reads_all_about", no_answer)
    with open_subscriptions(control) as subscriptions, pytest.raises(BaseException) as ended:
        subscriptions.create("billing", control.queue, EARLIEST)
    assert ended.type is (CommandWaits if isinstance(why, KafkaUnavailable) else KeyboardInterrupt)
    told = " ".join([str(ended.value), *getattr(ended.value, "__notes__", [])])
    assert f"is stored in markers topic '{control.markers}'" in told
    assert "do not repeat it" in told
    (stored,) = read_all(control.config, control.markers)
    assert isinstance(marker_wire.decode(stored.key(), stored.value()), Seek)


# ---- seek


def test_a_seek_forgets_what_is_outstanding_and_keeps_late_markers_of_the_run_before_out(
    tracked: Control, subscriptions: Subscriptions, send: Send
) -> None:
    cell = cell_of(tracked.queue)
    send(hello(cell), start(cell, 0, 8), End(cell=cell, offsets=offsets((2, 4))))
    assert subscriptions.seek("billing", tracked.queue, at_offsets(tracked.queue, {0: 3})) == {0: 3}
    send(start(cell, 8, 10), EndUpTo(cell=cell, position=10, run_id="run"), hello(cell, run="next"))
    assert subscriptions.seek("billing", tracked.queue, at_time(FIRST_MS + 8_500)) == {0: 9, 1: 9}
    found = cursors(tracked)
    assert {one.partition: found[one].read_position for one in found} == {0: 9, 1: 9}
    assert (found[cell].outstanding, found[cell].owner) == (EMPTY, None)
    assert found[cell].totals.overlapped == 2
    assert committed(tracked) == {0: 9, 1: 9}
    assert subscriptions.seek("billing", tracked.queue, EARLIEST) == {0: 0, 1: 0}
    beyond = at_offsets(tracked.queue, {1: 999})
    assert subscriptions.seek("billing", tracked.queue, beyond) == {1: 10}, "the end of the log"


def test_what_is_not_there_is_told_apart_from_what_is(
    tracked: Control, subscriptions: Subscriptions, send: Send
) -> None:
    subscriptions.create("billing", tracked.queue, EARLIEST)
    with pytest.raises(UnknownSubscription, match=r"'biling' of topic .*. Its subscriptions are: billing"):
        subscriptions.seek("biling", tracked.queue, EARLIEST)
    with pytest.raises(UnknownSubscription):
        subscriptions.skip("biling", tracked.queue, 1)
    with pytest.raises(UnknownSubscription):
        subscriptions.skip_all("biling", tracked.queue)
    with pytest.raises(UnknownSubscription, match="Its subscriptions are: billing"):
        subscriptions.delete("biling")
    with pytest.raises(InvalidArgument, match="partition=7"):
        subscriptions.skip("billing", tracked.queue, 1, partition=7)
    with pytest.raises(InvalidArgument, match="messages=0"):
        subscriptions.skip("billing", tracked.queue, 0)
    with pytest.raises(InvalidArgument, match="messages=0"):
        subscriptions.preview_skip("billing", tracked.queue, 0)


# ---- skip


def test_messages_are_skipped_from_the_oldest_on_whether_they_are_outstanding_or_unread(
    tracked: Control, subscriptions: Subscriptions, send: Send
) -> None:
    first, second = cell_of(tracked.queue, 0), cell_of(tracked.queue, 1)
    send(hello(first), start(first, 0, 6), End(cell=first, offsets=offsets((1, 3))), hello(second))
    assert subscriptions.skip("billing", tracked.queue, 2, partition=0) == {0: 4}
    found = cursors(tracked)
    assert (found[first].outstanding, found[first].read_position) == (offsets((4, 6)), 6)
    assert (found[first].owner, found[first].sought) == ("run", False), "the query goes on"
    assert subscriptions.skip("billing", tracked.queue, 3) == {0: 7, 1: 3}
    found = cursors(tracked)
    assert (found[first].outstanding, found[first].read_position) == (EMPTY, 7)
    assert (found[second].read_position, found[second].totals.acked) == (3, 0)
    assert subscriptions.skip("billing", tracked.queue, 99) == {0: 10, 1: 10}
    assert committed(tracked) == {0: 10, 1: 10}


def test_messages_that_are_older_than_a_time_are_expired(
    tracked: Control, subscriptions: Subscriptions, send: Send
) -> None:
    first, second = cell_of(tracked.queue, 0), cell_of(tracked.queue, 1)
    send(hello(first), start(first, 0, 6), End(cell=first, offsets=offsets((1, 3))), hello(second))
    before = {"before_ms": FIRST_MS + 4_000}
    preview = subscriptions.preview_expire("billing", tracked.queue, **before)
    assert [(one.partition, one.position, one.dropped) for one in preview] == [(0, 4, 2), (1, 4, 4)]
    assert subscriptions.expire("billing", tracked.queue, partition=0, **before) == {0: 4}
    assert subscriptions.expire("billing", tracked.queue, **before) == {1: 4}, "0 has nothing older now"
    found = cursors(tracked)
    assert (found[first].outstanding, found[first].read_position) == (offsets((4, 6)), 6)
    assert (found[second].outstanding, found[second].read_position) == (EMPTY, 4)
    assert subscriptions.expire("billing", tracked.queue, before_ms=FIRST_MS) == {}
    assert subscriptions.expire("billing", tracked.queue, before_ms=2 * FIRST_MS) == {0: 10, 1: 10}
    assert committed(tracked) == {0: 10, 1: 10}
    assert (subscriptions.latest_marker_ms() or 0) > FIRST_MS, "by the brokers' clock"


def test_a_skip_that_is_done_is_no_error_if_the_offsets_of_the_group_cannot_be_committed(
    subscriptions: Subscriptions,
    tracked: Control,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Who repeated the call because of an error would skip three more messages.
    subscriptions.create("billing", tracked.queue, EARLIEST)

    def no_answer(*_: object) -> NoReturn:
        raise KafkaUnavailable("commit offsets", 10_000, "no answer")

    monkeypatch.setattr(ClusterAdmin, "commit", no_answer)
    with caplog.at_level("WARNING"):
        assert subscriptions.skip("billing", tracked.queue, 3) == {0: 3, 1: 3}
    assert "event=skip_not_committed subscription=billing why=Kafka did not answer" in caplog.text
    assert {one.mark_delete for one in cursors(tracked).values()} == {2}
    assert committed(tracked) == {0: 0, 1: 0}


def test_messages_are_skipped_up_to_given_positions(
    tracked: Control, subscriptions: Subscriptions, send: Send
) -> None:
    first = cell_of(tracked.queue, 0)
    send(hello(first), start(first, 0, 6))
    with pytest.raises(InvalidArgument, match="partition=1"):
        subscriptions.skip_to("billing", tracked.queue, {0: 4, 1: 4})
    for _ in range(2):
        assert subscriptions.skip_to("billing", tracked.queue, {0: 4}) == {0: 4}
        assert cursors(tracked)[first].outstanding == offsets((4, 6))
    assert subscriptions.skip_to("billing", tracked.queue, {0: 99}) == {0: 10}, "what comes later is read"
    assert committed(tracked)[0] == 10


def test_all_messages_that_there_are_can_be_skipped_at_once(
    tracked: Control, subscriptions: Subscriptions, send: Send
) -> None:
    first, second = cell_of(tracked.queue, 0), cell_of(tracked.queue, 1)
    send(hello(first), start(first, 0, 6), hello(second))
    assert subscriptions.skip_all("billing", tracked.queue) == {0: 10, 1: 10}
    assert all(cursor.mark_delete == 9 for cursor in cursors(tracked).values())


# ---- delete


def test_nothing_is_left_of_a_deleted_subscription_whatever_its_last_run_still_writes(
    tracked: Control, subscriptions: Subscriptions, send: Send
) -> None:
    cell, other = cell_of(tracked.queue), cell_of(tracked.queue, subscription="shipping")
    subscriptions.create("billing", tracked.queue, EARLIEST)
    send(hello(cell), start(cell, 0, 6), hello(other), start(other, 0, 6))
    assert subscriptions.delete("billing")
    assert (list(cursors(tracked)), committed(tracked)) == ([other], {})
    late = KeepAlive(cell=cell, offsets=offsets((0, 6)), lease_ms=60_000, run_id="run")
    send(start(cell, 6, 9), late, End(cell=cell, offsets=offsets((0, 6))))
    assert list(cursors(tracked)) == [other]
    with pytest.raises(UnknownSubscription):
        subscriptions.delete("billing")
    assert subscriptions.create("billing", tracked.queue, LATEST) == {0: 10, 1: 10}
    send(hello(cell, run="next"), start(cell, 10, 12, run="next"))
    assert subscriptions.skip("billing", tracked.queue, 1, partition=0) == {0: 11}


def test_a_deletion_outlives_a_restart_of_the_tracker_and_one_that_has_nothing_but_the_cursors(
    control: Control, send: Send, tmp_path: Path
) -> None:
    ClusterAdmin(control.config).create({control.queue: (1, {})})
    cell, other = cell_of(control.queue), cell_of(control.queue, subscription="shipping")
    with open_subscriptions(control) as subscriptions:
        with running_tracker(control, tmp_path / "one"):
            subscriptions.create("billing", control.queue, EARLIEST)
            subscriptions.create("shipping", control.queue, EARLIEST)
            send(hello(cell), start(cell, 0, 6))
            subscriptions.delete("billing")
        with running_tracker(control, tmp_path / "one"):
            send(start(cell, 6, 9))
            assert list(cursors(control)) == [other]
        with running_tracker(control, tmp_path / "another", takeOver="true"):
            send(start(cell, 9, 12))
            assert list(cursors(control)) == [other]
            send(hello(cell, run="next", position=12))
            assert list(cursors(control)) == [cell, other]
        # Rebuilt from the cursors, with the deletion yet to be read.
        hasty = open_subscriptions(control, tracker_timeout_ms=100)
        with hasty, pytest.raises(CommandWaits):
            hasty.delete("billing")
        with running_tracker(control, tmp_path / "third", takeOver="true"):
            send(start(cell, 12, 15))
            assert list(cursors(control)) == [other]


def test_a_subscription_with_consumers_is_deleted_by_force_only(
    tracked: Control, subscriptions: Subscriptions
) -> None:
    subscriptions.create("billing", tracked.queue, EARLIEST)
    member = Consumer({**tracked.config, "group.id": tracked.group("billing"), "client.id": "the holder"})
    member.subscribe([tracked.queue])
    wait_until(lambda: member.poll(0.1) is not None or bool(member.assignment()))
    with pytest.raises(SubscriptionHasConsumers, match="the holder"):
        subscriptions.delete("billing")
    assert len(cursors(tracked)) == 2
    assert not subscriptions.delete("billing", force=True), "the group is its member's"
    assert cursors(tracked) == {}
    member.close()
    assert subscriptions.delete("billing"), "what is left of it is the group"


def test_a_subscription_whose_group_is_the_trackers_is_refused(tracked: Control) -> None:
    queue, name = tracked.queue, f"tracker-{tracked.markers}"
    with Subscriptions(tracked.config, **tracked.topics) as subscriptions:
        subscriptions.create("billing", queue, EARLIEST)
        refused = {"match": r"^The argument subscription=.* which the tracker of this markers topic uses"}
        with pytest.raises(InvalidArgument, **refused):
            subscriptions.delete(name, force=True)
        with pytest.raises(InvalidArgument, **refused):
            subscriptions.create(name, queue, EARLIEST)
        with pytest.raises(InvalidArgument, **refused):
            subscriptions.clone("billing", queue, name)
    assert read_progress(ClusterAdmin(tracked.config), tracked.markers).query_id


# ---- snapshots

State = dict[Cell, tuple[object, int]]


def half_done(queue: str, send: Send) -> tuple[Cell, Cell]:
    """Cells of two partitions: of one, six messages are leased and two acked; the other is not read."""
    first, second = cell_of(queue, 0), cell_of(queue, 1)
    send(hello(first), start(first, 0, 6), End(cell=first, offsets=offsets((1, 3))), hello(second))
    return first, second


def state_of(found: Iterable[CursorSnapshot]) -> State:
    """Outstanding offsets and read position of each cell."""
    return {one.cell: (one.outstanding, one.read_position) for one in found}


def test_a_snapshot_brings_the_acks_of_each_message_back(
    tracked: Control, subscriptions: Subscriptions, send: Send
) -> None:
    queue = tracked.queue
    first, second = half_done(queue, send)
    assert subscriptions.snapshot("billing", queue, "before release 7") == {0: 6, 1: 0}
    send(End(cell=first, offsets=offsets((0, 6))), start(second, 0, 4), EndUpTo(cell=second, position=4))
    (saved,) = subscriptions.snapshots("billing", queue)
    assert (saved.name, saved.positions, saved.outstanding) == ("before release 7", {0: 6, 1: 0}, 4)
    preview = subscriptions.preview_restore("billing", queue, "before release 7")
    assert [(one.partition, one.position, one.again, one.dropped) for one in preview] == [
        (0, 6, 4, 0),
        (1, 0, 4, 0),
    ]
    assert subscriptions.restore("billing", queue, "before release 7") == {0: 6, 1: 0}
    found = cursors(tracked)
    assert (found[first].outstanding, found[first].read_position) == (offsets((0, 1), (3, 6)), 6)
    assert (found[second].outstanding, found[second].read_position) == (EMPTY, 0)
    assert committed(tracked) == {0: 6, 1: 0}
    assert subscriptions.undo("billing", queue) == {0: 6, 1: 4}
    assert not any(cursor.outstanding for cursor in cursors(tracked).values())
    subscriptions.forget_snapshot("billing", queue, "before release 7")
    with pytest.raises(UnknownSnapshot, match=r"no snapshot 'before release 7'\. Its snapshots are: undo\.$"):
        subscriptions.restore("billing", queue, "before release 7")


def test_messages_that_retention_has_removed_do_not_come_back(
    tracked: Control, subscriptions: Subscriptions, send: Send
) -> None:
    queue = tracked.queue
    first, _second = half_done(queue, send)
    subscriptions.snapshot("billing", queue, "then")
    send(End(cell=first, offsets=offsets((0, 6))))
    admin = AdminClient({"bootstrap.servers": tracked.config["bootstrap.servers"]})
    removed = [TopicPartition(queue, 0, 4), TopicPartition(queue, 1, 3)]
    for done in admin.delete_records(removed).values():
        done.result()
    assert subscriptions.clone("billing", queue, "staging", snapshot="then") == {0: 6, 1: 3}
    assert subscriptions.restore("billing", queue, "then") == {0: 6, 1: 3}
    for name in ("billing", "staging"):
        found = [cursors(tracked)[cell_of(queue, number, name)] for number in (0, 1)]
        assert [one.outstanding for one in found] == [offsets((4, 6)), EMPTY], name
        assert [one.read_position for one in found] == [6, 3], name


def test_a_seek_a_skip_and_an_expiry_can_be_undone(
    tracked: Control, subscriptions: Subscriptions, send: Send
) -> None:
    queue = tracked.queue
    _first, _second = half_done(queue, send)
    before = state_of(cursors(tracked).values())
    moves: list[Callable[[], object]] = [
        lambda: subscriptions.seek("billing", queue, EARLIEST),
        lambda: subscriptions.skip_all("billing", queue),
        lambda: subscriptions.skip("billing", queue, 2),
        lambda: subscriptions.expire("billing", queue, before_ms=FIRST_MS + 4_000),
    ]
    for move in moves:
        move()
        changed = state_of(cursors(tracked).values())
        assert changed != before
        subscriptions.undo("billing", queue)
        after = state_of(cursors(tracked).values())
        assert after == before
    servers = {"bootstrap.servers": tracked.config["bootstrap.servers"]}
    told = [entry.action for entry in read_audit(servers, markers_topic=tracked.markers)]
    assert told[::-1][:4] == ["seek", "undo", "skip all messages", "undo"]
    assert told.count("undo") == 4


def test_a_seek_of_a_partition_without_a_cursor_is_foretold_and_can_be_undone(
    tracked: Control, subscriptions: Subscriptions, send: Send
) -> None:
    queue = tracked.queue
    first, second = cell_of(queue, 0), cell_of(queue, 1)
    send(hello(first))
    foretold = subscriptions.preview_seek("billing", queue, LATEST)
    assert [(one.partition, one.position_before, one.dropped) for one in foretold] == [(0, 0, 10), (1, 0, 10)]
    assert subscriptions.seek("billing", queue, LATEST) == {0: 10, 1: 10}
    assert subscriptions.undo("billing", queue) == {0: 0, 1: 0}
    assert {cell: one.read_position for cell, one in cursors(tracked).items()} == {first: 0, second: 0}
    undone, sought = read_audit(tracked.config, markers_topic=tracked.markers)
    assert (undone.action, sought.action, sought.positions) == ("undo", "seek", (10, 10))


def test_a_partition_without_a_cursor_is_moved_from_the_offset_that_its_group_has_committed(
    tracked: Control, subscriptions: Subscriptions, send: Send
) -> None:
    queue, to_earliest = tracked.queue, ("billing", tracked.queue, EARLIEST)
    send(hello(cell_of(queue, 0), position=10))
    ClusterAdmin(tracked.config).commit(tracked.group("billing"), {(queue, 1): 4})
    assert [one.again for one in subscriptions.preview_seek(*to_earliest)] == [10, 4]
    assert [one.dropped for one in subscriptions.preview_seek("billing", queue, LATEST)] == [0, 6]
    subscriptions.seek(*to_earliest)
    assert subscriptions.undo("billing", queue) == {0: 10, 1: 4}


def test_a_move_that_is_repeated_while_no_tracker_runs_can_be_undone(
    control: Control, tmp_path: Path
) -> None:
    ClusterAdmin(control.config).create({control.queue: (1, {})})
    produce(control.config, control.queue, [{"value": b"v"}] * 10)
    cell, where = cell_of(control.queue, 0), ("billing", control.queue)
    with open_subscriptions(control) as subscriptions:
        with running_tracker(control, tmp_path / "tracker"):
            subscriptions.create(*where, EARLIEST)
        with open_subscriptions(control, tracker_timeout_ms=100) as hasty:
            for move in (hasty.skip_all, hasty.skip_all):
                with pytest.raises(CommandWaits, match="do not repeat it"):
                    move(*where)
        with running_tracker(control, tmp_path / "tracker"):
            wait_until(lambda: cursors(control)[cell].read_position == 10)
            assert subscriptions.undo(*where) == {0: 0}
            assert cursors(control)[cell].read_position == 0
        with open_subscriptions(control, tracker_timeout_ms=100) as hasty:
            for undo in (hasty.undo, hasty.undo):
                with pytest.raises(CommandWaits):
                    undo(*where)
        with running_tracker(control, tmp_path / "tracker"):
            subscriptions.snapshot(*where, "behind both")
            assert cursors(control)[cell].read_position == 10


def test_what_an_operator_takes_back_while_no_tracker_runs_does_not_happen(
    control: Control, tmp_path: Path
) -> None:
    ClusterAdmin(control.config).create({control.queue: (1, {})})
    cell = cell_of(control.queue, 0)
    names = control.topics
    with running_tracker(control, tmp_path / "tracker"), open_subscriptions(control) as subscriptions:
        subscriptions.create("billing", control.queue, EARLIEST)
    with pytest.raises(CommandWaits):
        pause_subscription(control.config, "billing", tracker_timeout_ms=100, **names)
    assert resume_subscription(control.config, "billing", **names) == Resumed(0, 0, 0, unread=1)
    with open_subscriptions(control, tracker_timeout_ms=100) as hasty:
        with pytest.raises(CommandWaits):
            hasty.create("shipping", control.queue, EARLIEST)
        with pytest.raises(TrackerBehind, match=r"Nothing was changed\. Start a tracker .* repeat"):
            hasty.delete("shipping")
        assert committed(control, "shipping") == {0: 0}
    with running_tracker(control, tmp_path / "tracker"), open_subscriptions(control) as subscriptions:
        assert subscriptions.delete("shipping")
        found = cursors(control)
    assert (list(found), found[cell].paused_ms) == ([cell], None)


def test_a_limit_that_stays_as_it_is_may_be_one_that_still_waits(control: Control, tmp_path: Path) -> None:
    ClusterAdmin(control.config).create({control.queue: (1, {})})
    names = control.topics
    with running_tracker(control, tmp_path / "tracker"), open_subscriptions(control) as subscriptions:
        subscriptions.create("billing", control.queue, EARLIEST)
    hasty = {"tracker_timeout_ms": 100, **names}
    with pytest.raises(CommandWaits):
        limit_subscription(control.config, "billing", rate=9, **hasty)
    with pytest.raises(TrackerBehind):
        limit_subscription(control.config, "billing", max_outstanding=6, **hasty)
    with pytest.raises(CommandWaits):
        limit_subscription(control.config, "billing", rate=8, max_outstanding=5, **hasty)
    with running_tracker(control, tmp_path / "tracker"):
        done = limit_subscription(control.config, "billing", max_outstanding=6, **names)
        assert done == Limited(rate=8.0, max_outstanding=6, partitions=1)


def test_an_undo_returns_the_partitions_that_the_last_move_changed(
    tracked: Control, subscriptions: Subscriptions
) -> None:
    where = ("billing", tracked.queue)
    subscriptions.create(*where, EARLIEST)
    subscriptions.skip_all(*where)
    subscriptions.seek(*where, at_offsets(tracked.queue, {0: 5}))
    subscriptions.skip_all(*where)
    subscriptions.skip_all(*where)
    (undo,) = subscriptions.snapshots(*where)
    assert (undo.name, undo.positions) == ("undo", {0: 5}), "the last one has changed nothing"
    assert subscriptions.undo(*where) == {0: 5}
    assert {one.read_position for one in cursors(tracked).values()} == {5, 10}


def test_a_subscription_that_was_never_moved_has_nothing_to_undo(
    tracked: Control, subscriptions: Subscriptions
) -> None:
    subscriptions.create("billing", tracked.queue, LATEST)
    with pytest.raises(UnknownSnapshot, match="nothing to undo: no seek"):
        subscriptions.undo("billing", tracked.queue)


def test_a_clone_has_the_acks_of_its_original_or_of_a_snapshot(
    tracked: Control, subscriptions: Subscriptions, send: Send
) -> None:
    queue = tracked.queue
    first, _second = half_done(queue, send)
    subscriptions.snapshot("billing", queue, "then")
    send(End(cell=first, offsets=offsets((0, 5))))
    assert subscriptions.clone("billing", queue, "staging") == {0: 6, 1: 0}
    assert subscriptions.clone("billing", queue, "earlier", snapshot="then") == {0: 6, 1: 0}
    found = cursors(tracked)
    assert found[cell_of(queue, 0, "staging")].outstanding == offsets((5, 6))
    assert found[cell_of(queue, 0, "earlier")].outstanding == offsets((0, 1), (3, 6))
    assert committed(tracked, "staging") == {0: 6, 1: 0}
    assert found[first].outstanding == offsets((5, 6)), "the original is as it was"
    with pytest.raises(SubscriptionExists):
        subscriptions.clone("billing", queue, "staging")
    with pytest.raises(UnknownSnapshot):
        subscriptions.clone("billing", queue, "another", snapshot="never")


def test_snapshots_that_cannot_be_taken_are_refused(
    tracked: Control, subscriptions: Subscriptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = tracked.queue
    subscriptions.create("billing", queue, LATEST)
    for name in ("", "undo", "x" * 101, "a\nb"):
        with pytest.raises(InvalidArgument, match=r"^The argument name="):
            subscriptions.snapshot("billing", queue, name)
    for number in range(8):
        subscriptions.snapshot("billing", queue, f"{number}")
    subscriptions.snapshot("billing", queue, "3")
    with pytest.raises(TooManySnapshots, match=r"has 8 snapshots already.* Forget one of them: 0, 1, 2, "):
        subscriptions.snapshot("billing", queue, "8")
    monkeypatch.setattr(TrackerChannel, "tell", lambda self, markers, *, what: {})
    with pytest.raises(SnapshotNotTaken, match="Update the tracker"):
        subscriptions.snapshot("billing", queue, "7")


def test_cursors_of_a_past_time_are_the_snapshot_before_it_and_the_markers_since(
    tracked: Control, subscriptions: Subscriptions, send: Send
) -> None:
    queue = tracked.queue
    first, second = cell_of(queue, 0), cell_of(queue, 1)

    def now() -> tuple[int, State]:
        at_ms = subscriptions.latest_marker_ms()
        assert at_ms is not None
        time.sleep(0.02)  # the next marker has a later time
        return at_ms, state_of(cursors(tracked).values())

    def at(at_ms: int) -> State:
        return state_of(cursors_at(tracked.config, tracked.markers, cursors(tracked).values(), at_ms))

    send(hello(first))
    moments = [now()]
    send(start(first, 0, 6), End(cell=first, offsets=offsets((1, 3))), hello(second))
    moments.append(now())
    subscriptions.snapshot("billing", queue, "then")
    send(start(second, 0, 4), End(cell=second, offsets=offsets((0, 2))))
    moments.append(now())
    subscriptions.seek("billing", queue, LATEST)
    moments.append(now())
    for at_ms, expected in moments:
        assert at(at_ms) == expected
    assert at(moments[0][0] - 60_000) == {}, "no cell was there"
    admin = AdminClient({"bootstrap.servers": tracked.config["bootstrap.servers"]})
    number = cursors(tracked)[first].markers_partition
    end = cursors(tracked)[first].saved[0].next_marker
    admin.delete_records([TopicPartition(tracked.markers, number, end)])
    wait_until(lambda: _begins_at(tracked, number) == end, "the markers are deleted")
    assert at(moments[2][0])[first] == moments[2][1][first]
    with pytest.raises(PastNotKept, match="there is no snapshot from before"):
        at(moments[1][0])


def _begins_at(tracked: Control, number: int) -> int:
    place = (tracked.markers, number)
    return ClusterAdmin(tracked.config).beginning_offsets([place])[place]
