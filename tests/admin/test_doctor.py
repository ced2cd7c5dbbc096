"""The doctor: what is wrong is found with its evidence, and each finding names its cure."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from spark_cursor_source.admin import DueMessages, Finding, control_topic_commands, examine, read_due
from spark_cursor_source.cli import main
from spark_cursor_source.core.blocked import Blocked
from spark_cursor_source.core.cursor import CursorSnapshot, Delayed, HeldLetters, Lease
from spark_cursor_source.core.limits import Limits
from spark_cursor_source.core.marker import Hello
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import InvalidArgument, UnknownSubscription
from spark_cursor_source.interop.lease_table import LeaseTable
from spark_cursor_source.interop.lease_table_wire import encode_record, table_cell
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.tracker_progress import tracker_group
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import marker as marker_wire
from tests.conftest import CreateTopic
from tests.kafka.control_plane import Control, cell_of, cursor_of, offsets, produce
from tests.kafka.tracker_thread import running_tracker


def names(control: Control) -> dict[str, str]:
    return {
        **control.topics,
        "redeliveries_topic": control.redeliveries,
        **control.groups,
    }


def look(control: Control, **more: object) -> list[Finding]:
    return list(examine(control.config, **names(control), tracker_wait_ms=300, **more))  # type: ignore[arg-type]


def store(control: Control, *cursors: CursorSnapshot) -> None:
    records = [{"key": one.cell.key, "value": cursor_wire.encode(one)} for one in cursors]
    produce(control.config, control.cursors, records)


def told(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(one.severity, one.check) for one in findings]


@pytest.mark.broker
def test_a_healthy_cluster_has_no_findings(control: Control, tmp_path: Path) -> None:
    cell = cell_of(control.queue)
    hello = Hello(cell=cell, run_id="r", position=0)
    home = cell.control_partition(8)
    marker = {"key": cell.key, "value": marker_wire.encode(hello), "partition": home}
    produce(control.config, control.markers, [marker])
    (silent,) = look(control)
    assert (silent.severity, silent.check) == ("error", "tracker")
    assert "1 unread marker, " in silent.evidence
    assert silent.cure.startswith("cursorq tracker ")
    ClusterAdmin(control.config).create({control.queue: (1, {})})
    with running_tracker(control, tmp_path / "tracker"):
        assert examine(control.config, **names(control), tracker_wait_ms=180_000) == ()


def test_a_role_that_nobody_has_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"^The argument role='reader' is invalid: it is neither"):
        examine({"bootstrap.servers": "127.0.0.1:1"}, role="reader")


@pytest.mark.broker
def test_control_topics_that_are_missing_or_unsuitable_are_errors(
    broker: EmbeddedKafka, create_topic: CreateTopic
) -> None:
    config = {"bootstrap.servers": broker.bootstrap_servers}
    markers, cursors = create_topic(message_timestamp_type="CreateTime"), create_topic()
    findings = examine(
        config, markers_topic=markers, cursors_topic=cursors, redeliveries_topic="no-such-topic"
    )
    missing, stamped, removed = [one for one in findings if one.check in ("topics", "settings")]
    assert missing.what == "The control topic no-such-topic does not exist"
    assert stamped.evidence == "message.timestamp.type=CreateTime, needed is LogAppendTime"
    assert stamped.cure == (
        f"kafka-configs.sh --bootstrap-server {broker.bootstrap_servers} --alter --entity-type topics "
        f"--entity-name {markers} --add-config message.timestamp.type=LogAppendTime"
    )
    assert removed.cure.endswith("--add-config cleanup.policy=compact")


@pytest.mark.broker
def test_what_holds_a_subscription_up_is_found(control: Control, capsys: pytest.CaptureFixture[str]) -> None:
    ClusterAdmin(control.config).create({control.queue: (2, {"retention.ms": 10**15})})
    old = {"value": b"", "timestamp": 1_000_000_000_000}
    produce(control.config, control.queue, [old, old, {"value": b""}])
    troubled = HeldLetters(3, "bad", trouble="too large", retry_ms=9_000, tries=1)
    store(
        control,
        replace(cursor_of(cell_of(control.queue), 2), held=((troubled, offsets((0, 1))),)),
        replace(cursor_of(cell_of(control.queue, 1), 0), paused_ms=7, limits=Limits(rate=9.0)),
        cursor_of(cell_of("gone-topic"), 1),
    )
    findings = look(control)
    assert told(findings) == [
        ("error", "subscriptions"),
        ("warning", "subscriptions"),
        ("warning", "subscriptions"),
        ("info", "subscriptions"),
        ("info", "subscriptions"),
    ]
    letters, gone, nobody, paused, limited = findings
    name = f"billing of {control.queue}"
    assert (letters.what, letters.evidence) == (f"Dead letters of {name} cannot be written", "too large")
    assert gone.what == "The topic of billing of gone-topic was deleted"
    # The subscription has another topic, of which the command would forget it too.
    assert all("which forgets all its topics" in one.cure for one in (gone, nobody))
    assert (nobody.what, nobody.evidence) == (f"Nobody reads {name}", "backlog 2")
    assert paused.cure == f"cursorq resume --subscription billing --topic {control.queue}"
    assert (limited.what, limited.evidence) == (f"An operator limits {name}", "9 messages per second")
    assert limited.cure == "cursorq limit --subscription billing --rate none --max-outstanding none"
    with pytest.raises(UnknownSubscription):
        look(control, subscription="nobody")
    of = [f"--{name.replace('_', '-')}={topic}" for name, topic in names(control).items()]
    of += ["--bootstrap-servers", control.config["bootstrap.servers"]]
    assert main(["doctor", "--topic", control.queue, "--json", *of]) == 3
    assert [one["severity"] for one in json.loads(capsys.readouterr().out)] == [
        "error",
        "warning",
        "info",
        "info",
    ]
    assert main(["doctor", "--topic", "gone-topic", *of]) == 0
    assert main(["doctor", "--topic", "gone-topic", "--strict", *of]) == 3
    assert "cure:  leave it if the subscription has other topics; else cursorq" in capsys.readouterr().out


@pytest.mark.broker
def test_markers_that_were_removed_before_a_tracker_read_them_are_found(control: Control) -> None:
    cell = cell_of(control.queue)
    home = cell.control_partition(8)
    control.write(*(Hello(cell=cell, run_id="r", position=0) for _ in range(3)))
    topics = ClusterAdmin(control.config)
    topics.commit(tracker_group(control.markers), {(control.markers, home): 1})
    topics.delete_records({(control.markers, home): 3})
    lost = next(one for one in look(control) if one.check == "retention")
    assert (lost.severity, lost.check) == ("error", "retention")
    assert lost.evidence == f"markers by partition of {control.markers}: {{{home}: 2}}"
    assert lost.cure.endswith("--add-config retention.ms=1209600000, and keep the tracker running")


@pytest.mark.broker
def test_held_dead_letters_and_messages_that_cannot_be_appended_again_are_found(control: Control) -> None:
    ClusterAdmin(control.config).create({control.queue: (1, {})})
    produce(control.config, control.queue, [{"value": b""}] * 2)
    store(
        control,
        replace(cursor_of(cell_of(control.queue), 2), held=((HeldLetters(3, "bad"), offsets((0, 2))),)),
    )
    home = table_cell(control.queue, control.markers, 5)
    table = encode_record(LeaseTable.resume(None), home, trouble="too large", troubled=2)
    produce(control.config, control.cursors, [{"key": home.key, "value": table}])
    again, held, _ = look(control)
    assert again.what == f"Messages cannot be appended to {control.queue} again"
    assert again.evidence == f"{control.queue}: 2 messages could not be appended again, because too large"
    assert held.what == f"The breaker of billing of {control.queue} is open"
    assert held.evidence == "2 dead letters held"
    assert held.cure.startswith("cursorq resume ")


@pytest.mark.broker
def test_messages_that_retention_will_remove_are_found_before(control: Control) -> None:
    day_ms = 86_400_000
    ClusterAdmin(control.config).create({control.queue: (1, {"retention.ms": 10 * day_ms})})
    now_ms = round(time.time() * 1000)
    times_ms = (now_ms - 9 * day_ms, now_ms + 1_800_000)
    produce(control.config, control.queue, [{"value": b"", "timestamp": at_ms} for at_ms in times_ms])
    store(control, cursor_of(cell_of(control.queue), 0))
    skewed, near = [one for one in look(control) if one.check in ("clock", "retention")]
    assert skewed.what.endswith("this machine has a wrong clock")
    assert near.what == f"Retention will remove messages of billing of {control.queue} before they are acked"
    assert near.cure.endswith(f"--add-config retention.ms={20 * day_ms}")


@pytest.mark.broker
def test_messages_that_retention_by_size_will_remove_are_found_before(control: Control) -> None:
    topics = ClusterAdmin(control.config)
    topics.create({control.queue: (2, {"retention.bytes": 1_000_000, "retention.ms": -1})})
    values = [{"value": b"v", "partition": number} for number in range(2) for _ in range(40)]
    produce(control.config, control.queue, values)
    near, far = cursor_of(cell_of(control.queue), 23), cursor_of(cell_of(control.queue, 1), 39)
    store(control, near, far)
    assert [one for one in look(control) if one.check == "retention"] == [], "nothing was removed yet"
    topics.delete_records({(control.queue, number): 20 for number in range(2)})
    (found,) = [one for one in look(control) if one.check == "retention"]
    assert found.what.startswith("Retention by size will remove messages of billing")
    assert "by partition: {0: '15%'}; retention.bytes=1000000" in found.evidence
    assert found.cure.endswith("--add-config retention.bytes=2000000")


@pytest.mark.broker
def test_records_that_are_no_markers_and_a_limit_of_size_are_found(
    control: Control, create_topic: CreateTopic
) -> None:
    limited = create_topic(message_timestamp_type="LogAppendTime", retention_bytes=1_000_000)
    produce(control.config, limited, [{"key": b"k", "value": b"no marker"}] * 2)
    found = examine(control.config, **names(control) | {"markers_topic": limited}, tracker_wait_ms=300)
    (size,) = [one for one in found if one.check == "settings"]
    assert (size.severity, size.evidence) == ("warning", "retention.bytes=1000000, needed is -1")
    assert size.cure.endswith(f"--entity-name {limited} --add-config retention.bytes=-1")
    (bad,) = [one for one in found if one.check == "versions"]
    assert bad.evidence.startswith("2 of the last 1000 of each partition")
    assert "not a protobuf message" in bad.evidence


@pytest.mark.broker
def test_messages_of_paused_partitions_are_not_ready(control: Control) -> None:
    # partition 1 was added after the pause
    ClusterAdmin(control.config).create({control.queue: (2, {})})
    produce(control.config, control.queue, [{"value": b"v", "partition": at % 2} for at in range(10)])
    paused = replace(cursor_of(cell_of(control.queue, 0), 4, (1, 3)), paused_ms=1)
    store(control, paused, cursor_of(cell_of(control.queue, 1), 2, (0, 1)))
    (due,) = read_due(control.config, subscription="billing", cursors_topic=control.cursors)
    assert (due.unread, due.available, due.ready, due.paused) == (4, 3, 4, False)


@pytest.mark.broker
def test_a_scheduler_learns_what_is_ready_and_when_the_next_is(
    control: Control, capsys: pytest.CaptureFixture[str]
) -> None:
    ClusterAdmin(control.config).create({control.queue: (1, {})})
    produce(control.config, control.queue, [{"value": b"%d" % number} for number in range(10)])
    cursor = replace(
        cursor_of(cell_of(control.queue), 8, (1, 3)),
        delayed=((Delayed(9_000, 1, False), offsets((4, 5))), (Delayed(5_000, 1, False), offsets((5, 6)))),
        leases=((Lease(70_000, 1, "r"), offsets((6, 8))),),
        blocked=Blocked(offsets=offsets((3, 4)), behind=(1,), delivery_counts=(0,)),
    )
    store(control, cursor)
    kafka, of = control.config, {"cursors_topic": control.cursors}
    expected = DueMessages(
        topic=control.queue,
        subscription="billing",
        unread=2,
        available=2,
        delayed=2,
        blocked=1,
        leased=2,
        next_due_ms=5_000,
        next_deadline_ms=70_000,
        paused=False,
        ready=4,
    )
    assert read_due(kafka, **of) == (expected,)
    store(control, replace(cursor, paused_ms=1))
    (paused,) = read_due(kafka, subscription="billing", **of)
    assert (paused.paused, paused.ready) == (True, 0)
    with pytest.raises(UnknownSubscription):
        read_due(kafka, subscription="nobody", **of)
    arguments = ["--bootstrap-servers", kafka["bootstrap.servers"], "--cursors-topic", control.cursors]
    assert main(["due", "--exit-code", *arguments]) == 3
    assert capsys.readouterr().out.splitlines()[1].split() == [
        *(control.queue, "billing", "0", "2", "2", "2", "1", "2", "paused"),
    ]


def test_the_commands_for_the_control_topics_are_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["topics", "--print", "--bootstrap-servers", "b:9092", "--markers-topic", "m"]) == 0
    markers, redeliveries, cursors, streams = capsys.readouterr().out.splitlines()
    assert markers == (
        "kafka-topics.sh --bootstrap-server b:9092 --create --if-not-exists --topic m --partitions 8 "
        "--replication-factor 3 --config min.insync.replicas=2 --config cleanup.policy=delete "
        "--config max.message.bytes=8388608 --config message.timestamp.type=LogAppendTime "
        "--config retention.ms=604800000"
    )
    assert "--topic __cursorq_redeliveries " in redeliveries
    assert "--config cleanup.policy=compact " in cursors
    assert "--topic __cursorq_streams --partitions 1 " in streams
    assert control_topic_commands("b:9092", form="rpk", replication=1)[2] == (
        "rpk topic create __cursors --brokers b:9092 -p 8 -r 1 -c cleanup.policy=compact"
    )
    assert control_topic_commands("b:9092", form="confluent")[0].endswith(
        "--config cleanup.policy=delete,message.timestamp.type=LogAppendTime,retention.ms=604800000"
    )
    (tmp_path / "c.properties").write_text("bootstrap.servers=c:9092\n")
    assert main(["topics", "--config-file", str(tmp_path / "c.properties")]) == 0
    assert "--bootstrap-server c:9092 " in capsys.readouterr().out
    with pytest.raises(InvalidArgument, match="known are kafka, rpk, confluent"):
        control_topic_commands("b:9092", form="pulsar")
