"""The client's calls that publish."""

from __future__ import annotations

from spark_cursor_source.client.streams.arguments import check_number, check_stream, check_subject
from spark_cursor_source.client.streams.parts import Parts
from spark_cursor_source.client.streams.publish import OnAck, Outgoing
from spark_cursor_source.client.streams.receipts import Ack, AckPolicy, Headers, Partitioner
from spark_cursor_source.options.reader import MAX_LONG


class PublishCalls:
    """Messages are added to streams."""

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
        """Append a message, and wait for its ack, for ``timeout_ms`` or else the client's.

        ``partition`` says where; else the ``partitioner``; else the key, and the next in turn without one.
        Messages of one ack policy keep their order; each policy has a producer of its own.
        A correlation id travels with the message, in the header ``cursorq-correlation-id``.
        With an ``expected_offset`` it is published only if the partition has no message of that offset or a
        higher one: give the offset after the last message that you know, or the high watermark.

        Raises:
            AckTimeout: it may be there all the same, or come later.
            NoSuchStream: the stream, or that partition, does not exist.
            ReadonlyPartition, IncorrectOffset: it is not there, nor will be.
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
        """The same without the wait: ``on_ack`` is called once, from another thread, with an Ack or an error.

        It must not take long. :meth:`close` waits for what is on its way.

        Raises:
            AckTimeout: there was no room for the message in time.
            NoSuchStream, ReadonlyPartition
            InvalidArgument, ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        check_stream(stream)
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
        """Append a message to each stream that listens to the subject; their acks, none if nobody listens.

        A stream listens to the subject it was created with, in which ``*`` stands for a word and ``>`` for
        one or more at the end, or to its name. The message goes to partition 0, and to partition 3 if the
        subject is the stream's with ``.3`` behind it. The subject travels in the header ``cursorq-subject``.

        Raises:
            ReadonlyPartition: one of the streams takes none, and no stream has the message.
            AckTimeout: some of them may have it.
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
    return Outgoing(
        stream=stream,
        value=value,
        key=key,
        headers=tuple(headers),
        correlation_id=correlation_id,
        partition=partition,
        partitioner=partitioner,
        ack_policy=ack_policy,
        expected_offset=expected_offset,
    )
