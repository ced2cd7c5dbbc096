"""The whole history of one message: every marker about it, and where it is now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from spark_cursor_source.admin.log_follower import positions_since
from spark_cursor_source.admin.marker_log import MarkerRecord, reason_of, scan_markers
from spark_cursor_source.admin.message_event import LEASE_EXPIRED, MessageEvent
from spark_cursor_source.admin.message_history_v1 import read_life
from spark_cursor_source.admin.outstanding import hosts_of_runs, read_cursors, run_of_query, with_hosts
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import (
    KINDS,
    Block,
    Delete,
    End,
    EndLeased,
    EndUpTo,
    KeepAlive,
    Leave,
    Marker,
    Reject,
    Release,
    Seek,
    Start,
    Withhold,
)
from spark_cursor_source.core.message_state import MessageState, state_of
from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC, DEFAULT_MARKERS_TOPIC, DEFAULT_RESCUE_TOPIC
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.payload_decoder import PayloadDecoder
from spark_cursor_source.core.payload_mask import PayloadMask
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.core.subscription_type import DEFAULT_GROUP_ID_PREFIX, group_id
from spark_cursor_source.errors import (
    CursorqError,
    InvalidArgument,
    TopicNotFound,
    UnknownQueueTopic,
    UnknownSubscription,
)
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.range_consumer import STALL_TIMEOUT_MS
from spark_cursor_source.kafka.record_headers import headers_of
from spark_cursor_source.options.arguments import check_text
from spark_cursor_source.topics.redelivered import redelivered
from spark_cursor_source.topics.rescue import Rescue, RescuedMessage

MOST_EVENTS = 10_000  #: largest number of events of a history; later ones are dropped

#: A producer's clock may be ahead of the brokers'; then the message is younger than its first markers.
_CLOCKS_MS = 3_600_000
_OF_OFFSETS = (Start, End, EndLeased, Leave, KeepAlive, Release, Block, Reject, Withhold)
_OF_A_LEASE = (Leave, KeepAlive, Release, Block, Reject)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageHistory:
    """One message with its states now, by subscription, and its events in the order of time."""

    topic: str
    partition: int
    offset: int
    found: bool  #: False: the offset holds no message, or the message was deleted
    rescued: bool = False  #: True: retention has deleted the message, and the rescue topic has it
    timestamp_ms: int | None  #: of the producer or of the broker, as the topic is set; None: unknown
    size: int | None  #: bytes of key and value
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    value: bytes | None  #: None: not asked for, or null
    value_note: str | None = None  #: format that the value was decoded from, or why it was not
    states: tuple[MessageState, ...]
    events: tuple[MessageEvent, ...]
    markers_from_ms: int | None  #: markers before this time were not read; None: all retained ones were

    def decoded(self, decoder: PayloadDecoder | None) -> MessageHistory:
        """Returns the same history with a decoded value. None changes nothing."""
        if decoder is None:
            return self
        value, note = decoder.value(self.value)
        return replace(self, value=value, value_note=note)

    def masked(self, mask: PayloadMask) -> MessageHistory:
        """Returns the same history without the parts of the payload that a mask hides."""
        return replace(
            self,
            key=mask.key(self.key),
            value=mask.value(self.value),
            headers=mask.headers(self.headers),
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name, for ``json.dumps``; bytes as text, or as hex with the prefix ``0x``."""
        told = asdict(self)
        told["key"], told["value"] = text_of(self.key), text_of(self.value)
        told["headers"] = [(name, text_of(value)) for name, value in self.headers]
        return told


