"""Unread messages that retention has deleted, on their way from the rescue topic to a plain client."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from spark_cursor_source.client.queues.background_reads import BackgroundReads
from spark_cursor_source.client.queues.read_pauses import ReadPauses
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
    gaps: OffsetSet | None = None  #: removed offsets that never held a message; None: not asked yet
    ready: deque[RescuedMessage] = field(default_factory=deque)


class RescuedSpans:
    """Ranges of removed offsets whose messages are delivered before the messages that follow them.

    Later messages must wait: their Start would move the read position, and the tracker would take the rescued
    messages for acked ones.
    """

    def __init__(
        self, rescue: Rescue, topic: str, on_lost: Callable[[int, OffsetSet], None], pauses: ReadPauses
    ) -> None:
        """``on_lost`` is called with the offsets of a partition that have no copy. It may raise."""
        self._rescue, self._topic, self._on_lost, self._pauses = rescue, topic, on_lost, pauses
        self._spans: dict[int, _Span] = {}
        self._reads: BackgroundReads[tuple[OffsetSet, bool]] = BackgroundReads()

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
            running = self._reads.forget([number])
            if (span := self._spans.pop(number, None)) is not None:
                _close_after(running, span.reading)

    def close(self) -> None:
        """Waits for the reads that still run, and forgets all."""
        self._reads.close()
        self.drop(self.partitions)

    def next(self, most: int, *, paused: Collection[int]) -> tuple[Fetched, bool] | None:
        """Returns the next messages of one partition, and whether they are its last ones.

        Returns None if there are no messages, or if all wait for the end of a pause or for an answer.

        Raises:
            NotAuthorized, KafkaRefused, and the errors of ``on_lost``
        """
        waiting = self._pauses.partitions.union(paused)
        for number, span in list(self._spans.items()):
            if number in waiting:
                continue
            if not self._reads.has_result(number, span, partial(self._fill, number, span, most)):
                continue
            with self._pauses.reading(number):
                return self._next(number, span, most)
        return None

    def _next(self, number: int, span: _Span, most: int) -> tuple[Fetched, bool]:
        try:
            gaps, is_last = self._reads.take(number)
        except CursorqError:
            self.add(number, span.position, span.past)  # the read cannot go on, so it begins again
            raise
        messages: list[Any] = list(islice(span.ready, most))
        is_last = is_last and len(messages) == len(span.ready)
        stop = span.past if is_last else messages[-1].offset() + 1
        # A Start of these messages moves the read position past what is lost: nobody would look for it again.
        found = OffsetSet.from_offsets(one.offset() for one in messages)
        if lost := OffsetSet.of((span.position, stop)) - gaps - found:
            self._on_lost(number, lost)
        # The span changes only now. After an error, the same messages come again.
        fetched = Fetched(partition=number, start=span.position, stop=stop, messages=messages)
        span.position = stop
        for _ in messages:
            span.ready.popleft()
        if is_last:
            del self._spans[number]
        return fetched, is_last

    def _fill(self, number: int, span: _Span, most: int) -> tuple[OffsetSet, bool]:
        """Reads messages until ``most`` are ready.

        Returns the offsets without a message, and True if there are no more messages.
        """
        if span.gaps is None:  # before the read, which keeps the index of the rescue topic
            span.gaps = self._rescue.without_message(self._topic, number, span.removed)
        while len(span.ready) < most:
            more = next(span.reading, None)
            if more is None:
                return span.gaps, True
            span.ready.extend(more)
        return span.gaps, False


def _close_after(running: Sequence[Future[tuple[OffsetSet, bool]]], reading: Generator[Any]) -> None:
    """Closes a generator, after the thread that runs it if there is one."""
    if running:
        running[0].add_done_callback(lambda _: reading.close())
    else:
        reading.close()
