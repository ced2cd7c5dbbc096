"""Life of one message under the markers of kafka-mq-go (version 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import Message

from spark_cursor_source.admin.log_follower import positions_since
from spark_cursor_source.admin.marker_log import MarkerRecord, scan_markers
from spark_cursor_source.admin.message_event import MessageEvent
from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.core.message_state import MessageState
from spark_cursor_source.interop.redelivery_count import redelivery_count
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.record_headers import headers_of
from spark_cursor_source.wire.marker import MarkerType, MarkerV1


class Life(NamedTuple):
    """Events of a message, and its state in its queue."""

    events: tuple[MessageEvent, ...] = ()
    states: tuple[MessageState, ...] = ()


def read_life(
    kafka: Mapping[str, str],
    topics: ClusterAdmin,
    markers_topic: str,
    *,
    place: tuple[str, int, int],
    message: Message | None,
    queue: str | None,
    since_ms: int | None,
) -> Life:
    """Returns the life of a message in its queue. It is empty if no such marker is about the message.

    The queue is ``queue``, or the key of the message as in kafka-mq-go.

    Raises:
        TopicNotFound: the markers topic does not exist.
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    key = queue.encode() if queue is not None else None if message is None else message.key()
    if not key:
        return Life()
    partitions = topics.partitions_of(markers_topic)
    positions = positions_since(topics, partitions, since_ms)
    found = [
        (record, marker)
        for record in scan_markers(kafka, topics, markers_topic, positions, only=lambda one: one == key)
        if (marker := record.of_one_message) is not None and (marker.partition, marker.offset) == place[1:]
    ]
    if not found:
        return Life()
    now_ms = topics.newest_ms(partitions)[markers_topic]
    again = 0 if message is None else redelivery_count(headers_of(message))
    return _life(found, place, now_ms, again + 1)


def _life(
    found: list[tuple[MarkerRecord, MarkerV1]], place: tuple[str, int, int], now_ms: int, count: int
) -> Life:
    topic, partition, offset = place
    queue = found[0][1].queue_id.decode(errors="replace")
    events, first_ms, deadline_ms, end_ms = [], None, None, None
    for record, marker in found:
        lease_ms = min(marker.redeliver_after_ms, MAX_LEASE_MS)
        ends = marker.type == MarkerType.END
        events.append(
            MessageEvent(
                at_ms=record.at_ms,
                kind=record.kind,
                subscription=queue,
                delivery_count=count,
                lease_ms=None if ends else lease_ms,
                reason=marker.trouble or None,
                marker_partition=record.partition,
                marker_offset=record.offset,
            )
        )
        if ends:
            end_ms = record.at_ms
        elif marker.type == MarkerType.START or (deadline_ms is not None and end_ms is None):
            # As in kafka-mq-go, a KeepAlive does not open a message.
            first_ms = record.at_ms if first_ms is None else first_ms
            deadline_ms, end_ms = record.at_ms + lease_ms, None
    if deadline_ms is None and end_ms is None:
        return Life(tuple(events), ())
    # The tracker writes an End too, after it has appended an expired message again.
    late = end_ms is not None and deadline_ms is not None and end_ms > deadline_ms
    expired = deadline_ms is not None and now_ms > deadline_ms
    is_open = end_ms is None
    state = MessageState(
        subscription=queue,
        topic=topic,
        partition=partition,
        offset=offset,
        # The tracker appends an expired message to the topic again, as a new message.
        state="settled" if not is_open else "available" if expired else "leased",
        delivery_count=count if is_open else 0,
        first_delivery_ms=first_ms if is_open else None,
        until_ms=deadline_ms if is_open else None,
        outcome=None if is_open else "acked late, or appended again" if late else "acked",
    )
    return Life(tuple(events), (state,))
