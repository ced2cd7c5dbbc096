"""Publishes messages to streams: chooses partitions, sends records and creates acks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import ExitStack
from dataclasses import dataclass, replace

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message

from spark_cursor_source.client.streams.admin import Streams
from spark_cursor_source.client.streams.expected_offset import ExpectedOffsets
from spark_cursor_source.client.streams.keeper import StreamKeeper
from spark_cursor_source.client.streams.receipts import (
    HEADER_CORRELATION_ID,
    HEADER_SUBJECT,
    Ack,
    AckPolicy,
    KeyOrRoundRobin,
    Partitioner,
)
from spark_cursor_source.errors import (
    AckTimeout,
    ClientClosed,
    CursorqError,
    InvalidArgument,
    KafkaUnavailable,
    NoSuchStream,
    TopicGone,
    TopicNotFound,
)
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import RETRIABLE, UNKNOWN_TOPIC, error_of, refusal
from spark_cursor_source.kafka.publisher import Publisher
from spark_cursor_source.kafka.transaction import Record
from spark_cursor_source.options.arguments import call_timeout
from spark_cursor_source.topics.streams import StreamStates

OnAck = Callable[[Ack | CursorqError], None]

_ACKS = {AckPolicy.NONE: "0", AckPolicy.LEADER: "1", AckPolicy.ALL: "all"}
_COUNT_PARTITIONS_EVERY_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message to publish, with its publishing arguments."""

    stream: str
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    correlation_id: str | None
    partition: int | None
    partitioner: Partitioner | None
    ack_policy: AckPolicy
    expected_offset: int | None