def text_of(data: bytes | None) -> str | None:
    """Returns bytes as text if they are UTF-8, else as hex.

    >>> text_of(b"caf\\xc3\\xa9"), text_of(b"\\xff\\x00"), text_of(None)
    ('café', '0xff00', None)
    """
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def read_message_history(
    kafka: Mapping[str, str],
    topic: str,
    partition: int,
    offset: int,
    *,
    subscription: str | None = None,
    payload: bool = False,
    markers_topic: str = DEFAULT_MARKERS_TOPIC,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
    rescue_topic: str = DEFAULT_RESCUE_TOPIC,
    group_id_prefix: str = DEFAULT_GROUP_ID_PREFIX,
) -> MessageHistory:
    """Returns the states and events of one message, of all subscriptions or of one.

    The markers topic is read from an hour before the message's own timestamp on, and only the partitions of
    the subscriptions; events are as complete as the retention of the markers topic. For a message with a
    key, all its partitions are read, for the markers of kafka-mq-go (version 1). Their events have the id of
    the queue as the subscription. The queue is ``subscription``, or the key of the message. Markers of
    version 1 name no topic, so the markers topic must be of this queue topic. A message that retention has
    deleted is read from the rescue topic, if it is there. Without ``payload``, the value is not in the
    result. Nothing is changed. ``kafka`` contains options of the Kafka clients.

    Example::

        from spark_cursor_source.admin import read_message_history

        history = read_message_history({"bootstrap.servers": "broker:9092"}, "orders", 0, 17)
        for event in history.events:
            print(event.at_ms, event.subscription, event.kind, event.delivery_count, event.reason)

    Raises:
        InvalidArgument: the topic has no such partition, or the offset is negative or not written yet.
        UnknownSubscription, UnknownQueueTopic: the tracker has no cursor of that name.
        TopicNotFound: the queue topic, the markers topic or the cursors topic does not exist.
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    if subscription is not None:
        check_text("subscription", subscription)
    topics = ClusterAdmin(client_config(kafka, "admin")).meet()
    _check_place(topics, topic, partition, offset)
    rescue = Rescue(client_config(kafka, "consumer"), rescue_topic, markers_topic)
    message = _message(kafka, topic, partition, offset, rescue)
    timestamp_ms = None if message is None else _timestamp_ms(message)
    since_ms = None if timestamp_ms is None else timestamp_ms - _CLOCKS_MS
    unknown: CursorqError | None = None
    try:
        cursors = read_cursors(kafka, cursors_topic, topic=topic, subscription=subscription)
    except (UnknownSubscription, UnknownQueueTopic, TopicNotFound) as why:
        cursors, unknown = {}, why  # a tracker of kafka-mq-go writes no cursors
    cells = [cell for cell in cursors if cell.partition == partition]
    events, last = _events(kafka, topics, markers_topic, cells, offset, since_ms) if cells else ([], {})
    place = (topic, partition, offset)
    life = read_life(
        kafka, topics, markers_topic, place=place, message=message, queue=subscription, since_ms=since_ms
    )
    if unknown is not None and not life.events:
        raise unknown
    states = [_with_outcome(state_of(cursors[cell], offset), last.get(cell)) for cell in cells]
    value = None if message is None else message.value()
    key = None if message is None else message.key()
    return MessageHistory(
        topic=topic,
        partition=partition,
        offset=offset,
        found=message is not None,
        rescued=isinstance(message, RescuedMessage),
        timestamp_ms=timestamp_ms,
        size=None if message is None else len(key or b"") + len(value or b""),
        key=key,
        headers=() if message is None else tuple(headers_of(message)),
        value=value if payload else None,
        states=(*with_hosts(states, topics, group_id_prefix), *life.states),
        events=_in_time([*_named(events, topics, group_id_prefix, (topic, partition)), *life.events]),
        markers_from_ms=since_ms,
    )


def _check_place(topics: ClusterAdmin, topic: str, partition: int, offset: int) -> None:
    count = len(topics.partitions_of(topic))
    if not 0 <= partition < count:
        raise InvalidArgument("partition", partition, f"'{topic}' has partitions 0 to {count - 1}")
    end = topics.end_offsets([(topic, partition)], committed=False)[topic, partition]
    if not 0 <= offset < end:
        raise InvalidArgument("offset", offset, f"partition {partition} of '{topic}' ends at offset {end}")


def read_message(
    kafka: Mapping[str, str],
    topic: str,
    partition: int,
    offset: int,
    *,
    markers_topic: str = DEFAULT_MARKERS_TOPIC,
    rescue_topic: str = DEFAULT_RESCUE_TOPIC,
) -> Message | None:
    """Returns the record at an offset; None if the offset holds no message.

    A message that retention has deleted is read from the rescue topic, if it is there.

    Raises:
        InvalidArgument: the topic has no such partition, or the offset is negative or not written yet.
        TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    _check_place(ClusterAdmin(client_config(kafka, "admin")).meet(), topic, partition, offset)
    rescue = Rescue(client_config(kafka, "consumer"), rescue_topic, markers_topic)
    return _message(kafka, topic, partition, offset, rescue)


def _message(
    kafka: Mapping[str, str], topic: str, partition: int, offset: int, rescue: Rescue
) -> Message | None:
    one = Slice(
        topic=topic, partition=partition, offsets=OffsetSet.of((offset, offset + 1)), delivery_count=0
    )
    messages, _ = redelivered(
        client_config(kafka, "consumer"), one, stall_timeout_ms=STALL_TIMEOUT_MS, rescue=rescue
    )
    return messages[0] if messages else None


def _timestamp_ms(message: Message) -> int | None:
    kind, at_ms = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else at_ms


def _events(
    kafka: Mapping[str, str],
    topics: ClusterAdmin,
    markers_topic: str,
    cells: Iterable[Cell],
    offset: int,
    since_ms: int | None,
) -> tuple[list[MessageEvent], dict[Cell, MessageEvent]]:
    """Returns the events, and by cell the last one that changed the message."""
    partitions = len(topics.partitions_of(markers_topic))
    keys = {cell.key: cell.control_partition(partitions) for cell in cells}
    homes = [(markers_topic, number) for number in sorted(set(keys.values()))]
    positions = positions_since(topics, homes, since_ms)
    records = scan_markers(kafka, topics, markers_topic, positions, only=lambda key: key in keys)
    lives: dict[Cell, _Life] = {}
    found: list[MessageEvent] = []
    for record in records:
        marker = record.marker
        if marker is None or not concerns(marker, offset) or len(found) >= MOST_EVENTS:
            continue
        life = lives.setdefault(marker.cell, _Life())
        if isinstance(marker, EndLeased) and not life.is_ended_by(marker):
            continue  # the batch was acked without this message
        if not (life.over and isinstance(marker, EndUpTo)):  # one of many: each batch may write one
            found += life.then(record, marker, offset)
    return list(_in_time(found)), {cell: life.last for cell, life in lives.items() if life.last is not None}


