"""Publishing methods of the client."""

from __future__ import annotations

from spark_cursor_source.client.streams.arguments import MAX_PARTITION, check_stream, check_subject
from spark_cursor_source.client.streams.parts import Parts
from spark_cursor_source.client.streams.publish import OnAck, Outgoing
from spark_cursor_source.client.streams.receipts import Ack, AckPolicy, Headers, Partitioner
from spark_cursor_source.options.arguments import (
    check_headers,
    check_is_callable,
    check_key_and_value,
    check_number,
    check_text,
    choice,
)
from spark_cursor_source.options.kinds import MAX_LONG

_ack_policy = choice(AckPolicy)


class PublishCalls:
    """Mixin of ``Client`` with the publishing methods."""

    _parts: Parts

    def publish(
        self,
        stream: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Headers = (),
        correlation_id: str | None = None,
        partition: int | None = None,
        partitioner: Partitioner | None = None,
        ack_policy: AckPolicy = AckPolicy.ALL,
        expected_offset: int | None = None,
        timeout_ms: int | None = None,
    ) -> Ack:
        """Appends a message and waits for its ack, for ``timeout_ms`` (default: the client's timeout).

        The partition is ``partition`` if given, else the result of ``partitioner``. Without both, a message
        with a key goes to the partition of its key, and a message without a key goes round robin.
        Each ack policy has its own producer, so messages keep their order within one ack policy.
        The correlation id is stored in the header ``cursorq-correlation-id``.
        With an ``expected_offset``, the message is published only if the partition has no message with that
        offset or a higher one. Pass the offset after the last known message, or the high watermark.

        Raises:
            AckTimeout: the timeout passed first. The message may be stored now or later.
            NoSuchStream: the stream or the partition does not exist.
            ReadonlyPartition, IncorrectOffset: the message is not stored.
            InvalidArgument, ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        check_stream(stream)
        message = _outgoing(
            stream, value, key, headers, correlation_id, partition, partitioner, ack_policy, expected_offset
        )
        return self._parts.streams(timeout_ms=timeout_ms).publishing.publish(message, timeout_ms=timeout_ms)

    def publish_async(
        self,
        stream: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        on_ack: OnAck,
        headers: Headers = (),
        correlation_id: str | None = None,
        partition: int | None = None,
        partitioner: Partitioner | None = None,
        ack_policy: AckPolicy = AckPolicy.ALL,
        expected_offset: int | None = None,
    ) -> None:
        """Appends a message without waiting. Calls ``on_ack`` once with an Ack or an error.

        ``on_ack`` runs in another thread and must return quickly. :meth:`close` waits for messages in flight.

        Raises:
            AckTimeout: the producer's buffer stayed full until the timeout.
            NoSuchStream, ReadonlyPartition
            InvalidArgument, ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        check_stream(stream)
        check_is_callable("on_ack", on_ack)
        message = _outgoing(
            stream, value, key, headers, correlation_id, partition, partitioner, ack_policy, expected_offset
        )
        self._parts.streams().publishing.publish_async(message, on_ack)

    def publish_to_subject(
        self,
        subject: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Headers = (),
        correlation_id: str | None = None,
        ack_policy: AckPolicy = AckPolicy.ALL,
        timeout_ms: int | None = None,
    ) -> tuple[Ack, ...]:
        """Appends a message to each stream attached to the subject. Returns the acks, which may be none.

        A stream is attached to the subject of its creation, or else to its name. In the stream's subject,
        ``*`` matches one word, and ``>`` at the end matches one or more words. The message goes to partition
        0. If ``subject`` is the stream's subject plus ``.3``, the message goes to partition 3.
        The subject is stored in the header ``cursorq-subject``.

        Raises:
            ReadonlyPartition: one of the partitions is readonly. No stream has the message.
            AckTimeout: the timeout passed first. Some streams may have the message.
            InvalidArgument, ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        check_subject(subject, wildcards=False)
        message = _outgoing(subject, value, key, headers, correlation_id, None, None, ack_policy, None)
        publishing = self._parts.streams(timeout_ms=timeout_ms).publishing
        return publishing.publish_to_subject(subject, message, timeout_ms=timeout_ms)


def _outgoing(
    stream: str,
    value: bytes | None,
    key: bytes | None,
    headers: Headers,
    correlation_id: str | None,
    partition: int | None,
    partitioner: Partitioner | None,
    ack_policy: AckPolicy,
    expected_offset: int | None,
) -> Outgoing:
    if expected_offset is not None:
        check_number("expected_offset", expected_offset, least=0, most=MAX_LONG)
    if correlation_id is not None:
        check_text("correlation_id", correlation_id)
    if partition is not None:
        check_number("partition", partition, least=0, most=MAX_PARTITION)
    if partitioner is not None:
        check_is_callable("partitioner", partitioner)
    check_key_and_value(key, value, name="value")
    return Outgoing(
        stream=stream,
        value=value,
        key=key,
        headers=check_headers(headers),
        correlation_id=correlation_id,
        partition=partition,
        partitioner=partitioner,
        ack_policy=_ack_policy("ack_policy", ack_policy),
        expected_offset=expected_offset,
    )
