"""Stream administration methods of the client."""

from __future__ import annotations

from collections.abc import Collection

from spark_cursor_source.client.streams.arguments import (
    check_partitions,
    check_stream,
    check_subject,
)
from spark_cursor_source.client.streams.parts import Parts
from spark_cursor_source.core.names import MAX_PARTITIONS
from spark_cursor_source.core.stream_metadata import ClusterMetadata, PartitionMetadata
from spark_cursor_source.core.stream_state import StreamSettings
from spark_cursor_source.errors import InvalidArgument
from spark_cursor_source.options.arguments import check_number, true_or_false
from spark_cursor_source.options.kinds import MAX_LONG

NO_LIMIT = -1  #: Kafka's value for unlimited retention
_DEFAULT = -1  # Kafka's value for the broker's default replication factor
_MAX_INT = 2**31 - 1
_MAX_REPLICAS = 10_000  # librdkafka creates no topic with more


class StreamCalls:
    """Mixin of ``Client``: create, delete, pause, make readonly and describe streams."""

    _parts: Parts

    def create_stream(
        self,
        stream: str,
        partitions: int = 1,
        *,
        subject: str | None = None,
        replication: int | None = None,
        retention_bytes: int | None = None,
        retention_ms: int | None = None,
        retention_messages: int | None = None,
        segment_bytes: int | None = None,
        segment_ms: int | None = None,
        compaction: bool = False,
        min_insync: int | None = None,
        optimistic_concurrency: bool = False,
    ) -> None:
        """Creates a stream, which is a Kafka topic, and waits until the stream is usable.

        Settings that are None keep the broker default. A retention of 0 means no limit, as in Liftbridge.
        With ``segment_ms`` 0, segments roll by size only. (Kafka itself reads a retention of 0 as "delete
        all".)

        The stream is attached to ``subject``, or else to its name: see :meth:`publish_to_subject`. With
        ``optimistic_concurrency``, publishers may pass an ``expected_offset``. With ``retention_messages``,
        each partition keeps at least that many messages. Kafka has no such setting, so publishing clients
        trim the partitions.

        Raises:
            StreamExists: a stream of this name exists. It is unchanged.
            InvalidArgument, ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused, StreamsTopicUnfit
        """
        check_stream(stream)
        check_number("partitions", partitions, least=1, most=MAX_PARTITIONS)
        for argument, value, least, most in (
            ("replication", replication, _DEFAULT, _MAX_REPLICAS),
            ("retention_bytes", retention_bytes, NO_LIMIT, MAX_LONG),
            ("retention_ms", retention_ms, NO_LIMIT, MAX_LONG),
            ("segment_bytes", segment_bytes, 1, _MAX_INT),
            ("segment_ms", segment_ms, 0, MAX_LONG),
            ("min_insync", min_insync, 1, _MAX_REPLICAS),
        ):
            if value is not None:
                check_number(argument, value, least=least, most=most)
        true_or_false("compaction", compaction)
        true_or_false("optimistic_concurrency", optimistic_concurrency)
        if subject is not None:
            check_subject(subject, wildcards=True)
        retention_messages = retention_messages or None
        if retention_messages is not None:
            check_number("retention_messages", retention_messages, least=1, most=MAX_LONG // 2)
            if compaction:
                why = "a compacted stream keeps the last message of each key, and Kafka does not trim it"
                raise InvalidArgument("retention_messages", retention_messages, why)
        topic_settings = {
            "retention.bytes": NO_LIMIT if retention_bytes == 0 else retention_bytes,
            "retention.ms": NO_LIMIT if retention_ms == 0 else retention_ms,
            "segment.bytes": segment_bytes,
            "segment.ms": MAX_LONG if segment_ms == 0 else segment_ms,
            "min.insync.replicas": min_insync,
            "cleanup.policy": "compact" if compaction else None,
        }
        self._parts.streams().streams.create(
            stream,
            partitions,
            {name: value for name, value in topic_settings.items() if value is not None},
            StreamSettings(
                subject=subject,
                optimistic_concurrency=optimistic_concurrency,
                retention_messages=retention_messages,
            ),
            replication=replication,
        )

    def delete_stream(self, stream: str) -> None:
        """Deletes a stream with its messages and settings.

        Raises:
            NoSuchStream
            InvalidArgument, ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        check_stream(stream)
        parts = self._parts.streams()
        parts.publishing.forget(stream)
        parts.keeper.forget(stream)
        parts.streams.delete(stream)

    def pause_stream(
        self, stream: str, *, partitions: Collection[int] | None = None, resume_all: bool = False
    ) -> None:
        """Pauses delivery of these partitions, or of all if None, until a message is published to them.

        With ``resume_all``, a message to any partition of the stream ends the pause of these partitions.
        Other clients and Spark queries observe the pause within seconds.

        Raises:
            NoSuchStream: the stream or one of the partitions does not exist.
            InvalidArgument, ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused, StreamsTopicUnfit
        """
        check_stream(stream)
        check_partitions(partitions)
        true_or_false("resume_all", resume_all)
        parts = self._parts.streams()
        parts.keeper.forget(stream)  # earlier messages must not end this pause
        parts.streams.pause(stream, partitions, resume_all=resume_all)

    def set_stream_readonly(
        self, stream: str, *, partitions: Collection[int] | None = None, readonly: bool = True
    ) -> None:
        """Makes these partitions, or all if None, readonly. ``readonly=False`` makes them writable again.

        Other clients and Spark queries observe the change within seconds.

        Raises:
            NoSuchStream: the stream or one of the partitions does not exist.
            InvalidArgument, ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused, StreamsTopicUnfit
        """
        check_stream(stream)
        check_partitions(partitions)
        true_or_false("readonly", readonly)
        self._parts.streams().streams.set_readonly(stream, partitions, readonly=readonly)

    def fetch_metadata(self) -> ClusterMetadata:
        """Returns the current brokers, and the subject and partition count of each stream.

        Raises:
            ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        return self._parts.streams().streams.metadata()

    def fetch_partition_metadata(self, stream: str, partition: int) -> PartitionMetadata:
        """Returns the current leader, replicas, offsets and state of a partition.

        Raises:
            NoSuchStream
            InvalidArgument, ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        check_stream(stream)
        return self._parts.streams().streams.partition_metadata(stream, partition)
