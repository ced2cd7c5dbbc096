"""A query that dies before each of its steps in turn: planner, reads, handler and sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.e2e.harness import App, Field
from tests.kafka.control_plane import transaction

pytestmark = [pytest.mark.e2e, pytest.mark.broker, pytest.mark.timeout(600)]

MakeQueue = Callable[..., Field]
#: of a run with a batch of two tasks; the markers are Hellos, Starts, and the acks of each task
STEPS = (
    "MarkerSender.send:1",
    "MarkerSender.flush:1",
    "log offsets:1",
    "MarkerSender.send:2",
    "MarkerSender.flush:2",
    "handle the second message:1",
    "MarkerSender.send:3",
    "MarkerSender.flush:3",
    "MarkerSender.send:4",
    "MarkerSender.flush:4",
    "log the commit:1",
    "log offsets:2",
)
BEGINNING = "Membership.commit:1"  #: of a subscription


def test_a_query_that_dies_at_every_step_in_turn_loses_and_invents_nothing(
    make_plain_queue: MakeQueue,
) -> None:
    # Each run on the same checkpoint dies one step later than the one before, and then one step earlier
    # again: so each step is also one of a replay, and of the replay of a replay. The last run lives.
    acked = make_plain_queue(2, "individual")
    by_batch = make_plain_queue(subscription="batch", beside=acked)
    up_to = make_plain_queue(subscription="cumulative", beside=acked)
    acked.tracker(maxDeliveries=0)
    for partition in (0, 1):
        acked.produce(["plain", "leave", "plain"], partition=partition)
        _abort(acked, partition)
    settings = {"maxOffsetsPerTrigger": 6, "leaseTimeout": "5s", "die_at": BEGINNING}
    lives = {
        "individual": (acked, acked.consumer(**settings), [*STEPS, *reversed(STEPS)]),
        "batch": (by_batch, by_batch.consumer(ackMode="batch", **settings), [*STEPS]),
        "cumulative": (up_to, up_to.consumer(ackMode="cumulative", **settings), [*STEPS]),
    }
    with acked.producing(["plain", "flaky"], every_s=0.5):
        for life in range(2 * len(STEPS) + 1):
            for _, consumer, deaths in lives.values():
                _die(consumer, deaths[life : life + 1])
    for queue, consumer, deaths in lives.values():
        consumer.until(queue.all_settled, "all is acked")
        assert [one["before"] for one in consumer.events("died")] == [BEGINNING, *deaths]
        queue.verdict(consumer).check_settled()


def _die(consumer: App, before: Sequence[str]) -> None:
    """Start again what has died, to die once more, if there is a step; else to live."""
    if consumer.config["die_at"] is None:
        return
    consumer.until(lambda: not consumer.process.alive, f"death before {consumer.config['die_at']}")
    consumer.restart(die_at=before[0] if before else None)


def _abort(queue: Field, partition: int) -> None:
    """Messages that nobody will ever see, in the middle of the queue."""
    aborted = {"value": b"aborted", "partition": partition}
    transaction(queue.control.config, [(queue.topic, aborted)] * 2, commit=False)
