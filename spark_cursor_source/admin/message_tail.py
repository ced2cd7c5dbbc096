"""Messages at the end of a queue topic with their states."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from spark_cursor_source.admin.log_follower import last_positions, read_log
from spark_cursor_source.admin.message_history import text_of
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.message_state import MessageState, state_of
from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC
from spark_cursor_source.core.payload_decoder import PayloadDecoder
from spark_cursor_source.core.payload_mask import PayloadMask
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.reading import offset_of
from spark_cursor_source.topics.cursors import CursorTable


@dataclass(frozen=True, slots=True, kw_only=True)
class TailedMessage:
    """One message of a queue topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None  #: of the producer or of the broker, as the topic is set; None: unknown
    size: int  #: bytes of key and value
    key: bytes | None
    value: bytes | None  #: None: not asked for, or null
    value_note: str | None = None  #: format that the value was decoded from, or why it was not
    states: tuple[MessageState, ...]  #: of each subscription that has a cursor of the partition

    def decoded(self, decoder: PayloadDecoder | None) -> TailedMessage:
        """Returns the same message with a decoded value. None changes nothing."""
        if decoder is None:
            return self
        value, note = decoder.value(self.value)
        return replace(self, value=value, value_note=note)

    def masked(self, mask: PayloadMask) -> TailedMessage:
        """Returns the same message without the parts of the payload that a mask hides."""
        return replace(self, key=mask.key(self.key), value=mask.value(self.value))

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name, for ``json.dumps``; bytes as text or hex, states by subscription."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp_ms": self.timestamp_ms,
            "size": self.size,
            "key": text_of(self.key),
            "value": text_of(self.value),
            "value_note": self.value_note,
            "states": {one.subscription: one.state for one in self.states},
        }


def read_tail(
    kafka: Mapping[str, str],
    topic: str,
    *,
    subscription: str | None = None,
    last: int | None = 10,
    payload: bool = False,
    follow: bool = False,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
) -> Iterator[TailedMessage]:
    """Yields the ``last`` messages of each partition, or all, with the states that they have now.

    With ``follow``, the iterator goes on with new messages until it is closed. Without ``payload``, values
    are not in the result. States are those of all subscriptions, or of one. Nothing is changed.

    Example::

        from spark_cursor_source.admin import read_tail

        for one in read_tail({"bootstrap.servers": "broker:9092"}, "orders", last=5):
            print(one.partition, one.offset, one.key, [state.state for state in one.states])

    Raises:
        TopicNotFound: the topic does not exist.
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    topics = ClusterAdmin(client_config(kafka, "admin")).meet()
    positions = last_positions(topics, topic, last)
    if not topics.existing([cursors_topic]):  # no tracker has run yet
        for message in read_log(kafka, topics, topic, positions, follow=follow):
            yield _tailed(message, (), payload)
        return
    by_partition: defaultdict[int, list[CursorSnapshot]] = defaultdict(list)
    with closing(CursorTable(client_config(kafka, "consumer"), cursors_topic)) as table:

        def look() -> None:
            table.refresh()
            by_partition.clear()
            for cell, cursor in table.of(topic=topic, subscription=subscription).items():
                by_partition[cell.partition].append(cursor)

        for message in read_log(kafka, topics, topic, positions, follow=follow, on_round=look):
            cursors = by_partition[int(message.partition() or 0)]
            yield _tailed(message, tuple(state_of(one, offset_of(message)) for one in cursors), payload)


def _tailed(message: Message, states: tuple[MessageState, ...], payload: bool) -> TailedMessage:
    kind, at_ms = message.timestamp()
    key, value = message.key(), message.value()
    return TailedMessage(
        topic=str(message.topic()),
        partition=int(message.partition() or 0),
        offset=offset_of(message),
        timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else at_ms,
        size=len(key or b"") + len(value or b""),
        key=key,
        value=value if payload else None,
        states=states,
    )
