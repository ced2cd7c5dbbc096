"""SIGKILL of the consumer: its driver, its JVM, a worker; nothing is lost, and what comes again has a reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.harness import Field, released

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]

MakeQueue = Callable[..., Field]


def test_a_batch_is_replayed_once_less_what_has_ended_and_handed_back_the_second_time(
    make_queue: MakeQueue,
) -> None:
    # run 1: batch 0 = 0..5 (1) | SIGKILL, another job acks 2 | run 2: batch 0 = 0 1 3 4 5 (2) | SIGKILL
    # run 3: batch 0 is empty | a later batch = 0 1 3 4 5 (3) -> acked
    queue = make_queue()
    queue.produce(["wait", *(f"plain-{n}" for n in range(1, 6))])
    consumer = queue.consumer(gate=True)
    first = consumer.until_seen(6, run=1)
    assert {one.count for one in first} == {1}
    consumer.kill_tree()
    queue.ack([2])

    consumer.start()
    second = consumer.until_seen(5, run=2)
    assert [one.id for one in second] == [(0, offset) for offset in (0, 1, 3, 4, 5)]
    assert {(one.count, one.batch) for one in second} == {(2, first[0].batch)}

    consumer.restart()
    third = consumer.until_seen(5, run=3)
    assert [one.id for one in third] == [one.id for one in second]
    assert {one.count for one in third} == {3}
    assert {one.batch for one in third}.isdisjoint({first[0].batch})
    assert [back.delivery_count for back in released(queue.markers())] == [2]

    consumer.open_gate()
    consumer.until(queue.all_settled, "all is acked")
    verdict = queue.verdict().check_settled()
    assert set(verdict.duplicates.values()) == {("replay", "redelivery")}
