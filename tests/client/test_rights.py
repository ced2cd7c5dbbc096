"""A right that is missing is named, with its resource, by each kind of call."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from spark_cursor_source.client import Client, StartAt, StopAt
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import NotAuthorized
from tests.kafka.control_plane import bind_bob, login
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

ANY, TOPIC = ResourceType.ANY, ResourceType.TOPIC
# Constant: they are part of the tests' ids, which every worker must name alike.
STREAM, STREAMS, CURSORS = "rights-orders", "rights-streams", "rights-cursors"


class Rights:
    """What bob may do: everything but what he is denied."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    def bind(self, kind: ResourceType, name: str, operation: AclOperation, *, allow: bool) -> None:
        permission = AclPermissionType.ALLOW if allow else AclPermissionType.DENY
        bind_bob(self._admin, kind, name, operation, permission)

    def clear(self, permission: AclPermissionType) -> None:
        every = AclBindingFilter(
            ANY, None, ResourcePatternType.ANY, "User:bob", None, AclOperation.ANY, permission
        )
        self._admin.delete_acls([every])[every].result(timeout=20)
        wait_until(lambda: not self._admin.describe_acls(every).result(timeout=20))


@pytest.fixture(scope="module")
def rights(guarded_broker: EmbeddedKafka) -> Iterator[Rights]:
    """Bob's rights, with a stream that holds a message, and a pause in the streams topic."""
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers}
    made = Rights(AdminClient(servers | login("admin", "of-admin")))
    for kind in (TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
        made.bind(kind, "*", AclOperation.ALL, allow=True)
    with client_of(guarded_broker, "admin", "of-admin") as client:
        client.create_stream(STREAM, 2, optimistic_concurrency=True)
        client.publish(STREAM, b"v", partition=0)
        client.pause_stream(STREAM, partitions=[1])
        client.set_cursor("mailer", STREAM, 0, 1)
    yield made
    made.clear(AclPermissionType.ANY)


@pytest.fixture
def bob(rights: Rights, guarded_broker: EmbeddedKafka) -> Iterator[Client]:
    with client_of(guarded_broker, "bob", "of-bob") as client:
        yield client
    rights.clear(AclPermissionType.DENY)


def client_of(broker: EmbeddedKafka, user: str, password: str) -> Client:
    kafka = {"bootstrap.servers": broker.bootstrap_servers, **login(user, password), "log_level": "0"}
    return Client(
        {
            "streamsTopic": STREAMS,
            "cursorsTopic": CURSORS,
            "clientTimeout": "10s",
            **{f"kafka.{name}": value for name, value in kafka.items()},
        }
    )


def read(client: Client) -> object:
    return list(client.subscribe(STREAM, start=StartAt.earliest(), stop=StopAt.latest()))


@pytest.mark.parametrize(
    ("call", "topic", "denied", "operation"),
    [
        (lambda c: c.publish(STREAM, b"", partition=0), STREAM, AclOperation.WRITE, "publish"),
        (lambda c: c.publish(STREAM, b"", partition=0), STREAM, AclOperation.DESCRIBE, "describe topic"),
        (lambda c: c.publish(STREAM, b"", partition=0), STREAMS, AclOperation.READ, "read"),
        (lambda c: c.publish(STREAM, b"", partition=1), STREAMS, AclOperation.WRITE, "write"),
        (
            lambda c: c.publish(STREAM, b"", partition=0, expected_offset=99),
            STREAM,
            AclOperation.DESCRIBE,
            "describe topic",
        ),
        (
            lambda c: c.publish(
                STREAM,
                b"",
                partition=0,
                expected_offset=c.fetch_partition_metadata(STREAM, 0).high_watermark,
            ),
            STREAM,
            AclOperation.WRITE,
            "commit a transaction",
        ),
        (lambda c: c.publish_to_subject(STREAM, b""), STREAM, AclOperation.WRITE, "publish"),
        (read, STREAM, AclOperation.READ, "read"),
        (read, STREAMS, AclOperation.DESCRIBE, "describe topic"),
        (lambda c: c.pause_stream(STREAM), STREAMS, AclOperation.WRITE, "write"),
        (lambda c: c.set_stream_readonly(STREAM), STREAMS, AclOperation.WRITE, "write"),
        (lambda c: c.delete_stream(STREAM), STREAM, AclOperation.DELETE, "delete topic"),
        (
            lambda c: c.fetch_partition_metadata(STREAM, 0),
            STREAM,
            AclOperation.DESCRIBE,
            "describe topic",
        ),
        (lambda c: c.set_cursor("mailer", STREAM, 0, 2), CURSORS, AclOperation.WRITE, "write"),
        (lambda c: c.fetch_cursor("mailer", STREAM, 0), CURSORS, AclOperation.READ, "read"),
    ],
)
def test_a_call_that_lacks_a_right_names_it(
    rights: Rights,
    bob: Client,
    call: Callable[[Client], object],
    topic: str,
    denied: AclOperation,
    operation: str,
) -> None:
    rights.bind(TOPIC, topic, denied, allow=False)
    with pytest.raises(NotAuthorized) as refused:
        call(bob)
    assert (refused.value.resource, refused.value.operation) == (topic, operation)


def test_who_has_all_rights_may_do_all_of_it(bob: Client) -> None:
    bob.publish(STREAM, b"", partition=0)
    bob.publish_to_subject(STREAM, b"")
    bob.pause_stream(STREAM)
    bob.set_stream_readonly(STREAM, readonly=False)
    bob.publish(STREAM, b"", partition=0)
    assert read(bob)
    bob.set_cursor("mailer", STREAM, 0, 2)
    assert bob.fetch_cursor("mailer", STREAM, 0) == 2


def test_who_may_not_create_topics_is_told_so(rights: Rights, bob: Client) -> None:
    name = "rights-new"
    rights.bind(TOPIC, name, AclOperation.CREATE, allow=False)
    with pytest.raises(NotAuthorized, match=f"create topic on '{name}'"):
        bob.create_stream(name)


@pytest.mark.parametrize("may_delete", [True, False])
def test_a_stream_whose_settings_cannot_be_stored_names_the_right_and_is_removed_if_it_can_be(
    rights: Rights, bob: Client, may_delete: bool
) -> None:
    name = f"rights-settings-{may_delete}"
    rights.bind(TOPIC, STREAMS, AclOperation.WRITE, allow=False)
    if not may_delete:
        rights.bind(TOPIC, name, AclOperation.DELETE, allow=False)
    with pytest.raises(NotAuthorized, match=f"write on '{STREAMS}'") as refused:
        bob.create_stream(name, optimistic_concurrency=True)
    notes = getattr(refused.value, "__notes__", [])
    assert (name in bob.fetch_metadata().streams) == bool(notes) != may_delete
    assert all(f"'{name}' was created and could not be deleted" in note for note in notes)
