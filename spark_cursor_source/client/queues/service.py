"""Services and queues on one Kafka topic. The API follows kafka-mq-go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_cursor_source.client.queues.ack_batcher import AckBatcher, Write
from spark_cursor_source.client.queues.buffer import ReceiveBuffer
from spark_cursor_source.client.queues.consumer import QueueConsumer
from spark_cursor_source.client.queues.feed_v1 import FeedV1
from spark_cursor_source.client.queues.feed_v2 import FeedV2
from spark_cursor_source.client.queues.producer import QueueProducer
from spark_cursor_source.consumer.known_topics import KnownTopics
from spark_cursor_source.core.marker import Marker, of_topics
from spark_cursor_source.errors import InvalidArgument
from spark_cursor_source.interop.sender import MarkerSenderV1, in_v1
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.rights import Rights, of_consumer, of_consumer_v1
from spark_cursor_source.metrics.consumers import ConsumerCounts, ServiceCounts
from spark_cursor_source.metrics.table import Sample
from spark_cursor_source.options.arguments import check_text
from spark_cursor_source.options.marker_format import MarkerVersion
from spark_cursor_source.options.service import ServiceConfig
from spark_cursor_source.options.tracker_place import TrackerPlace
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.tracker.embedded import EmbeddedTracker


class Service:
    """Queues that share one Kafka topic. The record key of a message is its queue id.

    A service holds no resources and needs no close. Its producers and consumers must be closed.

    Example::

        from spark_cursor_source.client import Service, ServiceConfig

        service = Service(ServiceConfig(bootstrap_servers="broker:9092", message_topic="jobs"))
        with service.queue("mails").producer() as producer:
            producer.send(b"to: you")
    """

    def __init__(self, config: ServiceConfig) -> None:
        self._config = config
        self._counts = ServiceCounts()

    def queue(self, id: str | None = None, *, subscription: str | None = None) -> Queue:
        """Returns the queue of the messages whose key is ``id``, or of all messages if ``id`` is None.

        All consumers of one subscription share the queue's messages. The subscription name defaults to the
        queue id. A Spark query that shares these messages sets the same ``subscription`` and ``queueId``.

        Raises:
            InvalidArgument: ``id`` is empty or no text, or the subscription name is missing or not valid.
        """
        if id is not None:
            check_text("id", id)
        if id == "":
            raise InvalidArgument("id", id, "a queue id is not empty")
        return Queue(self._config, id, self._config.subscription_of(id, subscription), self._counts)

    def metrics(self) -> Iterator[Sample]:
        """Yields the metrics of all consumers of this service, for ``serve_metrics``.

        The labels ``subscription`` and ``queue`` have up to 100 values each; further ones are ``other``.
        """
        return self._counts.samples()


class Queue:
    """One queue of a service. Creates its producers and consumers."""

    def __init__(
        self, config: ServiceConfig, id: str | None, subscription: str, counts: ServiceCounts
    ) -> None:
        self._config, self._subscription, self._counts = config, subscription, counts
        self._id = None if id is None else id.encode()

    def producer(self) -> QueueProducer:
        """Returns a new producer. The caller must close it."""
        return QueueProducer(self._config, self._id)

    def consumer(self) -> QueueConsumer:
        """Returns a new consumer, which starts to fetch immediately. The caller must close it.

        Raises:
            TopicNotFound: the queue topic does not exist.
            MarkersTopicNotLogAppendTime, CursorsTopicNotCompacted: a control topic has the wrong settings.
            InvalidArgument: the marker format is V1 and the queue has no id.
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        config = self._config
        topics = ClusterAdmin(client_config(config.kafka, "admin"), timeout_ms=config.timeout_ms)
        topics.meet().check_rights(self._rights(), group=config.group_of(self._subscription))
        known = KnownTopics(topics, subscription=self._subscription)
        known.refresh([config.message_topic])
        buffer = ReceiveBuffer(config.consumer_receive_buffer_capacity)
        if config.marker_format is MarkerVersion.V1:
            return self._consumer_v1(topics, known, buffer)
        return self._consumer_v2(topics, known, buffer)

    def _consumer_v1(self, topics: ClusterAdmin, known: KnownTopics, buffer: ReceiveBuffer) -> QueueConsumer:
        config, queue_id = self._config, self._id
        if queue_id is None:
            raise InvalidArgument("id", None, "v1 markers name a queue by its id")
        partitions = topics.ensure_markers(config.marker_topic)
        producing = client_config(config.kafka, "producer")
        sender = MarkerSenderV1(producing, config.marker_topic, partitions, patience_ms=config.timeout_ms)

        def write(markers: Sequence[Marker]) -> None:
            in_order = (v1 for marker in markers for v1 in in_v1(marker, queue_id))
            sender.write(in_order, timeout_s=config.timeout_ms / 1000)

        counts = self._consumer_counts()
        batcher = self._ack_batcher(write, counts)
        group = config.group_of(self._subscription)
        feed = FeedV1(config, queue_id, group, topics, known, sender, batcher, buffer)
        wait_ms = config.consumer_next_message_timeout_ms
        return QueueConsumer(feed, batcher, buffer, sender, wait_ms=wait_ms, counts=counts)

    def _consumer_v2(self, topics: ClusterAdmin, known: KnownTopics, buffer: ReceiveBuffer) -> QueueConsumer:
        config = self._config
        control = topics.ensure_control(
            markers=config.marker_topic,
            redeliveries=config.redeliveries_topic,
            cursors=config.cursors_topic,
        )
        producing = client_config(config.kafka, "producer")
        sender = MarkerSender(producing, config.marker_topic, control.markers, patience_ms=config.timeout_ms)
        ids = {config.message_topic: known.ids[config.message_topic]}

        def write(markers: Sequence[Marker]) -> int | None:
            # The id at the start of the consumer: after a deletion, late acks must not end new messages.
            return sender.write(of_topics(markers, ids), timeout_s=config.timeout_ms / 1000)

        counts = self._consumer_counts()
        batcher = self._ack_batcher(write, counts)
        feed = FeedV2(config, self._id, self._subscription, topics, known, write, batcher, buffer)
        return QueueConsumer(
            feed,
            batcher,
            buffer,
            sender,
            wait_ms=config.consumer_next_message_timeout_ms,
            tracker=self._embedded_tracker(),
            counts=counts,
        )

    def _embedded_tracker(self) -> EmbeddedTracker | None:
        config = self._config
        if config.tracker is not TrackerPlace.EMBEDDED:
            return None
        return EmbeddedTracker(
            config.kafka,
            markers_topic=config.marker_topic,
            redeliveries_topic=config.redeliveries_topic,
            cursors_topic=config.cursors_topic,
        )

    def _rights(self) -> Rights:
        config = self._config
        names = {"markers": config.marker_topic, "streams": config.streams_topic}
        if config.marker_format is MarkerVersion.V1:
            return of_consumer_v1(**names, queues=[config.message_topic])
        return of_consumer(
            **names,
            redeliveries=config.redeliveries_topic,
            cursors=config.cursors_topic,
            queues=[config.message_topic],
        )

    def _consumer_counts(self) -> ConsumerCounts:
        queue = "" if self._id is None else self._id.decode()
        return self._counts.consumer(self._config.message_topic, self._subscription, queue)

    def _ack_batcher(self, write: Write, counts: ConsumerCounts) -> AckBatcher:
        config = self._config
        return AckBatcher(
            write,
            lease_ms=config.redelivery_timeout_ms,
            timeout_ms=config.timeout_ms,
            observer=counts,
        )
