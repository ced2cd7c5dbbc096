"""Messages of one re-append call, and the result of each."""

from __future__ import annotations

from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from spark_cursor_source.interop.reappend_troubles import MessageId
from spark_cursor_source.topics.copies import Headers, Told
from spark_cursor_source.wire.marker import MarkerType, MarkerV1


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A message that was read again."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    #: original timestamp in ms, also for a copy of a copy; None if only the Start exists
    original_ms: int | None

    def as_start(self, message_id: MessageId) -> MarkerV1:
        """Returns the V1 Start that contains this message."""
        partition, offset = message_id
        key = self.key or b""
        return MarkerV1(
            queue_id=key,
            type=MarkerType.START,
            partition=partition,
            offset=offset,
            key=key,
            value=self.value or b"",
        )


@dataclass(slots=True)
class Batch:
    """Results of the messages of one call."""

    keys: dict[MessageId, bytes | None] = field(default_factory=dict)  #: keys of messages that were found
    unanswered: dict[MessageId, Found] = field(default_factory=dict)
    refused: dict[MessageId, tuple[Found, KafkaError]] = field(default_factory=dict)
    failed: dict[MessageId, str] = field(default_factory=dict)  #: reason of each failed message
    kept: dict[MessageId, Found] = field(default_factory=dict)  #: content of failed messages that were found
    alone: set[MessageId] = field(default_factory=set)  #: messages whose failure concerns no other message
    no_dead_letters: str | None = None  #: reason why no dead letter can be written

    def telling(self, message_id: MessageId, found: Found) -> Told:
        """Returns the delivery callback for the copy of a message."""

        def told(error: KafkaError | None) -> None:
            self.unanswered.pop(message_id, None)
            if error is not None:
                self.refused[message_id] = found, error

        self.unanswered[message_id] = found
        return told

    def fail(self, message_id: MessageId, found: Found, why: str, *, alone: bool = False) -> None:
        """Records why a found message was not copied. ``alone``: the cause concerns no other message."""
        if alone:
            self.alone.add(message_id)
        self.failed[message_id] = why
        self.kept[message_id] = found
