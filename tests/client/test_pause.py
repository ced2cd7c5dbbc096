"""An operator pauses a subscription and ends the pause, and the audit list tells who did it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from spark_cursor_source.admin import (
    LATEST,
    Paused,
    Resumed,
    Subscriptions,
    pause_subscription,
    read_audit,
    read_stats,
    resume_subscription,
)
from spark_cursor_source.admin.tracker_channel import TrackerChannel
from spark_cursor_source.cli import main
from spark_cursor_source.errors import CommandNotTaken, UnknownSubscription
from tests.client.conftest import Rig, receive
from tests.waiting import wait_until

pytestmark = pytest.mark.broker
MakeRig = Callable[..., Rig]


def names(rig: Rig) -> dict[str, str]:
    return rig.control.topics


def paused_ms(rig: Rig) -> list[int | None]:
    return [one.paused_ms for one in rig.cursors()]


def test_a_paused_subscription_leases_nothing_new_until_it_is_resumed(rig: Rig) -> None:
    # 0 two leased ---- pause, nack one, send ten [nothing comes, an ack counts] ---- resume: all come
    rig.send(b"a", b"b")
    consumer = rig.consumer()
    first, second = receive(consumer, 2)
    kafka = rig.control.config
    rig.until_known()
    assert pause_subscription(kafka, "s", rig.topic, author="alice", **names(rig)) == Paused(2, 0)
    assert all(paused_ms(rig))
    assert pause_subscription(kafka, "s", **names(rig)) == Paused(paused=2, before=2)
    wait_until(lambda: len(consumer._feed._assignment.paused) == 2)  # type: ignore[attr-defined]
    rig.send(*(b"%d" % number for number in range(10)))
    first.nack(0)
    second.ack()
    assert consumer.receive(1_500) is None
    wait_until(lambda: sum(one.totals.acked for one in rig.cursors()) == 1)
    wait_until(lambda: sum(len(one.available) for one in rig.cursors()) == 1)
    more = {"redeliveries_topic": rig.control.redeliveries, **rig.control.groups}
    stats = read_stats(kafka, subscription="s", **names(rig), **more)
    assert " paused" in stats.to_text()
    told = json.loads(stats.to_json())["topics"][rig.topic]["subscriptions"]["s"]
    assert told["paused_ms"] == min(one for one in paused_ms(rig) if one)
    assert (told["totals"]["acked"], told["available"]) == (1, 1)
    assert resume_subscription(kafka, "s", author="bob", **names(rig)) == Resumed(2, 0, 0)
    for message in receive(consumer, 11):
        message.ack_async()
    consumer.flush()
    rig.all_acked(12)
    assert paused_ms(rig) == [None, None]
    actions = [(one.author, one.action, one.partitions) for one in read_audit(kafka, **audit(rig))]
    assert (*actions[0][:2], sorted(actions[0][2])) == ("bob", "resume", [0, 1])
    assert actions[-1][:2] == ("alice", "pause")


def audit(rig: Rig) -> dict[str, str]:
    return {"markers_topic": rig.control.markers}


def test_a_client_that_begins_in_a_pause_waits_for_its_end(rig: Rig) -> None:
    options = names(rig)
    with Subscriptions(rig.control.config, **options, **rig.control.groups, author="carol") as subscriptions:
        subscriptions.create("s", rig.topic, LATEST)
    pause_subscription(rig.control.config, "s", **options)
    rig.send(b"a", b"b", b"c")
    consumer = rig.consumer()
    assert consumer.receive(2_500) is None
    resume_subscription(rig.control.config, "s", **options)
    assert len(receive(consumer, 3)) == 3
    (created,) = [one for one in read_audit(rig.control.config, **audit(rig)) if one.author == "carol"]
    assert (created.action, sorted(created.partitions), created.positions) == ("create", [0, 1], (0, 0))
    assert read_audit(rig.control.config, subscription="another", **audit(rig)) == ()


def test_a_pause_that_an_earlier_tracker_does_not_know_is_no_success(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Subscriptions(rig.control.config, **names(rig), **rig.control.groups) as subscriptions:
        subscriptions.create("s", rig.topic, LATEST)
    of = ["--bootstrap-servers", rig.control.config["bootstrap.servers"]]
    of += ["--markers-topic", rig.control.markers, "--cursors-topic", rig.control.cursors]
    monkeypatch.setattr(
        TrackerChannel, "tell", lambda self, markers, *, what: self._answers([markers[0].cell])
    )
    assert main(["pause", "--subscription", "s", *of]) == 1
    assert "has not taken the command 'pause' for subscription 's'" in capsys.readouterr().err
    with pytest.raises(CommandNotTaken, match="Update the tracker"):
        pause_subscription(rig.control.config, "s", **names(rig))


def test_a_subscription_that_does_not_exist_is_named(rig: Rig) -> None:
    with pytest.raises(UnknownSubscription):
        pause_subscription(rig.control.config, "nobody", **names(rig))


def test_the_command_pauses_resumes_and_shows_the_actions(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    with Subscriptions(rig.control.config, **names(rig), **rig.control.groups) as subscriptions:
        subscriptions.create("s", rig.topic, LATEST)
    of = ["--bootstrap-servers", rig.control.config["bootstrap.servers"]]
    of += ["--markers-topic", rig.control.markers, "--cursors-topic", rig.control.cursors]
    assert main(["pause", "--subscription", "s", *of]) == 0
    assert capsys.readouterr().out == (
        "s is paused on 2 partitions; go on with: cursorq resume --subscription s\n"
    )
    assert main(["resume", "--subscription", "s", "--author", "dave", *of]) == 0
    assert capsys.readouterr().out == "the pause of s ends, on 2 partitions\n"
    assert main(["audit", "--json", *of]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [one["action"] for one in entries] == ["resume", "pause", "create"]
    assert entries[0]["author"] == "dave"
    assert main(["audit", *of]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[1:4] == ["dave", "s", rig.topic]
