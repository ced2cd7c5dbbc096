"""An operator limits a subscription while its clients run, and the limits outlive the tracker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import pytest

from spark_cursor_source.admin import (
    LATEST,
    Limited,
    Subscriptions,
    limit_subscription,
    read_audit,
    read_stats,
)
from spark_cursor_source.admin.tracker_channel import TrackerChannel
from spark_cursor_source.cli import main
from spark_cursor_source.client import QueueConsumer
from spark_cursor_source.core.limits import NO_LIMITS, Limits
from spark_cursor_source.errors import InvalidArgument, UnknownSubscription
from tests.client.conftest import Rig, receive
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


def names(rig: Rig) -> dict[str, str]:
    return rig.control.topics


def limits_of(consumer: QueueConsumer) -> Limits:
    return consumer._feed._assignment._limits  # type: ignore[attr-defined]


def received(consumer: QueueConsumer, seconds: float) -> int:
    """Acks all that comes in this time, and returns its number."""
    until, count = time.monotonic() + seconds, 0
    while (left := until - time.monotonic()) > 0:
        if (message := consumer.receive(round(left * 1_000))) is not None:
            message.ack_async()
            count += 1
    return count


def emptied(consumer: QueueConsumer) -> float:
    """Acks what waits in the buffer. What is received later has come there after the returned time."""
    while True:
        now = time.monotonic()
        if (message := consumer.receive(0)) is None:
            return now
        message.ack_async()


def test_a_running_client_obeys_a_rate_and_its_removal(rig: Rig) -> None:
    rig.send(*(b"%d" % number for number in range(200)))
    consumer = rig.consumer()
    for message in receive(consumer, 5):
        message.ack_async()
    kafka = rig.control.config
    rig.until_known()
    done = limit_subscription(kafka, "s", rate=5, author="alice", **names(rig))
    assert done == Limited(rate=5.0, max_outstanding=None, partitions=2)
    wait_until(lambda: limits_of(consumer) == Limits(rate=5.0))
    began = emptied(consumer)
    for message in receive(consumer, 25):
        message.ack_async()
    assert time.monotonic() - began > 2.9, "5 in a second, and a second's worth twice: kept, and on its way"
    limit_subscription(kafka, "s", rate=None, author="bob", **names(rig))
    for message in receive(consumer, 100):
        message.ack_async()
    actions = [(one.author, one.action) for one in read_audit(kafka, markers_topic=rig.control.markers)]
    assert actions == [("bob", "remove the limits"), ("alice", "limit to 5 messages per second")]


def test_a_rate_counts_redeliveries_too(rig: Rig) -> None:
    rig.send(*(b"%d" % number for number in range(10)))
    consumer = rig.consumer()
    held = receive(consumer, 10)
    limit_subscription_when_known(rig, rate=4)
    wait_until(lambda: limits_of(consumer) == Limits(rate=4.0))
    began = time.monotonic()
    for message in held:
        message.nack(0)
    assert {one.delivery_count for one in receive(consumer, 10)} == {2}
    assert time.monotonic() - began > 1.4


def test_a_limit_of_outstanding_messages_survives_the_tracker_and_keeps_the_other_limit(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig(2)
    with ExitStack() as life:
        replace(rig, stack=life).tracker()
        with Subscriptions(rig.control.config, **names(rig), **rig.control.groups) as subscriptions:
            subscriptions.create("s", rig.topic, LATEST)
        kafka = rig.control.config
        limit_subscription(kafka, "s", rate=900, **names(rig))
        done = limit_subscription(kafka, "s", max_outstanding=6, **names(rig))
        assert done == Limited(rate=900.0, max_outstanding=6, partitions=2)
    rig.tracker()
    rig.send(*(b"%d" % number for number in range(30)))
    consumer = rig.consumer()
    held = receive(consumer, 6)
    assert consumer.receive(1_000) is None
    wait_until(lambda: sum(len(one.outstanding) for one in rig.cursors()) == 6)
    assert {one.limits for one in rig.cursors()} == {Limits(rate=900.0, max_outstanding=6)}
    more = {"redeliveries_topic": rig.control.redeliveries, **rig.control.groups}
    stats = read_stats(kafka, subscription="s", **names(rig), **more)
    assert " rate_limit=900 max_outstanding=6" in stats.to_text()
    told = json.loads(stats.to_json())["topics"][rig.topic]["subscriptions"]["s"]
    assert (told["rate_limit"], told["max_outstanding"], told["outstanding"]) == (900.0, 6, 6)
    held[0].nack(0)
    (again,) = receive(consumer, 1)
    assert again.delivery_count == 2, "redeliveries go on"
    for message in (again, *held[1:]):
        message.ack_async()
    assert len(receive(consumer, 6)) == 6
    assert limits_of(consumer) != NO_LIMITS


def test_clients_that_share_a_subscription_share_its_rate(rig: Rig) -> None:
    rig.send(*(b"%d" % number for number in range(400)))
    consumers = [rig.consumer(), rig.consumer()]
    limit_subscription_when_known(rig, rate=8)
    wait_until(lambda: all(len(one._feed._assignment._held) == 1 for one in consumers))  # type: ignore[attr-defined]
    wait_until(lambda: all(limits_of(one) == Limits(rate=8.0) for one in consumers))
    began = min(emptied(consumer) for consumer in consumers)
    count = sum(received(one, 0.2) for _ in range(8) for one in consumers)
    assert count <= 8 * (time.monotonic() - began) + 8 * 2 + 2, "a second's worth twice: kept, and on its way"


def limit_subscription_when_known(rig: Rig, **limits: float) -> None:
    rig.until_known()
    limit_subscription(rig.control.config, "s", **limits, **names(rig))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "give a rate, a number of outstanding messages, or both"),
        ({"rate": 0}, "to stop a subscription, pause it"),
        ({"rate": float("nan")}, "the rate is not between 0.001 and 1,000,000,000 messages per second"),
        ({"max_outstanding": 0}, "the number of outstanding messages is not between 1 and"),
    ],
)
def test_limits_that_cannot_be_are_refused_before_anything_is_asked(
    given: dict[str, float], why: str
) -> None:
    with pytest.raises(InvalidArgument, match=why):
        limit_subscription({"bootstrap.servers": "127.0.0.1:1"}, "s", **given)  # type: ignore[arg-type]


def test_a_subscription_that_does_not_exist_is_named(rig: Rig) -> None:
    with pytest.raises(UnknownSubscription):
        limit_subscription(rig.control.config, "nobody", rate=1, **names(rig))


def test_the_command_sets_keeps_and_removes_limits(
    rig: Rig, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Subscriptions(rig.control.config, **names(rig), **rig.control.groups) as subscriptions:
        subscriptions.create("s", rig.topic, LATEST)
    of = ["--subscription", "s", "--bootstrap-servers", rig.control.config["bootstrap.servers"]]
    of += ["--markers-topic", rig.control.markers, "--cursors-topic", rig.control.cursors]
    assert main(["limit", "--rate", "2.5", *of]) == 0
    assert capsys.readouterr().out == "s is limited to 2.5 messages per second, on 2 partitions\n"
    assert main(["limit", "--max-outstanding", "1000", "--json", *of]) == 0
    told = {"subscription": "s", "rate": 2.5, "max_outstanding": 1000, "partitions": 2}
    assert json.loads(capsys.readouterr().out) == told
    assert main(["limit", "--rate", "none", *of]) == 0
    assert capsys.readouterr().out == "s is limited to 1,000 outstanding messages, on 2 partitions\n"
    assert main(["limit", "--rate", "fast", *of]) == 1
    assert "give messages per second, or none" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["limit", *of])
    assert "give --rate, --max-outstanding or both" in capsys.readouterr().err
    monkeypatch.setattr(TrackerChannel, "tell", lambda self, markers, *, what: {})
    assert main(["limit", "--rate", "7", *of]) == 1, "an earlier tracker does not know the command"
    assert "has not taken the command 'limit' for subscription 's'" in capsys.readouterr().err
