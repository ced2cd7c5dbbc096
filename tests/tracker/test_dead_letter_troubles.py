"""Dead letters that cannot be written are held with the reason, and hold up nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient

from spark_cursor_source.core.cell import Cell, control_partition
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import CloseBreaker, Hello, Reject, Release, Start, Withhold
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.rescue import RescuePlace
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import CopiesNotDurable, KafkaUnavailable
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.copies import MessageCopier
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.dead_letters import read_letter
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.topics.rescue import Rescue
from spark_cursor_source.topics.retry_pauses import Place, RetryPauses, withholding
from spark_cursor_source.tracker.outbox import Outbox
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import marker as marker_wire
from spark_cursor_source.wire import redelivery as redelivery_wire
from spark_cursor_source.wire import rescue as rescue_wire
from spark_cursor_source.wire.rescue_pb2 import RescuedMessage
from tests.conftest import CreateTopic, DeleteTopic
from tests.kafka.control_plane import (
    PARTITIONS,
    Control,
    allow_bob,
    cell_of,
    cursor_of,
    dead_letter_of,
    login,
    new_control,
    offsets,
    outbox_of,
    produce,
    read_all,
    set_config,
)
from tests.kafka.raw_headers import produce_with_headers
from tests.kafka.tracker_thread import running_tracker
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

LARGE = b"x" * 3_000


@pytest.fixture
def new_outbox() -> Iterator[Callable[..., Outbox]]:
    made: list[Outbox] = []

    def make(control: Control, **settings: Any) -> Outbox:
        outbox = outbox_of(control, **{"copy_patience_ms": 30_000} | settings)
        outbox.open(take_over=False)
        made.append(outbox)
        return outbox

    yield make
    for outbox in made:
        outbox.close()


@pytest.fixture
def outbox(control: Control, new_outbox: Callable[..., Outbox]) -> Outbox:
    return new_outbox(control)


@pytest.fixture
def queue(control: Control, topics: ClusterAdmin) -> Cell:
    return queue_with(control, topics, [b"0", LARGE, *(b"%d" % n for n in range(2, 10))])


def queue_with(control: Control, topics: ClusterAdmin, values: list[bytes]) -> Cell:
    topics.create({control.queue: (1, {})})
    produce(control.config, control.queue, [{"value": value} for value in values])
    return cell_of(control.queue)


def dead(control: Control, subscription: str = "billing") -> list[bytes | None]:
    return [record.value() for record in read_all(control.config, f"{control.queue}-{subscription}-DLQ")]


def withheld(control: Control) -> list[Withhold]:
    records = read_all(control.config, control.markers)
    found = [marker_wire.decode(record.key(), record.value()) for record in records]
    return [marker for marker in found if isinstance(marker, Withhold)]


def cursor(control: Control, cell: Cell) -> CursorSnapshot | None:
    tail = CursorTable(control.config, control.cursors)
    tail.refresh()
    found = tail.get(cell)
    tail.close()
    return found


def limit(admin: AdminClient, topic: str, largest: int) -> None:
    set_config(admin, topic, "max.message.bytes", str(largest))


def test_one_message_that_is_too_large_is_held_and_its_neighbours_are_written_once(
    control: Control, outbox: Outbox, queue: Cell, topics: ClusterAdmin, admin: AdminClient
) -> None:
    # 0 to 9 rejected: 1 does not fit | limit raised | 1 again
    dlq = f"{control.queue}-billing-DLQ"
    topics.create({dlq: (1, {"max.message.bytes": 1_000})})
    letter = dead_letter_of(queue, (0, 10), reason="rejected", count=2)
    assert outbox.carry_out(0, decisions=[letter], cursors=[cursor_of(queue, 10)], next_markers={}) is True
    small = [b"0", *(b"%d" % n for n in range(2, 10))]
    assert dead(control) == small
    wait_until(lambda: len(withheld(control)) == 1)
    (held,) = withheld(control)
    assert (held.cell, held.offsets, held.tries) == (queue, offsets((1, 2)), 1)
    assert (held.reason, held.delivery_count) == ("rejected", 2)
    assert "MSG_SIZE_TOO_LARGE" in held.trouble
    record = next(one for one in read_all(control.config, control.markers))
    assert (record.key(), record.partition()) == (queue.key, queue.control_partition(PARTITIONS))
    shown = wait_until(lambda: cursor(control, queue))  # each partition shows the transaction in its own time
    assert (shown.outstanding, shown.mark_delete) == (offsets((1, 2)), 0)
    limit(admin, dlq, 100_000)
    again = replace(letter, offsets=offsets((1, 2)), tries=1)
    wait_until(lambda: outbox.copy([again]).copied == 1)
    assert dead(control) == [*small, LARGE]


@pytest.mark.parametrize("refused", [True, False], ids=["after a refusal", "before any answer"])
def test_messages_are_held_once_when_the_wait_for_answers_fails(
    control: Control,
    outbox: Outbox,
    queue: Cell,
    topics: ClusterAdmin,
    monkeypatch: pytest.MonkeyPatch,
    refused: bool,
) -> None:
    topics.create({f"{control.queue}-billing-DLQ": (1, {"max.message.bytes": 1_000})})
    flush = MessageCopier.flush

    def failing(copies: MessageCopier) -> None:
        if refused:
            flush(copies)
        raise CopiesNotDurable(control.queue, 1, "no answer")

    with monkeypatch.context() as patched:
        patched.setattr(MessageCopier, "flush", failing)
        withheld = outbox.copy([dead_letter_of(queue, (1, 3))]).withheld
    assert sum(len(one.offsets) for one in withheld) == 2
    assert OffsetSet.union(one.offsets for one in withheld) == offsets((1, 3))
    wanted = "MSG_SIZE_TOO_LARGE" if refused else "no answer"
    assert all(wanted in one.why for one in withheld)
    again = replace(dead_letter_of(queue, (3, 4)), tries=1)
    wait_until(lambda: outbox.copy([again]).copied == 1)


def test_a_message_with_a_header_name_that_is_not_utf_8_is_written_with_its_headers(
    control: Control, outbox: Outbox, queue: Cell
) -> None:
    servers = control.config["bootstrap.servers"]
    produce_with_headers(servers, control.queue, b"10", [(b"good", b"1"), (b"caf\xe9", b"open")])
    assert outbox.copy([dead_letter_of(queue, (9, 11))]).copied == 2
    _, letter = map(read_letter, read_all(control.config, f"{control.queue}-billing-DLQ"))
    assert letter.headers == (("good", b"1"), ("caf\ufffd", b"open"))


def test_small_messages_that_are_too_large_together_are_written_one_by_one(
    control: Control, outbox: Outbox, topics: ClusterAdmin
) -> None:
    cell = queue_with(control, topics, [b"y" * 600] * 5)
    topics.create({f"{control.queue}-billing-DLQ": (1, {"max.message.bytes": 1_500})})
    outbox.carry_out(0, decisions=[dead_letter_of(cell, (0, 5))], cursors=[], next_markers={})
    assert len(dead(control)) == 5
    assert outbox.withheld == 0


def test_a_dead_letter_topic_that_no_broker_makes_holds_up_its_own_letters_only(
    control: Control, outbox: Outbox, queue: Cell
) -> None:
    other = replace(queue, subscription="s" * 240)
    for batch, number in enumerate((2, 3)):
        letters = [dead_letter_of(cell, (number, number + 1)) for cell in (other, queue)]
        assert outbox.carry_out(batch, decisions=letters, cursors=[], next_markers={})
    assert dead(control) == [b"2", b"3"]
    wait_until(lambda: len(withheld(control)) == 2)
    assert {one.cell for one in withheld(control)} == {other}
    assert all("a topic name has" in one.trouble for one in withheld(control))


def test_the_work_for_letters_of_one_partition_grows_with_their_number_and_not_with_its_square(
    control: Control, outbox: Outbox, topics: ClusterAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, looks = 300, count_calls(monkeypatch, OffsetSet, "__contains__")
    cell = queue_with(control, topics, [b"%d" % n for n in range(many)])
    letters = [replace(dead_letter_of(cell, (n, n + 1)), error=f"order {n}") for n in range(many)]
    both = dead_letter_of(cell, (0, many), reason="expired")
    assert outbox.copy([*letters, both]).copied == 2 * many
    assert len(looks) < 10 * many
    found = [read_letter(one) for one in read_all(control.config, f"{control.queue}-billing-DLQ")]
    assert sorted((one.origin_offset, one.error) for one in found if one.reason == "bad") == sorted(
        (n, f"order {n}") for n in range(many)
    )
    assert sorted(one.origin_offset for one in found if one.reason == "expired") == list(range(many))


def test_a_cursor_is_changed_once_for_all_letters_that_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [cell_of("orders"), cell_of("orders", 1)]
    cursors = {cell.key: cursor_wire.encode(cursor_of(cell, 10)) for cell in cells}
    withheld = [
        RetryPauses().withheld(letter, letter.offsets, "no leader", None, tried=True)
        for cell in cells
        for n in range(5)
        for letter in [replace(dead_letter_of(cell, (n, n + 1)), error=f"order {n}")]
    ]
    changes = count_calls(monkeypatch, CursorSnapshot, "withholding")
    changed = withholding(cursors, withheld)
    assert len(changes) == len(cells)
    assert [len(cursor_wire.decode(changed[cell.key]).held) for cell in cells] == [5, 5]


def count_calls(monkeypatch: pytest.MonkeyPatch, of: type, name: str) -> list[object]:
    """A list that grows by one entry with each call of a method."""
    real, calls = getattr(of, name), list[object]()

    def counted(*arguments: Any, **named: Any) -> Any:
        calls.append(None)
        return real(*arguments, **named)

    monkeypatch.setattr(of, name, counted)
    return calls


def test_a_right_that_is_missing_holds_up_the_letters_that_need_it(
    guarded_broker: EmbeddedKafka, new_outbox: Callable[..., Outbox]
) -> None:
    # bob may do all that a tracker does, but not write to one dead-letter topic, nor read one queue.
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers, "log_level": "0"}
    control = new_control(servers | login("admin", "of-admin"))
    topics = ClusterAdmin(control.config)
    cell = queue_with(control, topics, [b"0", b"1"])
    closed = queue_with(replace(control, name=f"{control.name}-closed"), topics, [b"0", b"1"])
    topics.create({f"{control.queue}-{name}-DLQ": (1, {}) for name in ("billing", "audit")})
    allow_bob(control, dict.fromkeys([control.queue, f"{control.queue}-billing-DLQ"], AclOperation.ALL))
    outbox = new_outbox(control, config=servers | login("bob", "of-bob"))
    denied = replace(cell, subscription="audit")
    letters = [dead_letter_of(one, (0, 2)) for one in (denied, closed, cell)]
    assert outbox.carry_out(0, decisions=letters, cursors=[], next_markers={}) is True
    assert dead(control) == [b"0", b"1"]
    wait_until(lambda: len(withheld(control)) > 1)
    why = {one.cell: one.trouble for one in withheld(control)}
    assert why.keys() == {denied, closed}
    assert f"{control.queue}-audit-DLQ" in why[denied] or "AUTHORIZATION_FAILED" in why[denied]
    assert closed.topic in why[closed]


def test_a_dead_letter_topic_that_was_deleted_is_made_again_at_the_next_try(
    control: Control, new_outbox: Callable[..., Outbox], queue: Cell, delete_topic: DeleteTopic
) -> None:
    outbox = new_outbox(control, copy_patience_ms=5_000)  # it waits for the topic as long as that
    outbox.carry_out(0, decisions=[dead_letter_of(queue, (0, 1))], cursors=[], next_markers={})
    delete_topic(f"{control.queue}-billing-DLQ")
    letter = dead_letter_of(queue, (2, 3))
    outbox.carry_out(1, decisions=[letter], cursors=[], next_markers={})
    if outbox.withheld:  # a client that knows already that the topic is gone makes it at once
        wait_until(lambda: outbox.copy([replace(letter, tries=1)]).copied == 1)
    assert dead(control) == [b"2"]


def test_a_rescue_topic_that_cannot_be_read_holds_up_only_the_messages_that_it_may_have(
    control: Control, new_outbox: Callable[..., Outbox], queue: Cell, admin: AdminClient
) -> None:
    partition = TopicPartition(control.queue, 0, 3)
    next(iter(admin.delete_records([partition]).values())).result()
    nowhere = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}
    rescue = Rescue(nowhere, "rescue", control.markers)
    outbox = new_outbox(control, copy_patience_ms=5_000, rescue=rescue)
    whole, partly = dead_letter_of(queue, (8, 10), reason="expired"), dead_letter_of(queue, (2, 5))
    done = outbox.copy([whole, partly])
    assert (done.copied, done.lost) == (4, 0)
    assert [(one.decision, one.offsets) for one in done.withheld] == [(partly, offsets((2, 3)))]
    later = outbox.copy([dead_letter_of(queue, (1, 2)), dead_letter_of(queue, (7, 8))])
    assert (later.copied, later.lost) == (1, 0)
    assert [one.offsets for one in later.withheld] == [offsets((1, 2))]
    assert later.withheld[0].why == done.withheld[0].why, "the pause is that of the rescue topic"


def test_copies_that_cannot_be_read_are_held_and_the_messages_of_the_queue_are_written(
    control: Control, new_outbox: Callable[..., Outbox], queue: Cell, admin: AdminClient
) -> None:
    class Failing(Rescue):
        def within(self, timeout_ms: int) -> Rescue:
            return self

        def has(self, topic: str, wanted: Mapping[int, OffsetSet]) -> dict[int, OffsetSet]:
            return dict(wanted)

        def messages(self, topic: str, partition: int, wanted: OffsetSet) -> Any:
            raise KafkaUnavailable("read", 2_000, "no leader")

    partition = TopicPartition(control.queue, 0, 3)
    next(iter(admin.delete_records([partition]).values())).result()
    outbox = new_outbox(control, rescue=Failing(control.config, "rescue", control.markers))
    letter = dead_letter_of(queue, (2, 5))
    done = outbox.copy([letter])
    assert (done.copied, done.lost) == (2, 0)
    assert [one.offsets for one in done.withheld] == [offsets((2, 3))]
    assert outbox.copy([dead_letter_of(queue, (5, 6))]).copied == 1


@pytest.mark.parametrize("version", [0, 2])
def test_a_copy_that_cannot_be_read_does_not_stop_the_tracker(
    control: Control, new_outbox: Callable[..., Outbox], queue: Cell, topics: ClusterAdmin, version: int
) -> None:
    topics.delete_records({(control.queue, 0): 3})
    rescue, place = (
        f"rescue-{control.name}",
        RescuePlace(queue.topic, topics.describe([queue.topic])[queue.topic].topic_id, 0),
    )
    topics.ensure_rescue(rescue)
    keys = [rescue_wire.record_key(control.markers, place, offset) for offset in (1, 2)]
    values = [RescuedMessage(version=which).SerializeToString() for which in (version, 1)]
    number = control_partition(rescue_wire.place_key(place), topics.describe([rescue])[rescue].partitions)
    produce(
        control.config,
        rescue,
        [{"key": key, "value": value, "partition": number} for key, value in zip(keys, values, strict=True)],
    )
    outbox = new_outbox(control, rescue=Rescue(control.config, rescue, control.markers))
    done = outbox.copy([dead_letter_of(queue, (1, 5))])
    found = (done.copied, done.lost, [one.offsets for one in done.withheld])
    assert found == ((3, 1, []) if version == 0 else (2, 0, [offsets((1, 3))]))


def test_dead_letters_do_not_come_back_as_messages_of_their_own_queue(
    control: Control, new_outbox: Callable[..., Outbox], queue: Cell
) -> None:
    before = len(read_all(control.config, control.queue))
    policy = RedeliveryPolicy(dead_letter_topic="{topic}")
    outbox = new_outbox(control, policy_for=lambda name: policy)
    done = outbox.copy([dead_letter_of(queue, (2, 5))])
    assert (done.copied, done.lost) == (0, 0)
    assert [(one.offsets, one.tries) for one in done.withheld] == [(offsets((2, 5)), 1)]
    assert "deadLetterTopic" in done.withheld[0].why
    assert len(read_all(control.config, control.queue)) == before


def test_where_a_try_has_just_failed_nothing_new_is_tried_for_a_while() -> None:
    # t: 1st failure: 2 s, after 1 s of waiting: 3 s
    cell, place = cell_of("orders"), Place("write", "orders-billing-DLQ")
    fresh = dead_letter_of(cell, (0, 1))
    failed = replace(fresh, tries=4)
    troubles = RetryPauses()
    assert troubles.why_not_yet(place, fresh) is None
    troubles.failed(place, "no leader", tries_before=4, spent_ms=0)
    assert troubles.why_not_yet(place, fresh) == troubles.why_not_yet(place, failed) == "no leader"
    one, other = (
        troubles.withheld(letter, letter.offsets, "no leader", place, tried=tried)
        for letter, tried in ((failed, True), (fresh, False))
    )
    assert (one.tries, other.tries) == (5, 1)
    assert 31_000 < other.delay_ms <= one.delay_ms <= 32_000, "together they are tried again"
    troubles.failed(place, "no leader", tries_before=0, spent_ms=60_000)
    slow = troubles.withheld(failed, failed.offsets, "no leader", place, tried=True)
    assert slow.delay_ms > 179_000, "a long wait comes seldom"
    troubles.succeeded(place)
    assert troubles.why_not_yet(place, fresh) is None


def test_a_tracker_goes_on_for_all_others_and_writes_what_it_held_when_the_trouble_is_over(
    control: Control,
    create_topic: CreateTopic,
    topics: ClusterAdmin,
    admin: AdminClient,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """From the markers to the dead letters and back, through the tracker's own state."""
    cell = queue_with(control, topics, [LARGE, b"1", b"2"])
    dlq, other = f"{control.queue}-billing-DLQ", cell_of(create_topic())
    topics.create({dlq: (1, {"max.message.bytes": 1_000})})
    sender = MarkerSender(control.config, control.markers, PARTITIONS)

    def send(*markers: Any) -> None:
        sender.send(markers)
        sender.flush()

    def start(of: Cell) -> list[Any]:
        run = {"cell": of, "run_id": "run"}
        return [
            Hello(position=0, **run),
            Start(offsets=offsets((0, 3)), lease_ms=60_000, delivery_count=1, **run),
        ]

    def held() -> int:
        found = cursor(control, cell)
        return 0 if found is None else sum(len(some) for _, some in found.held)

    def redelivered() -> int:
        return len(read_all(control.config, control.redeliveries))

    with caplog.at_level(logging.WARNING), running_tracker(control, tmp_path / "first"):
        send(*start(cell), *start(other), Reject(cell=cell, offsets=offsets((0, 3)), delivery_count=1))
        wait_until(lambda: held() == 1)
        send(Release(cell=other, offsets=offsets((0, 1)), delivery_count=1, delay_ms=0))
        wait_until(lambda: redelivered() == 1)
        assert "dead_letters_held" in caplog.text
        # Tries go on, and none of them doubles anything or lets the message go.
        wait_until(lambda: any(one.tries > 1 for one in withheld(control)))
        assert held() == 1
    # Started again, also without a checkpoint, it still knows.
    with running_tracker(control, tmp_path / "second", takeOver="true"):
        limit(admin, dlq, 100_000)
        send(CloseBreaker(cell=cell))
        wait_until(lambda: held() == 0)
        send(Release(cell=other, offsets=offsets((1, 2)), delivery_count=1, delay_ms=0))
        wait_until(lambda: redelivered() > 1)
    sender.close()
    assert sorted(dead(control), key=lambda value: value or b"") == [b"1", b"2", LARGE]
    records = read_all(control.config, control.redeliveries)
    assert {redelivery_wire.decode(record.value()).cell for record in records} == {other}
