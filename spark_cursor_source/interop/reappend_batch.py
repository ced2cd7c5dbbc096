"""The messages of one call that are to be appended again, and what becomes of each."""

from __future__ import annotations

from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from spark_cursor_source.interop.reappend_troubles import MessageId
from spark_cursor_source.topics.copies import Headers, Told
from spark_cursor_source.wire.marker import START, MarkerV1


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A message that was read again."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    original_ms: int | None  #: its timestamp, that of the first copy's message; None: only its Start is left

    def as_start(self, message_id: MessageId) -> MarkerV1:
        """Its V1 Start, with the message in it."""
        partition, offset = message_id
        key = self.key or b""
        return MarkerV1(
            queue_id=key,
            type=START,
            partition=partition,
            offset=offset,
            key=key,
            value=self.value or b"",
        )


@dataclass(slots=True)
class Batch:
    """What becomes of the messages of one call."""

    keys: dict[MessageId, bytes | None] = field(default_factory=dict)  #: of those that were found
    unanswered: dict[MessageId, Found] = field(default_factory=dict)
    refused: dict[MessageId, tuple[Found, KafkaError]] = field(default_factory=dict)
    failed: dict[MessageId, str] = field(default_factory=dict)  #: why
    kept: dict[MessageId, Found] = field(default_factory=dict)  #: of those that failed, what was found
    alone: set[MessageId] = field(default_factory=set)  #: those that failed for a reason of their own
    no_dead_letters: str | None = None  #: why none can be written

    def telling(self, message_id: MessageId, found: Found) -> Told:
        """Who is told what became of the copy of a message."""

        def told(error: KafkaError | None) -> None:
            self.unanswered.pop(message_id, None)
            if error is not None:
                self.refused[message_id] = found, error

        self.unanswered[message_id] = found
        return told

    def fail(self, message_id: MessageId, found: Found, why: str, *, alone: bool = False) -> None:
        """Remember why a message that was found is not copied; ``alone``: no other is concerned."""
        if alone:
            self.alone.add(message_id)
        self.failed[message_id] = why
        self.kept[message_id] = found
