"""Operations on dead letters and statistics with the least rights that the documentation names."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from spark_cursor_source.admin import delete_dead_letters, read_audit, read_dead_letters, redrive
from spark_cursor_source.devkit.broker import EmbeddedKafka
from tests.admin.letter_queue import Queue
from tests.admin.test_doctor_rights import DESCRIBE, DESCRIBE_CONFIGS, READ, TOPIC, allow
from tests.kafka.control_plane import Control, login, new_control

pytestmark = pytest.mark.broker

WRITE = AclOperation.WRITE


def test_letters_are_deleted_without_the_rights_to_their_records_and_to_the_audit_list(
    guarded_broker: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    queue, control, bob = letters_of_bob(guarded_broker)
    names = control.topics
    with caplog.at_level(logging.INFO, "spark_cursor_source.admin"):
        deleted = delete_dead_letters(bob.config, queue.dead, everything=True, **names)
    assert str(deleted) == "2 dead letters deleted, 0 passed over; 0 records removed from the log"
    told = caplog.text
    assert f"--operation Delete --topic {queue.dead}" in told
    assert "event=dead_letters_not_removed" in told
    assert "event=audit_not_written" in told
    assert f"topic={control.markers}" in told
    assert read_dead_letters(bob.config, queue.dead, cursors_topic=control.cursors) == ()
    assert read_audit(control.config, markers_topic=control.markers) == ()

    allow(control, TOPIC, queue.dead, AclOperation.DELETE)
    allow(control, TOPIC, control.markers, DESCRIBE, WRITE)
    queue.bury(queue.letter((2, 3)))
    again = delete_dead_letters(bob.config, queue.dead, everything=True, **names)
    assert (again.deleted, again.removed > 2) == (1, True)
    (entry,) = read_audit(control.config, markers_topic=control.markers)
    assert entry.action == f"delete dead letters: 1 of {queue.dead}"


def test_letters_are_redriven_with_the_rights_of_the_documentation(guarded_broker: EmbeddedKafka) -> None:
    queue, control, bob = letters_of_bob(guarded_broker)
    allow(control, TOPIC, queue.topic, WRITE)
    redriven = redrive(bob.config, queue.dead, **control.topics)
    assert str(redriven).startswith("2 messages appended")
    assert len(queue.back()) == 2


def letters_of_bob(guarded: EmbeddedKafka) -> tuple[Queue, Control, Control]:
    """A queue with two dead letters, and bob with the rights to delete them, but not their records."""
    servers = {"bootstrap.servers": guarded.bootstrap_servers}
    control = new_control(servers | login("admin", "of-admin"))
    queue = Queue(guarded.bootstrap_servers, **login("admin", "of-admin"))
    queue.bury(queue.letter((0, 2)))
    allow(control, TOPIC, control.cursors, READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS)
    allow(control, TOPIC, queue.dead, READ)
    allow(control, ResourceType.TRANSACTIONAL_ID, f"cursorq-redrive-{queue.dead}", WRITE)
    return queue, control, Control(servers | login("bob", "of-bob"), control.name)
