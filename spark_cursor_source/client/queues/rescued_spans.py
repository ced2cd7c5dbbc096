"""Unread messages that retention has deleted, on their way from the rescue topic to a plain client."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import CursorqError
from spark_cursor_source.kafka.tail_consumer import Fetched
from spark_cursor_source.topics.rescue import Rescue, RescuedMessage


@dataclass(slots=True)
class _Span:
    """Removed offsets ``[position, past)`` of a partition, as far as they are not delivered."""

    position: int
    past: int
    reading: Generator[list[RescuedMessage]]
    removed: OffsetSet
    ready: deque[RescuedMessage] = field(default_factory=deque)
    found: OffsetSet = field(default_factory=OffsetSet.of)


class RescuedSpans:
    """Ranges of removed offsets whose messages are delivered before the messages that follow them.

    Later messages must wait: their Start would move the read position, and the tracker would take the rescued
    messages for acked ones.
    """

    def __init__(self, rescue: Rescue, topic: str, on_lost: Callable[[int, OffsetSet], None]) -> None:
        """``on_lost`` is called with the offsets of a partition that have no copy. It may raise."""
        self._rescue, self._topic, self._on_lost = rescue, topic, on_lost
        self._spans: dict[int, _Span] = {}

    @property
    def partitions(self) -> frozenset[int]:
        """Partitions with messages that are not delivered."""
        return frozenset(self._spans)

    def add(self, partition: int, first: int, past: int) -> None:
        """Adds removed offsets of a partition."""
        self.drop([partition])
        removed = OffsetSet.of((first, past))
        reading = self._rescue.messages(self._topic, partition, removed)
        self._spans[partition] = _Span(position=first, past=past, reading=reading, removed=removed)

    def drop(self, partitions: Iterable[int]) -> None:
        """Forgets the messages of partitions that are not read any more, or that are read anew."""
        for number in partitions:
            if (span := self._spans.pop(number, None)) is not None:
                span.reading.close()

    def next(self, most: int, *, paused: Collection[int]) -> tuple[Fetched, bool] | None:
        """Returns the next messages of one partition, and whether they are its last ones.

        Returns None if there are no messages.

        Raises:
            KafkaUnavailable, NotAuthorized, KafkaRefused, and the errors of ``on_lost``
        """
        for number, span in self._spans.items():
            if number not in paused:
                return self._next(number, span, most)
        return None

    def _next(self, number: int, span: _Span, most: int) -> tuple[Fetched, bool]:
        is_last = self._fill(number, span, most)
        messages: list[Any] = [span.ready.popleft() for _ in range(min(most, len(span.ready)))]
        is_last = is_last and not span.ready
        span.found |= OffsetSet.from_offsets(one.offset() for one in messages)
        start = span.position
        span.position = span.past if is_last else messages[-1].offset() + 1
        if is_last:
            del self._spans[number]
            missing = span.removed - span.found
            missing -= self._rescue.without_message(self._topic, number, missing) if missing else missing
            if missing:
                self._on_lost(number, missing)
        return Fetched(partition=number, start=start, stop=span.position, messages=messages), is_last

    def _fill(self, number: int, span: _Span, most: int) -> bool:
        """Reads messages until ``most`` are ready. Returns True if there are no more."""
        try:
            while len(span.ready) < most:
                more = next(span.reading, None)
                if more is None:
                    return True
                span.ready.extend(more)
        except CursorqError:
            self.add(number, span.position, span.past)  # the read cannot go on, so it begins again
            raise
        return False
