"""Dead letters are redriven to one subscription: in place, once, and to no other subscription."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_cursor_source.admin import Redriven, read_audit, read_dead_letters, redrive
from spark_cursor_source.admin.subscriptions import EARLIEST, Subscriptions
from spark_cursor_source.errors import UnknownSubscription
from tests.client.conftest import Rig, counts, receive
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


def test_a_dead_letter_goes_back_to_its_subscription_alone_and_may_be_given_up_again(rig: Rig) -> None:
    # two messages: s rejects both, t acks both ---- redrive to s ---- s rejects one again ---- redrive
    names = rig.control.topics
    kafka, dead = rig.control.config, f"{rig.topic}-s-DLQ"
    rig.send(b"a", b"b")
    consumer, other = rig.consumer(), rig.consumer(subscription="t")
    for message in receive(other, 2):
        message.ack()
    for message in receive(consumer, 2):
        message.reject("bad")

    def waiting(count: int) -> bool:
        topics = rig.topics.existing([dead])
        return (
            bool(topics)
            and len(read_dead_letters(kafka, dead, cursors_topic=names["cursors_topic"])) == count
        )

    wait_until(lambda: waiting(2))
    with pytest.raises(UnknownSubscription):
        redrive(kafka, dead, to_subscription="nobody", **names)
    would = redrive(kafka, dead, to_subscription="s", dry_run=True, **names)
    assert would == Redriven(sent=2, passed=0)
    assert redrive(kafka, dead, to_subscription="s", author="alice", **names) == Redriven(sent=2, passed=0)
    again = receive(consumer, 2)
    assert {one.payload for one in again} == {b"a", b"b"}
    assert counts(again) == {1: 2}, "they begin anew"
    assert redrive(kafka, dead, to_subscription="s", **names).sent == 0
    again[0].ack()
    again[1].reject("still bad")
    wait_until(lambda: waiting(1))
    assert redrive(kafka, dead, to_subscription="s", **names).sent == 1
    (last,) = receive(consumer, 1)
    last.ack()
    assert other.receive(300) is None
    wait_until(lambda: not any(one.outstanding for one in rig.cursors()))
    actions = [one for one in read_audit(kafka, markers_topic=rig.control.markers) if one.author == "alice"]
    assert {one.action for one in actions} == {f"requeue dead letters of {dead}"}


def test_a_dead_letter_that_expires_again_is_another_one(make_rig: Callable[[int], Rig]) -> None:
    # it expires ---- redrive to s: expires again ---- redrive to the queue, seek to the start: expires again
    rig = make_rig(1)
    rig.tracker(messageTtl="1s", expiredTo="dead-letters")
    names = rig.control.topics
    kafka, dead = rig.control.config, f"{rig.topic}-s-DLQ"
    rig.send(b"a")
    with Subscriptions(kafka, **names, **rig.control.groups) as subscriptions:
        subscriptions.create("s", rig.topic, EARLIEST)

        def waiting() -> list[int]:
            if not rig.topics.existing([dead]):
                return []
            found = read_dead_letters(kafka, dead, cursors_topic=names["cursors_topic"])
            return [one.origin_offset for one in found]

        wait_until(lambda: waiting() == [0])
        assert redrive(kafka, dead, to_subscription="s", **names).sent == 1
        wait_until(lambda: waiting() == [0])
        assert redrive(kafka, dead, **names).sent == 1
        wait_until(lambda: waiting() == [1])
        subscriptions.seek("s", rig.topic, EARLIEST)
        wait_until(lambda: sorted(waiting()) == [0, 1, 1])