def _in_time(events: Iterable[MessageEvent]) -> tuple[MessageEvent, ...]:
    return tuple(
        sorted(events, key=lambda one: (one.at_ms, one.marker_partition or 0, one.marker_offset or 0))
    )


def _with_outcome(state: MessageState, last: MessageEvent | None) -> MessageState:
    if state.state != "settled" or last is None:
        return state
    known = dict.fromkeys((KINDS[End], KINDS[EndLeased]), "acked")
    known |= dict.fromkeys((KINDS[EndUpTo], KINDS[Seek]), "skipped")
    known[KINDS[Reject]] = "dead letter"
    return replace(state, outcome=known.get(last.kind, "dead letter or expired"))


def concerns(marker: Marker, offset: int) -> bool:
    """True if a marker is about the message at this offset."""
    if isinstance(marker, _OF_OFFSETS):
        return offset in marker.offsets
    if isinstance(marker, EndUpTo):
        return offset < marker.position
    return isinstance(marker, (Seek, Delete))


class _Life:
    """Deliveries of one message in one subscription, in the order of their markers."""

    def __init__(self) -> None:
        self._runs: dict[int, str] = {}  # delivery count -> run
        self._open: tuple[int, int] | None = None  # delivery count and end of the present lease
        self._is_left = False  # by the sink, in the present lease
        self.over = False  # settled, by the last event
        self.last: MessageEvent | None = None  # that changed the message

    def is_ended_by(self, marker: EndLeased) -> bool:
        """True if the ack of a whole batch ends the message, as it holds the lease that the marker names."""
        count = marker.delivery_count
        is_of_lease = self._open is not None and self._open[0] == count
        return is_of_lease and self._runs.get(count) == marker.run_id and not self._is_left

    def then(self, record: MarkerRecord, marker: Marker, offset: int) -> Iterator[MessageEvent]:
        """Yields the event of a marker about the message at this offset, after the expiry that it proves."""
        count = getattr(marker, "delivery_count", None)
        event = MessageEvent(
            at_ms=record.at_ms,
            kind=KINDS[type(marker)],
            subscription=marker.cell.subscription,
            delivery_count=count,
            run=getattr(marker, "run_id", None) or self._runs.get(count or 0),
            lease_ms=getattr(marker, "lease_ms", None),
            delay_ms=getattr(marker, "delay_ms", None),
            reason=reason_of(marker),
            behind=marker.behind_of(offset) if isinstance(marker, Block) else None,
            marker_partition=record.partition,
            marker_offset=record.offset,
        )
        yield from self._take_in(event, marker)
        yield event

    def _take_in(self, event: MessageEvent, marker: Marker) -> Iterator[MessageEvent]:
        if self._is_late(marker):
            return
        if isinstance(marker, Start):
            if self._open is not None and self._open[0] < marker.delivery_count:
                yield self._expired(event, *self._open)
            self._runs[marker.delivery_count] = marker.run_id
            self._open = (marker.delivery_count, event.at_ms + marker.lease_ms)
            self._is_left = False
        elif isinstance(marker, Leave):
            self._is_left = self._is_left or marker.run_id in (None, self._runs.get(marker.delivery_count))
        elif isinstance(marker, KeepAlive):
            if self._open is not None:
                self._open = (self._open[0], event.at_ms + marker.lease_ms)
        else:
            self._open = None
        self.over = isinstance(marker, (End, EndLeased, EndUpTo, Reject))
        self.last = event

    def _is_late(self, marker: Marker) -> bool:
        """True if a marker changes nothing: the message is settled, or its delivery has ended."""
        if not isinstance(marker, _OF_A_LEASE):
            return self.over and isinstance(marker, (End, EndUpTo))
        if self.over or marker.delivery_count is None:
            return self.over
        # Without any known delivery, the markers topic has forgotten the Start.
        return bool(self._runs) and (self._open is None or self._open[0] != marker.delivery_count)

    def _expired(self, next_start: MessageEvent, count: int, at_ms: int) -> MessageEvent:
        return MessageEvent(
            at_ms=min(at_ms, next_start.at_ms),
            kind=LEASE_EXPIRED,
            subscription=next_start.subscription,
            delivery_count=count,
            run=self._runs.get(count),
        )


def _named(
    events: Iterable[MessageEvent], topics: ClusterAdmin, prefix: str, partition: tuple[str, int]
) -> tuple[MessageEvent, ...]:
    events = tuple(events)
    subscriptions = {one.subscription for one in events if one.run is not None}
    hosts = {name: hosts_of_runs(topics, group_id(prefix, name), [partition]) for name in subscriptions}
    return tuple(
        one if one.run is None else replace(one, host=hosts[one.subscription].get(run_of_query(one.run)))
        for one in events
    )
