"""Every fault once, in an order of the seed; the topics say what came of it, and a wrong log is found out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from spark_cursor_source.core.marker import End, Start
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.wire import marker as marker_wire
from spark_cursor_source.wire import redelivery as redelivery_wire
from tests.e2e.cluster_faults import ROLE_FAULTS, leaders_elected, two_brokers_away
from tests.e2e.harness import Field, Garage, MessageId, Verdict, ids_of
from tests.e2e.ledger import FAULTS, Ledger, check, new_queue, report
from tests.forgotten import FAULT, TRIES, forgotten

pytestmark = [pytest.mark.e2e, pytest.mark.broker, pytest.mark.timeout(900)]

SEED = 20261121


@dataclass(frozen=True)
class Run:
    """A ledger run that is over."""

    ledger: Ledger
    verdict: Verdict


@pytest.fixture(scope="module")
def run(garage: Garage, plain_garage: Garage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Its query is Spark's. Its tracker is not: what befalls Spark's own is in ``test_tracker_killed``."""
    for _ in range(TRIES):
        with (
            new_broker() as broker,
            closing(
                new_queue(broker, garage, tmp_path_factory.mktemp("ledger"), trackers=plain_garage)
            ) as queue,
        ):
            if (done := completed(Ledger(broker, queue, SEED))) is not None:
                yield done
                return
    pytest.xfail(FAULT)


def new_broker(brokers: int = 1) -> EmbeddedKafka:
    return EmbeddedKafka(brokers=brokers, properties={"auto.create.topics.enable": False})


def completed(ledger: Ledger) -> Run | None:
    """The run to its end; None if a broker has left a transaction open for ever meanwhile."""
    try:
        return Run(ledger, ledger.run(lambda: True))
    except AssertionError:
        if not forgotten(ledger.broker):
            raise
    return None


@pytest.mark.spark
def test_a_ledger_is_right_to_the_last_message_whatever_befell_it(run: Run) -> None:
    print(report(run.ledger, run.verdict))
    check(run.verdict, run.ledger.queue)
    assert sorted(run.ledger.told) == sorted(fault.__name__ for fault in FAULTS)
    # Whether a kill hits the middle of a batch is chance. Replays for sure are in test_consumer_killed.
    reasons = {reason for reasons in run.verdict.duplicates.values() for reason in reasons}
    assert "redelivery" in reasons
    assert reasons <= {"redelivery", "replay"}


# ---- on a cluster


def test_a_ledger_on_a_cluster_is_right_whichever_brokers_die_or_stand_still(
    plain_garage: Garage, tmp_path: Path
) -> None:
    # each of these once, in an order of the seed; none of them may end the query or the tracker
    faults = [
        ROLE_FAULTS["markers_leader_killed"],
        ROLE_FAULTS["transaction_coordinator_paused"],
        ROLE_FAULTS["controller_killed"],
        two_brokers_away,
        leaders_elected,
    ]
    for number in range(TRIES):
        (directory := tmp_path / str(number)).mkdir()
        with new_broker(3) as broker, closing(new_queue(broker, plain_garage, directory)) as queue:
            ledger = Ledger(broker, queue, SEED, away_s=2.0, faults=faults, may_end=lambda fault: False)
            if (done := completed(ledger)) is not None:
                print(report(ledger, done.verdict))
                check(done.verdict, queue)
                assert not ledger.ended
                return
    pytest.xfail(FAULT)


# ---- and a wrong one is wrong


@pytest.mark.spark
@pytest.mark.parametrize("missing", ["ends", "starts", "redeliveries", "dead letter", "message"])
def test_a_ledger_that_lacks_what_was_said_of_one_message_is_found_out(run: Run, missing: str) -> None:
    # The same run, and a log from which these records of one message were dropped.
    queue = run.ledger.queue
    again = next(one for one, why in run.verdict.duplicates.items() if why == ("redelivery",))
    markers, redeliveries = queue.control.markers, queue.control.redeliveries
    letter = queue.dead_letters()[0].id
    topic, is_dropped = {
        "ends": (markers, lambda one: again in _of_marker(one, End)),
        "starts": (markers, lambda one: again in _of_marker(one, Start)),
        "redeliveries": (redeliveries, lambda one: again in _of_redelivery(one)),
        "dead letter": (f"{queue.topic}-{queue.subscription}-DLQ", lambda one: _origin(one) == letter),
        "message": (queue.topic, lambda one: (one.partition(), one.offset()) == again),
    }[missing]
    found_out = Verdict.of(without(queue, topic, is_dropped), [run.ledger.consumer])
    with pytest.raises(AssertionError):
        check(found_out, queue)


@pytest.mark.parametrize(
    ("consumer_bug", "tracker_bug", "found"),
    [
        pytest.param(True, False, "lost: ", id="acked and never handled"),
        pytest.param(False, True, "was announced after its End was applied", id="an End is passed over"),
    ],
)
def test_a_bug_in_an_app_is_found_out(
    make_plain_queue: Callable[..., Field], consumer_bug: bool, tracker_bug: bool, found: str
) -> None:
    queue = make_plain_queue()
    queue.tracker(bug=tracker_bug)
    queue.produce(["plain"] * 3)
    consumer = queue.consumer(leaseTimeout="6s", bug=consumer_bug)
    consumer.until_seen(2)
    queue.produce(["plain"] * 3)  # markers after the End: it was read, and not only late
    consumer.until(lambda: queue.all_settled() and bool(queue.announcements()) == tracker_bug, "it is over")
    with pytest.raises(AssertionError, match=found):
        queue.verdict().check_settled()


def without(queue: Field, topic: str, is_dropped: Callable[[Message], bool]) -> Field:
    """The queue, as if these records of a topic had never been written."""
    doctored = copy.copy(queue)

    def records(of: str) -> list[Message]:
        found = queue.records(of)
        return [one for one in found if not is_dropped(one)] if of == topic else found

    doctored.records = records  # type: ignore[method-assign]
    return doctored


def _of_marker(record: Message, kind: type[Any]) -> frozenset[MessageId]:
    marker = marker_wire.decode(record.key(), record.value())
    return ids_of([marker]) if isinstance(marker, kind) else frozenset()


def _of_redelivery(record: Message) -> frozenset[MessageId]:
    return ids_of([redelivery_wire.decode(record.value())])


def _origin(record: Message) -> MessageId:
    facts = dict(record.headers() or [])
    return int(facts["cursorq-partition"]), int(facts["cursorq-offset"])
