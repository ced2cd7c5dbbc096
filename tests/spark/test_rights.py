"""A right that is missing is named, with its topic and operation, before any row is delivered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql.datasource import DataSourceStreamReader

from spark_cursor_source.core.source_options import SourceOptions
from spark_cursor_source.core.tracker_options import TrackerOptions
from spark_cursor_source.embedded import EmbeddedKafka
from spark_cursor_source.errors import NotAuthorized
from spark_cursor_source.kafka.topics import Topics
from spark_cursor_source.spark.marker_source import MarkerStreamReader
from spark_cursor_source.spark.reader import CursorqStreamReader
from tests.e2e.micro_batches import MicroBatches, Tasks
from tests.kafka.control_plane import Control, eventually, login, new_control, produce

pytestmark = pytest.mark.broker


class Guarded:
    """A queue with a message, and bob, who may do everything with it but what he is denied."""

    def __init__(self, broker: EmbeddedKafka, control: Control, directory: Path) -> None:
        self._servers = broker.bootstrap_servers
        self._admin = AdminClient(control.config)
        self._directory = directory
        self.control = control
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
            self._bind(kind, "*", AclOperation.ALL, AclPermissionType.ALLOW)
        Topics(control.config).create({control.queue: (1, {})})
        produce(control.config, control.queue, [{"value": b"x"}])

    def close(self) -> None:
        every = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            "User:bob",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        self._admin.delete_acls([every])[every].result(timeout=20)

    def deny(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        self._bind(kind, name, operation, AclPermissionType.DENY)

    def options(self) -> dict[str, str]:
        kafka = {"bootstrap.servers": self._servers, **login("bob", "of-bob"), "log_level": "0"}
        return {
            "markersTopic": self.control.markers,
            "redeliveriesTopic": self.control.redeliveries,
            "cursorsTopic": self.control.cursors,
            **{f"kafka.{name}": value for name, value in kafka.items()},
        }

    def source(self) -> DataSourceStreamReader:
        options = {**self.options(), "subscribe": self.control.queue, "subscription": "s"}
        return CursorqStreamReader(SourceOptions.parse(options))

    def tracker(self) -> DataSourceStreamReader:
        options = {**self.options(), "checkpointLocation": str(self._directory / "tracker")}
        return MarkerStreamReader(TrackerOptions.parse(options))

    def run(self, reader: DataSourceStreamReader) -> NoReturn:
        """Until the first batch, or until it is refused."""
        try:
            MicroBatches(reader, self._directory / type(reader).__name__, delivered).run(0.05)
        finally:
            reader.stop()

    def _bind(
        self, kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType
    ) -> None:
        given = (kind, name, ResourcePatternType.LITERAL, "User:bob", "*", operation, permission)
        binding, same = AclBinding(*given), AclBindingFilter(*given)
        self._admin.create_acls([binding])[binding].result(timeout=20)
        eventually(lambda: bool(self._admin.describe_acls(same).result(timeout=20)))


class DeliveredError(Exception):
    """A batch has begun."""


def delivered(tasks: Tasks, batch_id: int) -> None:
    raise DeliveredError(sum(batch.num_rows for task in tasks for batch in task))


@pytest.fixture
def guarded(guarded_broker: EmbeddedKafka, tmp_path: Path) -> Iterator[Guarded]:
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers}
    made = Guarded(guarded_broker, new_control(servers | login("admin", "of-admin")), tmp_path)
    yield made
    made.close()


def test_who_has_all_rights_is_given_the_first_batch(guarded: Guarded) -> None:
    for reader in (guarded.source(), guarded.tracker()):
        with pytest.raises(DeliveredError):
            guarded.run(reader)


@pytest.mark.parametrize(
    ("topic", "denied", "operation"),
    [
        ("queue", AclOperation.DESCRIBE, "describe topic"),
        ("queue", AclOperation.READ, "read"),
        ("markers", AclOperation.DESCRIBE, "describe topic"),
        ("markers", AclOperation.WRITE, "write"),
        ("redeliveries", AclOperation.READ, "read"),
        ("cursors", AclOperation.READ, "read"),
    ],
)
def test_a_query_that_lacks_a_right_names_it_before_any_row_is_delivered(
    guarded: Guarded, topic: str, denied: AclOperation, operation: str
) -> None:
    name = getattr(guarded.control, topic)
    guarded.deny(ResourceType.TOPIC, name, denied)
    with pytest.raises(NotAuthorized) as refused:
        guarded.run(guarded.source())
    assert (refused.value.resource, refused.value.operation) == (name, operation)


def test_a_query_that_lacks_the_right_to_its_group_names_it_too(guarded: Guarded) -> None:
    guarded.deny(ResourceType.GROUP, "cursorq-s", AclOperation.READ)
    with pytest.raises(NotAuthorized, match="join group on 'cursorq-s'"):
        guarded.run(guarded.source())


@pytest.mark.parametrize(
    ("topic", "denied", "operation"),
    [
        ("markers", AclOperation.READ, "read"),
        ("redeliveries", AclOperation.WRITE, "write"),
        ("cursors", AclOperation.READ, "read"),
        ("cursors", AclOperation.WRITE, "write"),
    ],
)
def test_a_tracker_that_lacks_a_right_names_it_before_it_reads(
    guarded: Guarded, topic: str, denied: AclOperation, operation: str
) -> None:
    name = getattr(guarded.control, topic)
    guarded.deny(ResourceType.TOPIC, name, denied)
    with pytest.raises(NotAuthorized) as refused:
        guarded.run(guarded.tracker())
    assert (refused.value.resource, refused.value.operation) == (name, operation)
