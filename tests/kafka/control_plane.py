"""What the tests of control topics have in common: names, records in and out, values made short."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import Available, CursorSnapshot
from spark_cursor_source.core.marker import Marker
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.subscription_type import group_id
from spark_cursor_source.core.tracker import DeadLetter, Decision, Redeliver
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.tracker.outbox import Outbox, tracker_group
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import redelivery as redelivery_wire
from tests.waiting import wait_until

PARTITIONS = 8


@dataclass(frozen=True)
class Control:
    """The control topics of one test."""

    config: dict[str, str]
    name: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    @property
    def markers(self) -> str:
        return f"markers-{self.name}"

    @property
    def redeliveries(self) -> str:
        return f"redeliveries-{self.name}"

    @property
    def cursors(self) -> str:
        return f"cursors-{self.name}"

    @property
    def streams(self) -> str:
        return f"streams-{self.name}"

    @property
    def topics(self) -> dict[str, str]:
        """Arguments of functions that talk to the tracker."""
        return {"markers_topic": self.markers, "cursors_topic": self.cursors}

    @property
    def queue(self) -> str:
        return f"queue-{self.name}"

    @property
    def group_prefix(self) -> str:
        """Of this test's consumer groups: a group that other tests use too has other members."""
        return f"groups-{self.name}"

    @property
    def groups(self) -> dict[str, str]:
        """The prefix, as an argument of functions and settings."""
        return {"group_id_prefix": self.group_prefix}

    def group(self, subscription: str) -> str:
        """The consumer group of a subscription."""
        return group_id(self.group_prefix, subscription)

    @property
    def names(self) -> dict[str, str]:
        """The options that name these topics."""
        return {
            "markersTopic": self.markers,
            "redeliveriesTopic": self.redeliveries,
            "cursorsTopic": self.cursors,
        }

    def create(self, partitions: int = PARTITIONS) -> Control:
        """Create the topics that do not exist, with so many partitions."""
        ClusterAdmin(self.config).ensure_control(
            markers=self.markers,
            redeliveries=self.redeliveries,
            cursors=self.cursors,
            partitions=partitions,
        )
        return self

    def write(self, *markers: Marker) -> None:
        """Append markers, as a member of a subscription does."""
        count = ClusterAdmin(self.config).describe([self.markers])[self.markers].partitions
        with closing(MarkerSender(self.config, self.markers, count)) as sender:
            sender.send(markers)
            sender.flush()

    def options(self, **more: Any) -> dict[str, Any]:
        """Options of a source, a sink or a tracker of these topics; names in ``more`` are Spark's."""
        return {**{f"kafka.{name}": value for name, value in self.config.items()}, **self.names, **more}


def control_on(broker: EmbeddedKafka, *name: str) -> Control:
    """Control topics of this name on a broker, or of a new name; they need not exist."""
    return Control({"bootstrap.servers": broker.bootstrap_servers}, *name)


def of_worker(name: str) -> str:
    """The name of control topics that several tests of this worker share: all workers have one broker."""
    return f"{name}-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"


