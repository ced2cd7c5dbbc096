"""The doctor of a principal without all rights: each missing right is named, and hides nothing else."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AclOperation, AclPermissionType, AdminClient, ResourceType

from spark_cursor_source.admin import Finding, examine
from spark_cursor_source.admin.findings import INFO, WARNING
from spark_cursor_source.core.marker import Hello
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.tracker.outbox import tracker_group
from tests.admin.test_doctor import names, store
from tests.kafka.control_plane import Control, bind_bob, cell_of, cursor_of, login, new_control, produce

pytestmark = pytest.mark.broker

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
DESCRIBE, READ, DESCRIBE_CONFIGS = AclOperation.DESCRIBE, AclOperation.READ, AclOperation.DESCRIBE_CONFIGS


def as_bob(guarded: EmbeddedKafka) -> tuple[Control, Control]:
    servers = {"bootstrap.servers": guarded.bootstrap_servers, "log_level": "0"}
    control = new_control(servers | login("admin", "of-admin"))
    return control, Control(servers | login("bob", "of-bob"), control.name)


def allow(control: Control, kind: ResourceType, name: str, *operations: AclOperation) -> None:
    administrator = AdminClient(control.config)
    for one in operations:
        bind_bob(administrator, kind, name, one, AclPermissionType.ALLOW)


def filled(guarded: EmbeddedKafka) -> tuple[Control, Control]:
    """A queue with an unread marker and a backlog that nobody reads, for admin and for bob."""
    control, bob = as_bob(guarded)
    ClusterAdmin(control.config).create({control.queue: (1, {"retention.ms": 1_000_000_000})})
    produce(control.config, control.queue, [{"value": b"v"}] * 3)
    store(control, cursor_of(cell_of(control.queue), 1))
    control.write(Hello(cell=cell_of(control.queue), run_id="r", position=0))
    return control, bob


def allow_doctor(control: Control) -> None:
    """Let bob do what the documentation asks for, but not describe the rescue topic."""
    for topic in (control.cursors, control.markers, control.queue):
        allow(control, TOPIC, topic, DESCRIBE, READ, DESCRIBE_CONFIGS)
    allow(control, TOPIC, control.redeliveries, DESCRIBE)
    allow(control, GROUP, tracker_group(control.markers), DESCRIBE)


def look(control: Control, **more: object) -> dict[str, Finding]:
    found = examine(control.config, **names(control), tracker_wait_ms=100, **more)  # type: ignore[arg-type]
    return {f"{one.check}: {one.what}": one for one in found}


def test_a_topic_that_may_not_be_described_hides_the_findings_of_no_other(
    guarded_broker: EmbeddedKafka,
) -> None:
    control, bob = filled(guarded_broker)
    allow_doctor(control)
    found = examine(bob.config, **names(bob), rescue_topic="hidden", tracker_wait_ms=100)
    tracker, hidden = [one for one in found if one.severity != INFO]
    assert tracker.what == "No tracker reads the markers, so nothing is redelivered"
    assert hidden.check == "topics"
    assert "--operation Describe --topic hidden" in hidden.evidence


def test_each_check_that_needs_a_missing_right_says_so(guarded_broker: EmbeddedKafka) -> None:
    _, bob = filled(guarded_broker)
    found = look(bob)
    impossible = [one.check for one in found.values() if "is not possible without a right" in one.what]
    assert impossible == ["topics", "tracker", "subscriptions"]
    versions = found["versions: The versions of the brokers are not visible to this principal"]
    assert "--operation DescribeConfigs --cluster" in versions.evidence


def test_a_consumer_group_that_may_not_be_described_is_not_called_empty(
    guarded_broker: EmbeddedKafka,
) -> None:
    control, bob = filled(guarded_broker)
    allow_doctor(control)
    name, group = f"billing of {control.queue}", control.group("billing")
    nobody, hidden = (
        f"subscriptions: Nobody reads {name}",
        f"subscriptions: The consumers of {name} are not visible to this principal",
    )
    found = look(bob)
    assert nobody not in found
    assert (found[hidden].severity, found[hidden].evidence) == (
        INFO,
        f"--operation Describe --group {group}",
    )
    allow(control, GROUP, group, DESCRIBE)
    found = look(bob)
    assert nobody in found
    assert hidden not in found


def test_a_queue_whose_settings_may_not_be_read_hides_the_findings_of_no_other(
    guarded_broker: EmbeddedKafka,
) -> None:
    control, bob = filled(guarded_broker)
    closed = f"a-{control.queue}"  # it comes first
    ClusterAdmin(control.config).create({closed: (1, {})})
    old = {"value": b"v", "timestamp": round(time.time() * 1000) - 900_000_000}
    produce(control.config, closed, [{"value": b"v"}])
    ClusterAdmin(control.config).delete_records({(control.queue, 0): 3})
    produce(control.config, control.queue, [old])
    for subscription in ("billing", "audit"):
        store(control, cursor_of(cell_of(closed, subscription=subscription), 0))
    allow_doctor(control)
    allow(control, TOPIC, closed, DESCRIBE, READ)
    found = examine(bob.config, **names(bob), tracker_wait_ms=100)
    (denied,) = [one for one in found if closed in one.evidence and one.severity == WARNING]
    assert f"--operation DescribeConfigs --topic {closed}" in denied.evidence
    near = f"Retention will remove messages of billing of {control.queue} before they are acked"
    assert near in [one.what for one in found]


def test_the_missing_rights_of_a_role_are_named(guarded_broker: EmbeddedKafka) -> None:
    control, bob = filled(guarded_broker)
    allow_doctor(control)

    def missing(role: str, topic: str | None = None) -> list[str]:
        found = examine(
            bob.config, **names(bob), tracker_wait_ms=100, role=role, topic=topic, rescue_topic=control.queue
        )
        return [one.evidence for one in found if one.check == "rights"]

    assert missing("tracker") == [
        f"--operation Write --topic {name}"
        for name in (control.cursors, control.markers, control.queue, control.redeliveries)
    ]
    of_streams = [f"--operation {one} --topic __cursorq_streams" for one in ("Describe", "Read")]
    assert missing("consumer", control.queue) == [
        *of_streams,
        f"--operation Write --topic {control.markers}",
        f"--operation Read --topic {control.redeliveries}",
    ]
