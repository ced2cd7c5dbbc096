"""Feed for a consumer with kafka-mq-go's tracker. Each message has its own V1 markers."""

from __future__ import annotations

import time
import uuid

from spark_cursor_source.client.queues.ack_batcher import AckBatcher
from spark_cursor_source.client.queues.buffer import ReceiveBuffer
from spark_cursor_source.client.queues.feed import LOOK_S, Feed
from spark_cursor_source.client.queues.message import QueueMessage
from spark_cursor_source.consumer.known_topics import KnownTopics
from spark_cursor_source.consumer.queue_ids import check_queue_id
from spark_cursor_source.consumer.this_process import name_member
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.subscription_type import SubscriptionType
from spark_cursor_source.interop.group_reader import GroupReader
from spark_cursor_source.interop.sender import MarkerSenderV1
from spark_cursor_source.interop.starts import delivery_count_of, start_of
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Deadline, Pace
from spark_cursor_source.kafka.tail_consumer import Record, offsets_of
from spark_cursor_source.options.service import ServiceConfig

_LOOK_AT_TOPIC_MS = 2_000  # poll interval for a deleted or recreated topic
_PATIENCE_S = 1.0  # seconds of a full buffer after which the reader only keeps its group membership


class FeedV1(Feed):
    """Feeds messages like kafka-mq-go's consumer: writes Starts, commits group offsets, delivers messages.

    The kafka-mq-go tracker appends redeliveries to the queue topic, so this feed reads only that topic. A
    release is a V1 marker whose lease expires immediately.
    """

    def __init__(
        self,
        config: ServiceConfig,
        queue_id: bytes,
        group: str,
        topics: ClusterAdmin,
        known: KnownTopics,
        sender: MarkerSenderV1,
        batcher: AckBatcher,
        buffer: ReceiveBuffer,
    ) -> None:
        super().__init__(config, queue_id, topics, known, batcher, buffer)
        self._sender, self._group, self._of = sender, group, queue_id
        self._topics = topics
        self._name = name_member(SubscriptionType.SHARED, uuid.uuid4().hex, queue_id.decode())
        self._is_admitted = False  # True after the check of queue ids
        self._reader = GroupReader(
            client_config(config.kafka, "consumer"),
            config.message_topic,
            group,
            name=str(self._name),
            isolation=config.isolation.value,
            session_ms=config.session_timeout_ms,
            on_removed=self._on_removed,
            on_truncated=self._on_truncated,
            on_revoked=self._revoked,
        )
        self._full_since: float | None = None
        self._look_at_topic = Pace(_LOOK_AT_TOPIC_MS)

    def _close(self) -> None:
        self._reader.close()

    def _step(self) -> None:
        if self._look_at_topic.is_time():
            self._known.refresh([self._config.message_topic])
        self._check_queue_id()
        if not self._buffer.wait_for_room(LOOK_S):
            self._full_since = self._full_since or time.monotonic()
            if time.monotonic() - self._full_since > _PATIENCE_S:
                self._reader.stay()
            return
        self._full_since = None
        most = min(self._buffer.room, self._config.consumer_max_messages_per_commit)
        self._reader.pause(self._paused())
        fetched = self._reader.read(most, LOOK_S)
        if not fetched:
            return
        ours = [(span, span.of_queue(self._of)) for span in fetched]
        try:
            # Starts precede the commit: a crash in between delivers twice. The other order loses messages.
            lease_ms = self._config.redelivery_timeout_ms
            starts = (
                start_of(message, self._of, span.partition, lease_ms)
                for span, messages in ours
                for message in messages
            )
            self._sender.write(starts, timeout_s=self._config.timeout_ms / 1000)
            is_ours = self._reader.commit(Deadline.after_ms(self._config.timeout_ms))
        except BaseException:
            self._reader.follow({span.partition: span.start for span in fetched})
            raise
        if is_ours:
            for span, messages in ours:
                self._put(span.partition, messages)

    def _check_queue_id(self) -> None:
        """Checks once, before anything is read, that the other members of the group have this queue id.

        It is checked when this member has partitions: of two that join, the later one sees the other.

        Raises:
            QueueIdConflict: another member reads or has read other messages of the topic.
        """
        places = self._reader.partitions
        if self._is_admitted or not places:
            return
        committed = self._topics.committed_with_metadata(self._group, places)
        check_queue_id(self._name, self._group, (offset.metadata for offset in committed.values()))
        members = self._topics.group_members(self._group)
        check_queue_id(self._name, self._group, (member.client_id for member in members))
        self._is_admitted = True

    def _put(self, partition: int, records: list[Record]) -> None:
        if not records:
            return
        cell = Cell(subscription=self._group, topic=self._config.message_topic, partition=partition)
        self._batcher.track(cell, offsets_of(records), run_id="")
        deliveries = {count: self._delivery(cell, count) for count in set(map(delivery_count_of, records))}
        self._buffer.put([QueueMessage(record, deliveries[delivery_count_of(record)]) for record in records])

    def _revoked(self) -> None:
        self._withdraw(lambda _: True)
