"""A right that is missing is named, with its topic and operation, before any row is delivered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StringType, StructField, StructType

from spark_cursor_source.admin import EARLIEST, Subscriptions, pause_subscription
from spark_cursor_source.client import Service, ServiceConfig
from spark_cursor_source.consumer.planner import Planner
from spark_cursor_source.core.marker import EndLeased, Release
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import NotAuthorized
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.error_codes import COMMIT, refusal_of_offsets
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.options.publish import EnqueueOptions
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.spark.actions import markers_of
from spark_cursor_source.spark.message_writer import EnqueueWriter
from spark_cursor_source.spark.reader import CursorqStreamReader
from spark_cursor_source.spark.tracker_source import MarkerStreamReader
from spark_cursor_source.tracker import Tracker
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import marker as marker_wire
from tests.e2e.micro_batches import MicroBatches, Tasks
from tests.kafka.control_plane import (
    Control,
    bind_bob,
    cell_of,
    cursor_of,
    login,
    new_control,
    produce,
    read_all,
)
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.broker


class Guarded:
    """A queue with a message, and bob, who may do everything with it but what he is denied."""

    def __init__(self, broker: EmbeddedKafka, control: Control, directory: Path) -> None:
        self._servers = broker.bootstrap_servers
        self._admin = AdminClient(control.config)
        self._directory = directory
        self.control = control
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
            bind_bob(self._admin, kind, "*", AclOperation.ALL, AclPermissionType.ALLOW)
        ClusterAdmin(control.config).create({control.queue: (1, {})})
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
        # The controller answers before the broker knows.
        wait_until(lambda: not self._admin.describe_acls(every).result(timeout=20))

    def allow_only(self, rights: Iterable[tuple[ResourceType, str, AclOperation]]) -> None:
        """Take everything away from bob, and give him these rights."""
        self.close()
        for kind, name, operation in rights:
            bind_bob(self._admin, kind, name, operation, AclPermissionType.ALLOW)

    def deny(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        bind_bob(self._admin, kind, name, operation, AclPermissionType.DENY)

    def kafka(self) -> dict[str, str]:
        return {"bootstrap.servers": self._servers, **login("bob", "of-bob"), "log_level": "0"}

    def options(self) -> dict[str, str]:
        return {
            **self.control.names,
            **{f"kafka.{name}": value for name, value in self.kafka().items()},
        }

    def source(self, **more: str) -> DataSourceStreamReader:
        options = {**self.options(), "subscribe": self.control.queue, "subscription": "s", **more}
        return CursorqStreamReader(SourceOptions.parse(options))

    def tracker(self) -> DataSourceStreamReader:
        options = {**self.options(), "checkpointLocation": str(self._directory / "tracker")}
        return MarkerStreamReader(TrackerOptions.parse(options))

    def writer(self, *columns: str, **more: str) -> EnqueueWriter:
        """What ``df.write`` with these columns and options makes before its first task."""
        options = {**self.options(), "streamsTopic": self.control.streams, **more}
        schema = StructType([StructField(name, StringType()) for name in columns])
        return EnqueueWriter(EnqueueOptions.parse(options), schema, overwrite=False)

    def run(self, reader: DataSourceStreamReader) -> NoReturn:
        """Until the first batch, or until it is refused."""
        try:
            MicroBatches(reader, self._directory / type(reader).__name__, delivered).run(0.05)
        finally:
            reader.stop()


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
        ("queue", AclOperation.DESCRIBE, "Describe"),
        ("queue", AclOperation.READ, "Read"),
        ("markers", AclOperation.DESCRIBE, "Describe"),
        ("markers", AclOperation.DESCRIBE_CONFIGS, "DescribeConfigs"),
        ("markers", AclOperation.WRITE, "Write"),
        ("redeliveries", AclOperation.READ, "Read"),
        ("cursors", AclOperation.READ, "Read"),
    ],
)
def test_a_query_that_lacks_a_right_names_it_before_any_row_is_delivered(
    guarded: Guarded, topic: str, denied: AclOperation, operation: str
) -> None:
    name = getattr(guarded.control, topic)
    guarded.deny(ResourceType.TOPIC, name, denied)
    with pytest.raises(NotAuthorized) as refused:
        guarded.run(guarded.source())
    assert f"--operation {operation} --topic {name}" in refused.value.acls
    assert f"--operation {operation} --topic {name}" in str(refused.value)


def test_a_query_in_key_order_that_may_not_read_the_markers_says_so_too(guarded: Guarded) -> None:
    guarded.deny(ResourceType.TOPIC, guarded.control.markers, AclOperation.READ)
    with pytest.raises(NotAuthorized, match=f"--operation Read --topic {guarded.control.markers}"):
        guarded.run(guarded.source(ordering="key"))


def test_a_sink_of_handlers_that_may_not_read_the_markers_says_so_before_it_calls_one(
    guarded: Guarded,
) -> None:
    # Only a later attempt of a task reads them.
    guarded.deny(ResourceType.TOPIC, guarded.control.markers, AclOperation.READ)
    options = AckOptions.parse({**guarded.options(), "subscription": "s"})
    with pytest.raises(NotAuthorized, match=f"--operation Read --topic {guarded.control.markers}"):
        markers_of(options)


def test_a_query_that_lacks_the_right_to_its_group_names_it_too(guarded: Guarded) -> None:
    guarded.deny(ResourceType.GROUP, "cursorq-s", AclOperation.READ)
    with pytest.raises(NotAuthorized, match="--operation Read --group cursorq-s"):
        guarded.run(guarded.source())


def test_a_query_that_may_not_report_what_it_has_read_looks_at_the_headers_of_the_batch_again(
    guarded: Guarded,
) -> None:
    control = guarded.control
    guarded.deny(ResourceType.TOPIC, control.redeliveries, AclOperation.WRITE)
    produce(control.config, control.queue, [{"value": b"x", "headers": {"deliverAfter": "1h"}}])
    options = {**guarded.options(), "subscribe": control.queue, "subscription": "s", "ackMode": "batch"}
    with closing(Planner(SourceOptions.parse(options))) as planner:
        start = planner.initial_offset()
        end = planner.latest_offset(start, max_offsets=None)
        planned = planner.plan(start, end)
        assert (len(planned.tasks), planned.report_to) == (1, None)
        planner.completed(end)
    markers = [marker_wire.decode(m.key(), m.value()) for m in read_all(control.config, control.markers)]
    ends = {type(one): one.offsets for one in markers if isinstance(one, (Release, EndLeased))}
    assert ends == {Release: OffsetSet.of((1, 2)), EndLeased: OffsetSet.of((0, 1))}


@pytest.mark.parametrize(
    ("topic", "denied", "operation"),
    [
        ("markers", AclOperation.READ, "Read"),
        ("markers", AclOperation.WRITE, "Write"),
        ("redeliveries", AclOperation.WRITE, "Write"),
        ("cursors", AclOperation.READ, "Read"),
        ("cursors", AclOperation.WRITE, "Write"),
    ],
)
def test_a_tracker_that_lacks_a_right_names_it_before_it_reads(
    guarded: Guarded, topic: str, denied: AclOperation, operation: str
) -> None:
    name = getattr(guarded.control, topic)
    guarded.deny(ResourceType.TOPIC, name, denied)
    with pytest.raises(NotAuthorized) as refused:
        guarded.run(guarded.tracker())
    assert f"--operation {operation} --topic {name}" in refused.value.acls


@pytest.mark.parametrize(
    ("kind", "name", "denied", "grant"),
    [
        (
            ResourceType.TOPIC,
            "cursors-{}",
            AclOperation.WRITE,
            "--operation Write --topic cursors-{}",
        ),
        (
            ResourceType.GROUP,
            "cursorq-tracker-markers-{}",
            AclOperation.READ,
            "--operation Read --group cursorq-tracker-markers-{}",
        ),
        (
            ResourceType.TRANSACTIONAL_ID,
            "cursorq-tracker-markers-{}/",
            AclOperation.WRITE,
            "--operation Write --transactional-id cursorq-tracker-markers-{} "
            "--resource-pattern-type prefixed",
        ),
    ],
    ids=["topic", "group", "transactional-id"],
)
def test_a_tracker_without_spark_that_lacks_a_right_ends_and_names_it(
    guarded: Guarded, kind: ResourceType, name: str, denied: AclOperation, grant: str
) -> None:
    own = guarded.control.name
    guarded.deny(kind, name.format(own), denied)
    with Tracker(guarded.options()) as tracker:
        with pytest.raises(NotAuthorized) as refused:
            tracker.wait(PATIENCE_S)
        tracker.failure = None
    assert grant.format(own) in {*refused.value.acls, *refused.value.unknown}


@pytest.mark.parametrize(
    ("operation", "denied"),
    [("Read", AclOperation.READ), ("Write", AclOperation.WRITE), ("Create", AclOperation.CREATE)],
)
def test_a_tracker_that_lacks_a_right_to_its_rescue_topic_ends_and_names_it(
    guarded: Guarded, operation: str, denied: AclOperation
) -> None:
    rescue = f"rescue-{guarded.control.name}"
    if operation != "Create":
        ClusterAdmin(guarded.control.config).ensure_rescue(rescue)
    guarded.deny(ResourceType.TOPIC, rescue, denied)
    with Tracker({**guarded.options(), "rescueBefore": "1h", "rescueTopic": rescue}) as tracker:
        with pytest.raises(NotAuthorized) as refused:
            tracker.wait(PATIENCE_S)
        tracker.failure = None
    assert f"--operation {operation} --topic {rescue}" in refused.value.acls


@pytest.fixture
def with_cursor(guarded: Guarded) -> Guarded:
    """The same, where the tracker knows a subscription of the queue."""
    control = guarded.control
    cursor = replace(cursor_of(cell_of(control.queue, subscription="s"), 0), next_marker=0)
    produce(control.config, control.cursors, [{"key": cursor.cell.key, "value": cursor_wire.encode(cursor)}])
    return guarded


def test_an_operator_who_may_not_write_markers_is_told_the_right(with_cursor: Guarded) -> None:
    control = with_cursor.control
    with_cursor.allow_only(
        [
            (ResourceType.TOPIC, control.cursors, AclOperation.READ),
            (ResourceType.TOPIC, control.markers, AclOperation.READ),
        ]
    )
    names = control.topics
    with pytest.raises(NotAuthorized) as refused:
        pause_subscription(with_cursor.kafka(), "s", **names)
    assert refused.value.acls == (f"--operation Write --topic {control.markers}",)


def test_a_subscription_that_its_operator_may_not_create_leaves_no_offsets(guarded: Guarded) -> None:
    control = guarded.control
    guarded.deny(ResourceType.TOPIC, control.markers, AclOperation.WRITE)
    names = control.topics
    with (
        Subscriptions(guarded.kafka(), **names) as subscriptions,
        pytest.raises(NotAuthorized, match=f"--operation Write --topic {control.markers}"),
    ):
        subscriptions.create("new", control.queue, EARLIEST)
    assert not ClusterAdmin(control.config).committed("cursorq-new", [(control.queue, 0)])


def test_a_commit_that_is_refused_names_the_right_to_the_topic_or_to_the_group() -> None:
    topic = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    group = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    refused = [
        refusal_of_offsets(error, operation=COMMIT, topic="orders", group="cursorq-s")
        for error in (topic, group)
    ]
    assert [one.acls for one in refused if isinstance(one, NotAuthorized)] == [
        ("--operation Read --topic orders",),
        ("--operation Read --group cursorq-s",),
    ]


def test_a_query_that_has_no_rights_is_told_of_all_at_once(guarded: Guarded) -> None:
    control = guarded.control
    guarded.allow_only([])
    with pytest.raises(NotAuthorized) as refused:
        guarded.run(guarded.source())
    assert {*refused.value.acls, *refused.value.unknown} >= {
        f"--operation Read --topic {control.queue}",
        f"--operation Write --topic {control.markers}",
        f"--operation DescribeConfigs --topic {control.markers}",
        f"--operation Read --topic {control.redeliveries}",
        f"--operation Read --topic {control.cursors}",
        "--operation Read --group cursorq-s",
    }


def test_a_tracker_without_rights_is_told_of_all_at_once_dead_letters_among_them(
    with_cursor: Guarded,
) -> None:
    control, group = with_cursor.control, f"cursorq-tracker-{with_cursor.control.markers}"
    with_cursor.allow_only([(ResourceType.TOPIC, control.cursors, AclOperation.READ)])
    with pytest.raises(NotAuthorized) as refused:
        with_cursor.run(with_cursor.tracker())
    assert set(refused.value.acls) >= {
        f"--operation Read --topic {control.markers}",
        f"--operation Write --topic {control.redeliveries}",
        f"--operation Write --topic {control.cursors}",
        f"--operation Read --topic {control.queue}",
        f"--operation Create --topic {control.queue}-s-DLQ",
        f"--operation Write --topic {control.queue}-s-DLQ",
        f"--operation Read --group {group}",
    }
    assert refused.value.unknown == (f"--operation Write --transactional-id {group}",)


def test_a_tracker_that_may_not_write_dead_letters_says_so_at_its_start_and_works(
    with_cursor: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    letters = f"{with_cursor.control.queue}-s-DLQ"
    with_cursor.deny(ResourceType.TOPIC, letters, AclOperation.CREATE)
    with caplog.at_level("ERROR"), pytest.raises(DeliveredError):
        with_cursor.run(with_cursor.tracker())
    assert f"--operation Create --topic {letters}" in caplog.text


def test_a_write_that_lacks_rights_is_told_of_all_at_once_before_its_first_task(guarded: Guarded) -> None:
    guarded.allow_only([])
    with pytest.raises(NotAuthorized) as refused:
        guarded.writer("value", topic=guarded.control.queue)
    assert set(refused.value.acls) == {
        f"--operation Describe --topic {guarded.control.queue}",
        f"--operation Write --topic {guarded.control.queue}",
        f"--operation Describe --topic {guarded.control.streams}",
        f"--operation Read --topic {guarded.control.streams}",
    }


def test_a_write_whose_rows_name_the_topics_asks_for_all_of_them_before_it_sends_a_row(
    guarded: Guarded,
) -> None:
    control = guarded.control
    denied = [f"{control.queue}-{number}" for number in (1, 2)]
    ClusterAdmin(control.config).create(dict.fromkeys(denied, (1, {})))
    for name in denied:
        guarded.deny(ResourceType.TOPIC, name, AclOperation.WRITE)
    writer = guarded.writer("topic", "value")
    rows = pa.record_batch({"topic": [control.queue, *denied], "value": ["v", "v", "v"]})
    with pytest.raises(NotAuthorized) as refused:
        writer.write(iter([rows]))
    assert set(refused.value.acls) == {f"--operation Write --topic {name}" for name in denied}
    assert [record.value() for record in read_all(control.config, control.queue)] == [b"x"]


def test_a_queue_producer_that_lacks_rights_is_told_of_all_at_once(guarded: Guarded) -> None:
    guarded.allow_only([])
    config = ServiceConfig(
        message_topic=guarded.control.queue, streams_topic=guarded.control.streams, kafka=guarded.kafka()
    )
    with Service(config).queue("q").producer() as producer, pytest.raises(NotAuthorized) as refused:
        producer.send(b"x")
    assert f"--operation Write --topic {guarded.control.queue}" in refused.value.acls
    assert f"--operation Read --topic {guarded.control.streams}" in refused.value.acls


def test_the_rights_of_writes_on_the_page_are_enough(guarded: Guarded) -> None:
    control = guarded.control
    guarded.allow_only(
        [
            (ResourceType.TOPIC, control.queue, AclOperation.DESCRIBE),
            (ResourceType.TOPIC, control.queue, AclOperation.WRITE),
            (ResourceType.TOPIC, control.streams, AclOperation.DESCRIBE),
            (ResourceType.TOPIC, control.streams, AclOperation.READ),
        ]
    )
    guarded.writer("value", topic=control.queue).write(iter([pa.record_batch({"value": ["v"]})]))
    assert [record.value() for record in read_all(control.config, control.queue)] == [b"x", b"v"]


PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "permissions.md"


def rights_of_the_page(
    control: Control, column: int, group: str
) -> list[tuple[ResourceType, str, AclOperation]]:
    """The rights in a column of the page's table: 1 is for consumers, 2 for the tracker."""
    table = PAGE.read_text(encoding="utf-8").split("| resource | consumers | tracker |")[1]
    resources = {
        "`__cursorq_markers`": (ResourceType.TOPIC, control.markers),
        "`__cursorq_redeliveries`": (ResourceType.TOPIC, control.redeliveries),
        "`__cursors`": (ResourceType.TOPIC, control.cursors),
        "`__cursorq_streams`": (ResourceType.TOPIC, "__cursorq_streams"),
        "`__cursorq_rescue`, with `rescueBefore`": (ResourceType.TOPIC, "__cursorq_rescue"),
        "queue topics": (ResourceType.TOPIC, control.queue),
        "dead letters, `{topic}-{subscription}-DLQ`": (ResourceType.TOPIC, f"{control.queue}-s-DLQ"),
        "group": (ResourceType.GROUP, group),
        "transactional id": (ResourceType.TRANSACTIONAL_ID, group),
    }
    rights = []
    for line in table.split("\n\n")[0].splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for word in re.findall(r"\b(?:Create|DescribeConfigs|Describe|Read|Write)\b", cells[column]):
            operation = AclOperation["DESCRIBE_CONFIGS" if word == "DescribeConfigs" else word.upper()]
            rights.append((*resources[cells[0]], operation))
    return rights


def test_the_rights_of_consumers_on_the_page_are_enough(guarded: Guarded) -> None:
    rights = rights_of_the_page(guarded.control, 1, "cursorq-s")
    assert len(rights) > 8
    guarded.allow_only(rights)
    with pytest.raises(DeliveredError):
        guarded.run(guarded.source())


def test_the_rights_of_the_tracker_on_the_page_are_enough(with_cursor: Guarded) -> None:
    group = f"cursorq-tracker-{with_cursor.control.markers}"
    rights = rights_of_the_page(with_cursor.control, 2, group)
    assert len(rights) > 8
    with_cursor.allow_only(rights)
    with pytest.raises(DeliveredError):
        with_cursor.run(with_cursor.tracker())