def login(user: str, password: str) -> dict[str, str]:
    """Of a client that does not complain when its broker rests."""
    return {
        "log_level": "0",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


def allow_bob(control: Control, topics: Mapping[str, AclOperation]) -> None:
    """Let bob do what a tracker does with its control topics, and to each of these topics what it says."""
    own = (control.markers, control.redeliveries, control.cursors)
    tracker = tracker_group(control.markers)
    allowed = [
        *((ResourceType.TOPIC, name, AclOperation.ALL) for name in own),
        *((ResourceType.TOPIC, name, operation) for name, operation in topics.items()),
        (ResourceType.GROUP, tracker, AclOperation.ALL),
        (ResourceType.TRANSACTIONAL_ID, tracker, AclOperation.ALL),
    ]
    administrator = AdminClient(control.config)
    for kind, name, operation in allowed:
        bind_bob(administrator, kind, name, operation, AclPermissionType.ALLOW)


def bind_bob(
    admin: AdminClient,
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    permission: AclPermissionType,
) -> None:
    """Give bob a right or deny it to him, and wait until the broker knows."""
    # A tracker without Spark has ids that begin with the name of its group.
    by_prefix = kind is ResourceType.TRANSACTIONAL_ID and name != "*"
    pattern = ResourcePatternType.PREFIXED if by_prefix else ResourcePatternType.LITERAL
    given = (kind, name, pattern, "User:bob", "*", operation, permission)
    binding, same = AclBinding(*given), AclBindingFilter(*given)
    admin.create_acls([binding])[binding].result(timeout=20)
    wait_until(lambda: bool(admin.describe_acls(same).result(timeout=20)))


def new_control(config: dict[str, str]) -> Control:
    """Control topics of a test's own, which are there."""
    return Control(config).create()


class EncodingOutbox(Outbox):
    """An outbox that takes decisions and cursors as values."""

    def carry_out(  # type: ignore[override]
        self, batch_id: int, *, decisions: Sequence[Decision], cursors: Sequence[CursorSnapshot], **what: Any
    ) -> bool:
        return super().carry_out(
            batch_id,
            announcements=[
                (one.cell.key, redelivery_wire.encode(one)) for one in decisions if isinstance(one, Redeliver)
            ],
            dead_letters=[one for one in decisions if isinstance(one, DeadLetter)],
            cursors={one.cell.key: cursor_wire.encode(one) for one in cursors},
            **what,
        )


def outbox_of(control: Control, query_id: str = "query", **settings: Any) -> EncodingOutbox:
    """A tracker's outbox of these control topics, not opened yet; ``settings`` are further arguments."""
    given: dict[str, Any] = {
        "config": control.config,
        "policy_for": lambda name: RedeliveryPolicy(),
    } | settings
    return EncodingOutbox(
        given.pop("config"),
        **control.topics,
        redeliveries_topic=control.redeliveries,
        query_id=query_id,
        **given,
    )


def offsets(*ranges: tuple[int, int]) -> OffsetSet:
    return OffsetSet.of(*ranges)


def cell_of(topic: str, partition: int = 0, subscription: str = "billing") -> Cell:
    return Cell(subscription=subscription, topic=topic, partition=partition)


def cursor_of(cell: Cell, read_position: int, *waiting: tuple[int, int]) -> CursorSnapshot:
    available = ((Available(1, False), offsets(*waiting)),) if waiting else ()
    return CursorSnapshot(cell=cell, read_position=read_position, next_marker=7, available=available)


def redeliver_of(cell: Cell, *ranges: tuple[int, int], run_id: str = "run") -> Redeliver:
    return Redeliver(cell=cell, offsets=offsets(*ranges), delivery_count=1, run_id=run_id, alone=False)


def dead_letter_of(cell: Cell, *ranges: tuple[int, int], reason: str = "bad", count: int = 3) -> DeadLetter:
    return DeadLetter(cell=cell, offsets=offsets(*ranges), delivery_count=count, reason=reason)


def ordered_producer(config: Mapping[str, str]) -> Producer:
    """A producer that keeps the order although a new topic refuses the first request.

    It is not idempotent: that would wait half a second for its id. Nothing is sent before the flush, so that
    a query sees all of what is written to a partition at once, or none.
    """
    return Producer({**config, "linger.ms": 60_000, "max.in.flight.requests.per.connection": 1})


def produce(config: dict[str, str], topic: str, records: Iterable[dict[str, Any]]) -> None:
    """Records as keyword arguments of ``Producer.produce``; partition 0 unless they say otherwise."""
    producer = ordered_producer(config)
    failures: list[KafkaError] = []

    def confirmed(error: KafkaError | None, _: Message) -> None:
        failures.extend([error] if error is not None else [])

    for record in records:
        producer.produce(topic, **({"partition": 0} | record), on_delivery=confirmed)
    assert producer.flush(30) == 0
    assert not failures


def transaction(
    config: dict[str, str], records: Iterable[tuple[str, dict[str, Any]]], *, commit: bool = True
) -> None:
    """Write records in one transaction, and wait until its end is in the log.

    A producer is told of the end before: what is appended then may come between the records and their end.
    """
    last: dict[tuple[str, int], int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        last[str(message.topic()), int(message.partition() or 0)] = int(message.offset() or 0)

    producer = Producer({**config, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    for topic, record in records:
        producer.produce(topic, **({"partition": 0} | record), on_delivery=delivered)
    assert producer.flush(30) == 0
    (producer.commit_transaction if commit else producer.abort_transaction)(30)
    topics = ClusterAdmin(config)
    wait_until(
        lambda: all(end > last[tp] + 1 for tp, end in topics.end_offsets(last, committed=True).items())
    )


def read_all(config: dict[str, str], topic: str, *, committed: bool = True) -> list[Message]:
    """Every record of a topic, by partition and offset."""
    consumer = Consumer(
        {
            **config,
            "group.id": "tests",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": 10,  # the broker answers so late where nothing follows
        }
    )
    count = len(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(count)])
    found: list[Message] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + 30
    while len(ended) < count:
        assert time.monotonic() < deadline, f"{topic}: no end of {count - len(ended)} partitions"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return sorted(found, key=lambda message: (message.partition() or 0, message.offset() or 0))


def stored_at_last(topics: ClusterAdmin, topic: str, count: int) -> int:
    """How many offsets a control topic has, when it has at least so many.

    Confirmed records may be a moment late in the answer to another client.
    """
    places = [(topic, number) for number in range(PARTITIONS)]

    def stored() -> int:
        return sum(topics.end_offsets(places, committed=True).values())

    wait_until(lambda: stored() >= count)
    return stored()


def set_config(admin: AdminClient, topic: str, name: str, value: str) -> None:
    """Set one configuration of a topic, and wait until the broker knows."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([change])[change].result(timeout=20)
    asked = ConfigResource(ResourceType.TOPIC, topic)
    wait_until(lambda: admin.describe_configs([asked])[asked].result(timeout=20)[name].value == value)


def truncation(*, at: int, end: int) -> KafkaError:
    """The error of librdkafka 2.16 for records that an unclean leader election has lost."""
    text = (
        f"Partition log truncation detected at offset {at} (leader epoch 0): broker end offset is {end} "
        "(offset leader epoch 0). Reset to INVALID.: Local: Partition log truncation detected (broker 3)"
    )
    return KafkaError(KafkaError._AUTO_OFFSET_RESET, text)
