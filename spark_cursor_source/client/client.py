"""One object for a service: what it opens is opened when first used, and ends with it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.client_options import ClientOptions
from spark_cursor_source.core.option_reader import MAX_LONG
from spark_cursor_source.core.plain_cursor import NO_OFFSET, PlainCursor
from spark_cursor_source.core.publish import Ack, AckPolicy, Partitioner
from spark_cursor_source.core.stream_metadata import PartitionMetadata
from spark_cursor_source.core.topic_names import why_no_topic
from spark_cursor_source.errors import ClientClosed, InvalidArgument
from spark_cursor_source.kafka.plain_cursors import PlainCursors
from spark_cursor_source.kafka.streams import Headers, OnAck, Outgoing, Streams

_MAX_PARTITION = 2**31 - 1


class Client:
    """A client of the brokers that the options name; threads may share it, forked processes may not.

    A call waits ``clientTimeout`` (30 s) for brokers that are away, and then raises KafkaUnavailable.

    >>> options = {"kafka.bootstrap.servers": "broker:9092"}
    >>> with Client(options) as client:  # doctest: +SKIP
    ...     client.set_cursor("mailer", "orders", 0, 41)
    ...     client.fetch_cursor("mailer", "orders", 0)
    41
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises OptionsError; nothing is asked of the brokers yet."""
        self._options = ClientOptions.parse(options)
        self._lock = threading.Lock()
        self._cursors: PlainCursors | None = None
        self._streams: Streams | None = None
        self._closed = False

    def set_cursor(
        self, cursor_id: str, stream: str, partition: int, offset: int, *, epoch: int | None = None
    ) -> None:
        """Keep ``offset`` under (cursor id, stream, partition), durably.

        Of concurrent setters the last to be written wins. With an ``epoch`` a cursor is fenced: who comes
        with a lower one, or without, is refused, so that an owner who was replaced moves it no more.

        Raises:
            CursorFenced: it was set with a higher epoch.
            CursorOfTracker: it is the cursor of a subscription.
            InvalidArgument, ClientClosed
            KafkaUnavailable: it may be set all the same, or be so later.
            CursorsTopicNotCompacted, InvalidControlRecord, NotAuthorized, KafkaRefused
        """
        cell = _cell(cursor_id, stream, partition)
        _check_number("offset", offset, least=NO_OFFSET, most=MAX_LONG)
        if epoch is not None:
            _check_number("epoch", epoch, least=0, most=MAX_LONG)
        self._open_cursors().set(PlainCursor(cell=cell, offset=offset, epoch=epoch))

    def fetch_cursor(self, cursor_id: str, stream: str, partition: int) -> int:
        """The offset that was set last, by any process, before this call; -1 if there is none.

        With a subscription's name for the cursor id it is that subscription's mark-delete position.

        Raises:
            InvalidArgument, ClientClosed
            KafkaUnavailable, CursorsTopicNotCompacted, InvalidControlRecord, NotAuthorized, KafkaRefused
        """
        found = self._open_cursors().get(_cell(cursor_id, stream, partition))
        return NO_OFFSET if found is None else found.offset

    def create_stream(
        self,
        stream: str,
        partitions: int = 1,
        *,
        replication: int | None = None,
        retention_bytes: int | None = None,
        retention_ms: int | None = None,
        segment_bytes: int | None = None,
        segment_ms: int | None = None,
        compaction: bool = False,
        min_insync: int | None = None,
    ) -> None:
        """Make a stream, a Kafka topic, and wait until it can be used; None: as the brokers have it.

        Raises:
            StreamExists: it stays as it is.
            InvalidArgument, ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        _check_stream(stream)
        _check_number("partitions", partitions, least=1, most=_MAX_PARTITION)
        settings = {
            "retention.bytes": retention_bytes,
            "retention.ms": retention_ms,
            "segment.bytes": segment_bytes,
            "segment.ms": segment_ms,
            "min.insync.replicas": min_insync,
            "cleanup.policy": "compact" if compaction else None,
        }
        given = {name: value for name, value in settings.items() if value is not None}
        self._open_streams().create(stream, partitions, given, replication=replication)

    def delete_stream(self, stream: str) -> None:
        """Delete a stream with all its messages.

        Raises:
            NoSuchStream
            InvalidArgument, ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        _check_stream(stream)
        self._open_streams().delete(stream)

    def fetch_metadata(self) -> dict[str, int]:
        """How many partitions each stream has, as the brokers say now.

        Raises:
            ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        return self._open_streams().partition_counts()

    def fetch_partition_metadata(self, stream: str, partition: int) -> PartitionMetadata:
        """Leader, replicas and offsets of a partition, as the brokers say now.

        Raises:
            NoSuchStream
            InvalidArgument, ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        _check_stream(stream)
        return self._open_streams().partition_metadata(stream, partition)

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
        timeout_ms: int | None = None,
    ) -> Ack:
        """Append a message, and wait for its ack, for ``timeout_ms`` or else the client's.

        ``partition`` says where; else the ``partitioner``; else the key, and the next in turn without one.
        Messages of one ack policy keep their order; each policy has a producer of its own.
        A correlation id travels with the message, in the header ``cursorq-correlation-id``.

        Raises:
            AckTimeout: it may be there all the same, or come later.
            NoSuchStream: the stream, or that partition, does not exist.
            InvalidArgument, ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        _check_stream(stream)
        message = Outgoing(
            stream=stream,
            value=value,
            key=key,
            headers=tuple(headers),
            correlation_id=correlation_id,
            partition=partition,
            partitioner=partitioner,
            ack_policy=ack_policy,
        )
        return self._open_streams().publish(message, timeout_ms=timeout_ms)

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
    ) -> None:
        """The same without the wait: ``on_ack`` is called once, from another thread, with an Ack or an error.

        It must not take long. :meth:`close` waits for what is on its way.

        Raises:
            AckTimeout: there was no room for the message in time.
            NoSuchStream, InvalidArgument, ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        _check_stream(stream)
        message = Outgoing(
            stream=stream,
            value=value,
            key=key,
            headers=tuple(headers),
            correlation_id=correlation_id,
            partition=partition,
            partitioner=partitioner,
            ack_policy=ack_policy,
        )
        self._open_streams().publish_async(message, on_ack)

    def close(self) -> None:
        """End the client; to close it again does nothing."""
        with self._lock:
            cursors, self._cursors = self._cursors, None
            streams, self._streams = self._streams, None
            self._closed = True
        if streams is not None:
            streams.close()
        if cursors is not None:
            cursors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._options!r})"

    def _open_cursors(self) -> PlainCursors:
        with self._lock:
            if self._closed:
                raise ClientClosed
            if self._cursors is None:
                options = self._options
                self._cursors = PlainCursors(
                    options.kafka, options.cursors_topic, timeout_ms=options.timeout_ms
                )
            return self._cursors

    def _open_streams(self) -> Streams:
        with self._lock:
            if self._closed:
                raise ClientClosed
            if self._streams is None:
                self._streams = Streams(self._options.kafka, timeout_ms=self._options.timeout_ms)
            return self._streams


def _cell(cursor_id: str, stream: str, partition: int) -> Cell:
    if not cursor_id.isprintable() or not cursor_id:
        raise InvalidArgument("cursor_id", cursor_id, "it is empty, or has characters that cannot be shown")
    _check_stream(stream)
    _check_number("partition", partition, least=0, most=_MAX_PARTITION)
    return Cell(subscription=cursor_id, topic=stream, partition=partition)


def _check_stream(stream: str) -> None:
    if (why := why_no_topic(stream)) is not None:
        raise InvalidArgument("stream", stream, why)


def _check_number(argument: str, value: int, *, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidArgument(argument, value, f"it is not in {least} to {most}")
