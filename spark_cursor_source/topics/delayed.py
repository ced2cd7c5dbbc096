"""Filter for delayed messages: messages whose headers ask for a later delivery are held back until due."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from confluent_kafka import Message

from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.kafka.record_headers import Headers
from spark_cursor_source.topics.chunks import Chunk, Mask, MessageChunk, RescuedChunk
from spark_cursor_source.wire.deliver_at import HEADERS, due

GRAIN_MS = 250  #: poll times are multiples of this, so that messages share markers
MOST_WAITS = 128  #: longest wait in grains; longer waits use a coarser grain


def look_again_ms(due_ms: int, now_ms: int) -> int:
    """Returns the next poll time of a delayed message: its due time, or up to a 64th of the wait earlier.

    An early poll only costs another poll. No wait exceeds 12 h. Messages that are due within half a minute
    have a poll time within 250 ms of their due time. Messages that are due later share coarser poll times.

    >>> look_again_ms(10_001, 5_000), look_again_ms(3_600_100, 0), look_again_ms(10**15, 0)
    (10250, 3584000, 43008000)
    """
    left_ms = min(due_ms - now_ms, MAX_LEASE_MS)
    grain_ms = GRAIN_MS
    while grain_ms * MOST_WAITS < left_ms:
        grain_ms *= 2
    moment = now_ms + left_ms
    # The finest grain is rounded up: the message is due at the poll time and is not polled twice.
    return (-(-moment // grain_ms) if grain_ms == GRAIN_MS else moment // grain_ms) * grain_ms


log = logging.getLogger(__name__)

ChunkT = TypeVar("ChunkT", bound=Chunk)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayFilter:
    """Holds back messages whose delivery time is after ``now_ms`` and reports them to ``on_early``."""

    now_ms: int  #: broker time in ms, the same for a whole batch, so that repeated reads of it do not differ
    #: called once for each next poll time (broker ms) with the slice and the offsets to check again then
    on_early: Callable[[Slice, OffsetSet, int], None]


class EarlyMessages:
    """Messages of one slice that are not due."""

    def __init__(self, piece: Slice, now_ms: int) -> None:
        self._slice, self._now_ms = piece, now_ms
        self._again: dict[int, list[int]] = {}  # next poll time (broker ms) -> offsets
        # (offset, header) of the first unreadable delivery time
        self._unreadable: tuple[int, str] | None = None
        self._unreadable_count = 0

    def sift(self, chunk: ChunkT) -> ChunkT:
        """Return the messages that are due, maybe none."""
        is_due = self.due_rows(chunk)
        return chunk if is_due is None else chunk.where(is_due)

    def due_rows(self, chunk: Chunk) -> Mask | None:
        """Return True for each message that is due; None: all are."""
        early = [
            row
            for row, headers, timestamp_ms in chunk.with_headers(HEADERS)
            if not self._is_due(int(chunk.offsets[row]), headers, timestamp_ms)
        ]
        if not early:
            return None
        is_due = np.ones(len(chunk), np.bool_)
        is_due[early] = False
        return is_due

    def _is_due(self, offset: int, headers: Headers, timestamp_ms: int | None) -> bool:
        asked = due(headers, timestamp_ms)
        if asked.unreadable is not None:
            self._unreadable = self._unreadable or (offset, asked.unreadable)
            self._unreadable_count += 1
        if asked.at_ms is None or asked.at_ms <= self._now_ms:
            return True
        self._again.setdefault(look_again_ms(asked.at_ms, self._now_ms), []).append(offset)
        return False

    def held_back(self) -> Iterator[tuple[int, OffsetSet]]:
        """Yield the next poll times with their offsets.

        Complete, and logged, after all messages have been sifted.
        """
        if self._unreadable is not None:
            offset, header = self._unreadable
            log.warning(
                "A deliverAt or deliverAfter header is not a valid time, so the message is delivered "
                "at once. event=due_time_unreadable topic=%s partition=%d offset=%d header=%s "
                "messages=%d",
                self._slice.topic,
                self._slice.partition,
                offset,
                header,
                self._unreadable_count,
            )
        for again_ms, offsets in sorted(self._again.items()):
            yield again_ms, OffsetSet.from_offsets(offsets)


def messages_not_due(
    piece: Slice, messages: Sequence[Message], now_ms: int
) -> tuple[Sequence[Message], list[tuple[int, OffsetSet]]]:
    """Return the messages that are due, and the next poll times with the offsets of the others."""
    if not messages:
        return messages, []
    early = EarlyMessages(piece, now_ms)
    is_plain = all(isinstance(one, Message) for one in messages)
    chunk = (MessageChunk if is_plain else RescuedChunk)(list(messages))
    due_now = early.sift(chunk)
    return due_now.messages, list(early.held_back())
