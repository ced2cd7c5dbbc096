"""Checkpoints of the source that are deleted, old, or not there yet: the cursor knows better."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.harness import Field

pytestmark = [pytest.mark.e2e, pytest.mark.broker, pytest.mark.timeout(900)]

MakeQueue = Callable[..., Field]


def test_without_its_checkpoint_a_query_goes_on_where_the_cursor_is(make_plain_queue: MakeQueue) -> None:
    # 0..3 acked | 4 acked by another job, 5 held, 6 7 not acked | SIGKILL, no checkpoint | 5 6 7 (2)
    queue = make_plain_queue()
    queue.tracker()
    queue.produce([f"plain-{n}" for n in range(4)])
    consumer = queue.consumer(gate=True, leaseTimeout="5s")
    consumer.until(queue.all_settled, "the first are acked")
    queue.produce(["leave", "wait", "plain", "plain"])
    consumer.until_seen(6)
    queue.ack([4])
    consumer.kill_tree()
    shutil.rmtree(consumer.config["checkpoint"])

    consumer.open_gate()
    consumer.start()
    consumer.until(queue.all_settled, "all is acked")
    queue.verdict().check_settled()
    assert [(one.id, one.count) for one in consumer.seen(run=2)] == [((0, n), 2) for n in (5, 6, 7)]


def test_an_older_checkpoint_brings_nothing_back_that_was_acked(make_plain_queue: MakeQueue) -> None:
    # 0..3 acked | the checkpoint is copied | 4..7 acked | 8 held | SIGKILL, the copy put back
    # 8 (2), and nothing else
    queue = make_plain_queue()
    queue.tracker()
    queue.produce([f"plain-{n}" for n in range(4)])
    consumer = queue.consumer(gate=True, leaseTimeout="5s", maxOffsetsPerTrigger=4)
    checkpoint = Path(consumer.config["checkpoint"])
    consumer.until(
        lambda: queue.all_settled() and _last(checkpoint / "offsets") == _last(checkpoint / "commits"),
        "the first are acked, and their batch is committed",
    )
    early = checkpoint.with_name("early")
    shutil.copytree(checkpoint, early)
    queue.produce([f"plain-{n}" for n in range(4, 8)])
    consumer.until(lambda: len(consumer.seen()) == 8 and queue.all_settled(), "the next are acked")
    queue.produce(["wait"])
    consumer.until_seen(9)
    consumer.kill_tree()
    shutil.rmtree(checkpoint)
    early.rename(checkpoint)

    consumer.open_gate()
    consumer.start()
    queue.produce(["plain-9"])
    consumer.until(queue.all_settled, "all is acked")
    verdict = queue.verdict().check_settled()
    assert sorted(verdict.duplicates) == [(0, 8)]


def test_a_new_subscription_from_latest_misses_nothing_after_its_first_start(
    make_plain_queue: MakeQueue,
) -> None:
    # 0 1 2 | first start: latest = 3, SIGKILL before any commit | 3 4 | start: 3 4, though latest is 5 by now
    queue = make_plain_queue()
    queue.tracker()
    queue.produce(["old"] * 3)
    consumer = queue.consumer(startingOffsets="latest")
    consumer.until(lambda: _begun(queue), "the subscription begins")
    consumer.kill_tree()
    queue.produce(["new"] * 2)
    consumer.start()
    seen = consumer.until_seen(2)
    assert [(one.id, one.count) for one in seen] == [((0, 3), 1), ((0, 4), 1)]
    consumer.until(queue.all_settled, "all is acked")
    assert len(consumer.seen()) == 2


def test_a_batch_that_was_not_committed_is_not_acked_by_the_source_without_its_checkpoint(
    make_plain_queue: MakeQueue,
) -> None:
    # ackMode=batch: batch 0 = 0 1, committed, acked | batch 1 = 2 3, held | SIGKILL, no checkpoint | 2 3 (2)
    queue = make_plain_queue()
    queue.tracker()
    queue.produce(["plain", "plain"])
    consumer = queue.consumer(gate=True, leaseTimeout="5s", ackMode="batch")
    consumer.until(queue.all_settled, "the first are acked")
    queue.produce(["plain", "wait"])
    consumer.until_seen(4)
    consumer.kill_tree()
    shutil.rmtree(consumer.config["checkpoint"])

    consumer.open_gate()
    consumer.start()
    consumer.until(queue.all_settled, "all is acked")
    queue.verdict().check_settled()
    assert sorted(one.id for one in consumer.seen(run=2)) == [(0, 2), (0, 3)]


def _begun(queue: Field) -> bool:
    return bool(queue.topics.committed(queue.group, [(queue.topic, 0)]))


def _last(log: Path) -> int:
    """The last batch in a log of the checkpoint."""
    return max((int(entry.name) for entry in log.iterdir() if entry.name.isdigit()), default=-1)
