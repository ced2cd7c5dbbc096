"""The client's calls about streams as such."""

from __future__ import annotations

from collections.abc import Collection

from spark_cursor_source.client.streams.arguments import (
    MAX_PARTITION,
    check_number,
    check_partitions,
    check_stream,
    check_subject,
)
from spark_cursor_source.client.streams.parts import Parts
from spark_cursor_source.core.stream_metadata import ClusterMetadata, PartitionMetadata
from spark_cursor_source.core.stream_state import StreamSettings
from spark_cursor_source.errors import InvalidArgument
from spark_cursor_source.options.reader import MAX_LONG

NO_LIMIT = -1  #: Kafka's, of a retention


class StreamCalls:
    """Streams are made, deleted, paused, made readonly, and described."""

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
        """Make a stream, a Kafka topic, and wait until it can be used; None: as the brokers have it.

        A retention of 0 is no limit, as in Liftbridge; with a ``segment_ms`` of 0 a segment ends by its size
        only. (Kafka itself would delete everything that is older, or more, than nothing.)

        It listens to the ``subject``, or to its own name: see :meth:`publish_to_subject`. With
        ``optimistic_concurrency`` a publisher may say which offset it expects. Of ``retention_messages`` each
        partition keeps at least so many; Kafka has no such setting, so clients that publish to it trim it.

        Raises:
            StreamExists: it stays as it is.
            InvalidArgument, ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused, StreamsTopicUnfit
        """
        check_stream(stream)
        check_number("partitions", partitions, least=1, most=MAX_PARTITION)
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
        """Delete a stream with all its messages, and all that is known of it.

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
        """Deliver nothing of these partitions, or of all, until something is published to them.

        With ``resume_all`` it is enough that something is published to any partition of the stream. Other
        clients, and Spark queries, follow within seconds.

        Raises:
            NoSuchStream: the stream, or one of the partitions, does not exist.
            InvalidArgument, ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused, StreamsTopicUnfit
        """
        check_stream(stream)
        check_partitions(partitions)
        parts = self._parts.streams()
        parts.keeper.forget(stream)  # what was published before does not end it
        parts.streams.pause(stream, partitions, resume_all=resume_all)

    def set_stream_readonly(
        self, stream: str, *, partitions: Collection[int] | None = None, readonly: bool = True
    ) -> None:
        """Take no more messages in these partitions, or in all; or take them again.

        Other clients, and Spark queries, follow within seconds.

        Raises:
            NoSuchStream: the stream, or one of the partitions, does not exist.
            InvalidArgument, ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused, StreamsTopicUnfit
        """
        check_stream(stream)
        check_partitions(partitions)
        self._parts.streams().streams.set_readonly(stream, partitions, readonly=readonly)

    def fetch_metadata(self) -> ClusterMetadata:
        """The brokers, and subject and number of partitions of each stream, as the brokers say now.

        Raises:
            ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        return self._parts.streams().streams.metadata()

    def fetch_partition_metadata(self, stream: str, partition: int) -> PartitionMetadata:
        """Leader, replicas, offsets and state of a partition, as the brokers say now.

        Raises:
            NoSuchStream
            InvalidArgument, ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        check_stream(stream)
        return self._parts.streams().streams.partition_metadata(stream, partition)
