"""Streams of the client: topics made and deleted, and messages appended to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message

from spark_cursor_source.core.publish import Ack, AckPolicy, KeyOrRoundRobin, Partitioner
from spark_cursor_source.core.stream_metadata import PartitionMetadata
from spark_cursor_source.errors import (
    AckTimeout,
    CursorqError,
    InvalidArgument,
    NoSuchStream,
    StreamExists,
    TopicGone,
    TopicNotFound,
)
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.failures import RETRIABLE, UNKNOWN_TOPIC, error_of, refusal
from spark_cursor_source.kafka.publisher import Publisher
from spark_cursor_source.kafka.topics import Topics

HEADER_CORRELATION_ID = "cursorq-correlation-id"

Headers = Sequence[tuple[str, bytes | None]]
OnAck = Callable[[Ack | CursorqError], None]

_ACKS = {AckPolicy.NONE: "0", AckPolicy.LEADER: "1", AckPolicy.ALL: "all"}
_COUNT_PARTITIONS_EVERY_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message that is to be published."""

    stream: str
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    correlation_id: str | None
    partition: int | None
    partitioner: Partitioner | None
    ack_policy: AckPolicy


class Streams:
    """One producer for each ack policy, opened when it is first used. Threads may share it."""

    def __init__(self, kafka: Mapping[str, str], *, timeout_ms: int) -> None:
        self._config, self._timeout_ms = client_config(kafka, "producer"), timeout_ms
        self._topics = Topics(client_config(kafka, "admin"), timeout_ms=timeout_ms)
        self._in_turn = KeyOrRoundRobin()
        self._lock = threading.Lock()
        self._counts: dict[str, tuple[int, Deadline]] = {}  # stream -> its partitions, for how long
        self._publishers = {
            policy: Publisher(self._config, timeout_ms=timeout_ms, acks=acks)
            for policy, acks in _ACKS.items()
        }

    def create(
        self, stream: str, partitions: int, settings: Mapping[str, object], *, replication: int | None
    ) -> None:
        """Make a topic, and wait for its leaders; StreamExists if there is one."""
        if not self._topics.create_new(stream, partitions, settings, replication=replication):
            raise StreamExists(stream)

    def delete(self, stream: str) -> None:
        """Delete a topic; NoSuchStream if there is none."""
        with self._lock:
            self._counts.pop(stream, None)
        if not self._topics.delete(stream):
            raise NoSuchStream(stream)

    def partition_metadata(self, stream: str, partition: int) -> PartitionMetadata:
        """What the brokers say of a partition now; NoSuchStream if there is none."""
        placements = self._topics.placements(stream)
        if partition not in placements:
            raise NoSuchStream(stream, partition if placements else None)
        leader, replicas, in_sync = placements[partition]
        place = (stream, partition)
        try:
            end = self._topics.end_offsets([place], committed=False)[place]
            return PartitionMetadata(
                stream=stream,
                partition=partition,
                leader=leader,
                replicas=replicas,
                in_sync=in_sync,
                oldest_offset=self._topics.beginning_offsets([place])[place],
                high_watermark=end,
            )
        except (TopicNotFound, TopicGone) as gone:
            raise NoSuchStream(stream) from gone

    def partition_counts(self) -> dict[str, int]:
        """How many partitions each topic has, but for those of the brokers themselves."""
        found = self._topics.existing(self._topics.matching(".*"))
        return {name: info.partitions for name, info in found.items()}

    def publish(self, message: Outgoing, *, timeout_ms: int | None) -> Ack:
        """Append a message, and wait until it is confirmed as its policy says."""
        deadline = Deadline.after_ms(self._timeout_ms if timeout_ms is None else timeout_ms)
        sent = self._send(message, deadline)
        try:
            return _ack(message, sent.result(deadline.left_s()))
        except FutureTimeout:
            raise AckTimeout(message.stream, message.correlation_id, deadline.spent_ms) from None
        except KafkaException as raised:
            raise _failure(message, error_of(raised), deadline) from raised

    def publish_async(self, message: Outgoing, on_ack: OnAck) -> None:
        """Append a message; what became of it is told to ``on_ack``."""
        deadline = Deadline.after_ms(self._timeout_ms)

        def tell(sent: Future[Message]) -> None:
            raised = sent.exception()
            if raised is None:
                on_ack(_ack(message, sent.result()))
            else:
                assert isinstance(raised, KafkaException)
                on_ack(_failure(message, error_of(raised), deadline))

        self._send(message, deadline).add_done_callback(tell)

    def close(self) -> None:
        """Wait for what is on its way, and end the producers."""
        for publisher in self._publishers.values():
            publisher.close()

    def _send(self, message: Outgoing, deadline: Deadline) -> Future[Message]:
        headers = message.headers
        if message.correlation_id is not None:
            headers = (*headers, (HEADER_CORRELATION_ID, message.correlation_id.encode()))
        partition = self._partition_of(message)
        try:
            return self._publishers[message.ack_policy].send(
                message.stream,
                partition,
                key=message.key,
                value=message.value,
                headers=headers,
                deadline=deadline,
            )
        except KafkaException as raised:
            raise _failure(message, error_of(raised), deadline) from raised

    def _partition_of(self, message: Outgoing) -> int:
        partitions = self._count(message.stream)
        if message.partition is not None:
            if not 0 <= message.partition < partitions:
                raise NoSuchStream(message.stream, message.partition)
            return message.partition
        chosen = (message.partitioner or self._in_turn)(message.key, message.value, partitions)
        if not 0 <= chosen < partitions:
            raise InvalidArgument("partitioner", chosen, f"the stream has partitions 0 to {partitions - 1}")
        return chosen

    def _count(self, stream: str) -> int:
        with self._lock:
            known = self._counts.get(stream)
        if known is not None and not known[1].over:
            return known[0]
        try:
            partitions = self._topics.describe([stream])[stream].partitions
        except TopicNotFound as missing:
            raise NoSuchStream(stream) from missing
        with self._lock:
            self._counts[stream] = (partitions, Deadline.after_ms(_COUNT_PARTITIONS_EVERY_MS))
        return partitions


def _ack(message: Outgoing, confirmed: Message) -> Ack:
    partition, offset, (kind, at_ms) = confirmed.partition(), confirmed.offset(), confirmed.timestamp()
    assert partition is not None
    return Ack(
        stream=message.stream,
        partition=partition,
        offset=offset if offset is not None and offset >= 0 else None,
        correlation_id=message.correlation_id,
        ack_policy=message.ack_policy,
        received_at_ms=at_ms if kind == TIMESTAMP_LOG_APPEND_TIME else None,
    )


def _failure(message: Outgoing, error: KafkaError, deadline: Deadline) -> CursorqError:
    if error.code() in RETRIABLE:
        return AckTimeout(message.stream, message.correlation_id, deadline.spent_ms)
    if error.code() in UNKNOWN_TOPIC:
        return NoSuchStream(message.stream)
    return refusal(error, operation="publish", resource=message.stream)
