"""A ledger over the order of each key, while the processes of a queue are killed and stand still."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from tests.e2e.harness import App, Field
from tests.e2e.processes import Part

pytestmark = [pytest.mark.e2e, pytest.mark.broker, pytest.mark.timeout(600)]

MakeQueue = Callable[..., Field]
KEYS = ("a", "b", "c", "d", "e", None)
VALUES = (
    "plain",
    "flaky",
    "plain",
    "release",
    "plain",
    "reject",
    "plain",
    "leave",
    "plain",
    "plain",
    "plain",
)
SETTINGS = {"ordering": "key", "leaseTimeout": "3s", "sessionTimeout": "3s", "maxOffsetsPerTrigger": 20}


def inversions(queue: Field, apps: Sequence[App]) -> tuple[list[str], int]:
    """Calls of a handler before an earlier message of the key had passed, and the number of all calls.

    A message has passed when its handler has acked or rejected it, or when it is a dead letter.
    """
    events = sorted((one for app in apps for one in app.events()), key=lambda one: one["at"])
    keys: dict[int, dict[int, Any]] = defaultdict(dict)
    for record in queue.records(queue.topic):
        keys[record.partition() or 0][record.offset() or 0] = record.key()
    passed = {letter.id for letter in queue.dead_letters()}
    found, calls = [], 0
    for event in events:
        if event["event"] == "passed":
            passed.add((event["partition"], event["offset"]))
        if event["event"] != "seen":
            continue
        calls += 1
        partition, offset = event["partition"], event["offset"]
        of = keys[partition]
        found += [
            f"{(partition, offset)} passes {(partition, earlier)} of key {of[offset]!r}: {json.dumps(event)}"
            for earlier in of
            if earlier < offset and of[earlier] == of[offset] and (partition, earlier) not in passed
        ]
    return found, calls


def check(queue: Field, *apps: App) -> None:
    """Everything has passed, and nothing out of order."""
    wrong, calls = inversions(queue, apps)
    assert not wrong, "\n".join(wrong[:20])
    produced = len(queue.records(queue.topic))
    assert calls >= produced
    seen = {one.id for app in apps for one in app.seen()}
    assert len(seen) == produced, "a message was not handled"
    blocked = [told.cursor for told in queue.cursors() if told.cursor.blocked.offsets]
    assert blocked, "else nothing was tried"


def test_the_order_of_each_key_survives_kills_of_query_and_tracker(make_plain_queue: MakeQueue) -> None:
    queue, chance = make_plain_queue(2), Random(1)
    tracker = queue.tracker()
    consumer = queue.consumer(per_row=True, **SETTINGS)
    with queue.producing(VALUES, every_s=0.4, keys=KEYS):
        for _ in range(8):
            time.sleep(chance.uniform(0.3, 2.0))
            match chance.choice(["query", "query", "tracker", "pause"]):
                case "query":
                    consumer.restart()
                case "tracker":
                    tracker.restart()
                case "pause":
                    consumer.process.pause()
                    time.sleep(4.0)  # longer than its lease and its session
                    consumer.process.resume()
    consumer.supervise_until(queue.all_settled, "all is acked or dead")
    check(queue, consumer)


def test_the_order_of_each_key_survives_hand_over_between_queries(make_plain_queue: MakeQueue) -> None:
    # key_shared, acks by batch: one is killed, one stands still and comes back, one leaves, all under load
    queue = make_plain_queue(2)
    queue.tracker()
    options = {**SETTINGS, "subscriptionType": "key_shared", "ackMode": "batch"}
    first = queue.consumer(per_row=True, **options)
    with queue.producing(VALUES, every_s=0.4, keys=KEYS):
        first.until_seen(20)
        second = queue.consumer(per_row=True, **options)
        second.until_seen(10)
        first.kill_tree()
        third = queue.consumer(per_row=True, restarts=9, **options)
        third.until_seen(10)
        second.process.pause()
        time.sleep(8.0)
        second.process.resume()
        time.sleep(2.0)
        third.leave()
        fourth = queue.consumer(per_row=True, restarts=9, onMemberLost="release", **options)
        time.sleep(2.0)
    fourth.until(queue.all_settled, "all is acked or dead")
    check(queue, first, second, third, fourth)


@pytest.mark.spark
def test_the_order_of_each_key_survives_kills_of_the_parts_of_a_spark_query(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(2)
    consumer = queue.consumer(per_row=True, restarts=99, **SETTINGS | {"maxOffsetsPerTrigger": 60})
    queue.produce(["plain", "crash"], keys=["a"])
    with queue.producing(VALUES, every_s=3.0, keys=KEYS):
        consumer.until_seen(15)
        consumer.process.kill(Part.WORKER)
        consumer.until_seen(30)
        consumer.process.kill(Part.PLANNER)
        consumer.until_seen(40)
    consumer.supervise_until(queue.all_settled, "all is acked or dead")
    check(queue, consumer)