class StreamPublisher:
    """Publishes with one producer per ack policy, opened on first use. Threads may share an instance."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        streams: Streams,
        states: StreamStates,
        keeper: StreamKeeper,
        expected: ExpectedOffsets,
        *,
        timeout_ms: int,
    ) -> None:
        self._timeout_ms = timeout_ms
        self._streams, self._states, self._keeper, self._expected = streams, states, keeper, expected
        self._in_turn = KeyOrRoundRobin()
        self._lock = threading.Lock()
        self._counts: dict[str, tuple[int, Deadline]] = {}  # stream -> partition count and cache expiry
        self._waiting = ThreadPoolExecutor(1, thread_name_prefix="cursorq-expected")
        config = client_config(kafka, "producer")
        self._publishers = {
            policy: Publisher(config, timeout_ms=timeout_ms, acks=acks) for policy, acks in _ACKS.items()
        }

    def publish(self, message: Outgoing, *, timeout_ms: int | None) -> Ack:
        """Appends a message and waits for the confirmation of its ack policy."""
        deadline = Deadline.after_ms(call_timeout(timeout_ms, self._timeout_ms))
        partition = self._partition_to_write(message, deadline)
        if message.expected_offset is not None:
            return self._publish_expected(message, partition, message.expected_offset, deadline)
        return self._confirmed(message, self._send(message, partition, deadline), deadline)

    def publish_async(self, message: Outgoing, on_ack: OnAck) -> None:
        """Appends a message and passes its ack or error to ``on_ack``."""
        deadline = Deadline.after_ms(self._timeout_ms)
        partition, expected = self._partition_to_write(message, deadline), message.expected_offset
        if expected is not None:
            # One thread, in order: each message moves the end that the next expected offset is compared to.
            try:
                waited = self._waiting.submit(self._publish_expected, message, partition, expected, deadline)
            except RuntimeError:  # the executor was shut down in the meantime
                raise ClientClosed from None
            waited.add_done_callback(lambda done: on_ack(_outcome(done)))
            return

        def tell(sent: Future[Message]) -> None:
            raised = sent.exception()
            if raised is None:
                on_ack(self._acked(message, sent.result()))
            else:
                assert isinstance(raised, KafkaException)
                on_ack(self._failure(message, error_of(raised), deadline))

        self._send(message, partition, deadline).add_done_callback(tell)

    def publish_to_subject(
        self, subject: str, message: Outgoing, *, timeout_ms: int | None
    ) -> tuple[Ack, ...]:
        """Appends a message to each stream attached to the subject and waits for all acks."""
        deadline = Deadline.after_ms(call_timeout(timeout_ms, self._timeout_ms))
        self._keeper.start(deadline)
        headers = (*message.headers, (HEADER_SUBJECT, subject.encode()))
        copies = [
            replace(message, stream=stream, partition=number, headers=headers)
            for stream, number in self._streams.attached(subject, deadline)
        ]
        # All partitions are checked before the first write, so that a readonly one prevents all writes.
        numbers = [self._partition_to_write(copy, deadline) for copy in copies]
        sent = [self._send(copy, number, deadline) for copy, number in zip(copies, numbers, strict=True)]
        return tuple(
            self._confirmed(copy, future, deadline) for copy, future in zip(copies, sent, strict=True)
        )

    def forget(self, stream: str) -> None:
        """Drops the cached partition count of a stream."""
        with self._lock:
            self._counts.pop(stream, None)

    def close(self) -> None:
        """Waits for messages in flight and closes the producers."""
        with ExitStack() as parts:  # each is closed, also after an interrupt of another
            for publisher in self._publishers.values():
                parts.callback(publisher.close)
            parts.callback(self._waiting.shutdown)

    def _partition_to_write(self, message: Outgoing, deadline: Deadline) -> int:
        """Returns the partition of a message. Checks that it is writable and ends its pause."""
        self._keeper.start(deadline)
        number = self._partition_of(message, deadline)
        place = (message.stream, number)
        self._states.view.check_writable(place)
        if message.expected_offset is not None:
            if not self._states.view.of(message.stream).optimistic_concurrency:
                why = "the stream was not created with optimistic_concurrency"
                raise InvalidArgument("expected_offset", message.expected_offset, why)
            if message.ack_policy is not AckPolicy.ALL:
                why = "a message at an expected offset is confirmed by every in-sync replica"
                raise InvalidArgument("ack_policy", message.ack_policy.value, why)
        # The pause ends before the append, so that a stored message is also delivered.
        self._states.published([place], deadline)
        return number

    def _send(self, message: Outgoing, partition: int, deadline: Deadline) -> Future[Message]:
        try:
            return self._publishers[message.ack_policy].send(
                message.stream,
                partition,
                key=message.key,
                value=message.value,
                headers=_headers(message),
                deadline=deadline,
            )
        except KafkaException as raised:
            raise self._failure(message, error_of(raised), deadline) from raised

    def _confirmed(self, message: Outgoing, sent: Future[Message], deadline: Deadline) -> Ack:
        try:
            return self._acked(message, sent.result(deadline.left_s()))
        except FutureTimeout:
            raise AckTimeout(message.stream, message.correlation_id, deadline.spent_ms) from None
        except KafkaException as raised:
            raise self._failure(message, error_of(raised), deadline) from raised

    def _publish_expected(self, message: Outgoing, partition: int, expected: int, deadline: Deadline) -> Ack:
        record = Record(message.stream, partition, message.key, message.value, _headers(message))
        try:
            return self._acked(message, self._expected.publish(record, expected, deadline))
        except KafkaUnavailable as why:
            raise AckTimeout(message.stream, message.correlation_id, deadline.spent_ms) from why
        except (TopicNotFound, TopicGone) as gone:
            self.forget(message.stream)
            raise NoSuchStream(message.stream) from gone

    def _acked(self, message: Outgoing, confirmed: Message) -> Ack:
        ack = _ack(message, confirmed)
        self._keeper.published((ack.stream, ack.partition), ack.offset)
        return ack

    def _failure(self, message: Outgoing, error: KafkaError, deadline: Deadline) -> CursorqError:
        if error.code() in RETRIABLE:
            return AckTimeout(message.stream, message.correlation_id, deadline.spent_ms)
        if error.code() in UNKNOWN_TOPIC:
            self.forget(message.stream)  # it may be recreated with fewer partitions
            return NoSuchStream(message.stream)
        return refusal(error, operation="publish", resource=message.stream)

    def _partition_of(self, message: Outgoing, deadline: Deadline) -> int:
        partitions, wanted = self._count(message.stream, deadline), message.partition
        if wanted is not None:
            if wanted >= partitions:
                self.forget(message.stream)  # the partition may be new
                partitions = self._count(message.stream, deadline)
            if not 0 <= wanted < partitions:
                raise NoSuchStream(message.stream, wanted)
            return wanted
        chosen = (message.partitioner or self._in_turn)(message.key, message.value, partitions)
        if not 0 <= chosen < partitions:
            raise InvalidArgument("partitioner", chosen, f"the stream has partitions 0 to {partitions - 1}")
        return chosen

    def _count(self, stream: str, deadline: Deadline) -> int:
        with self._lock:
            known = self._counts.get(stream)
        if known is not None and not known[1].over:
            return known[0]
        partitions = self._streams.info(stream, deadline).partitions
        with self._lock:
            self._counts[stream] = (partitions, Deadline.after_ms(_COUNT_PARTITIONS_EVERY_MS))
        return partitions


def _headers(message: Outgoing) -> Sequence[tuple[str, bytes | None]]:
    if message.correlation_id is None:
        return message.headers
    return (*message.headers, (HEADER_CORRELATION_ID, message.correlation_id.encode()))


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


def _outcome(done: Future[Ack]) -> Ack | CursorqError:
    raised = done.exception()
    if raised is None:
        return done.result()
    assert isinstance(raised, CursorqError)
    return raised
