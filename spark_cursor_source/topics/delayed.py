"""The messages of a slice that ask in their headers for a later delivery, held back until they are due."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from spark_cursor_source.core.delayed import look_again_ms
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.kafka.range_consumer import offset_of
from spark_cursor_source.wire.deliver_at import HEADERS, due

log = logging.getLogger(__name__)

_Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayFilter:
    """That messages which are not due are not delivered, by which instant that is judged, and who is told."""

    now_ms: int  #: broker time; one for a whole batch, or two reads of it would differ
    #: told once for each time (broker ms) at which some offsets of a slice are to be looked at again
    on_early: Callable[[Slice, OffsetSet, int], None]


class EarlyMessages:
    """The messages of one slice that are not due."""

    def __init__(self, piece: Slice, now_ms: int) -> None:
        self._slice, self._now_ms = piece, now_ms
        self._again: dict[int, list[int]] = {}  # when to look again -> offsets
        self._unreadable: tuple[int, str] | None = None  # the first: offset, header
        self._unreadable_count = 0

    def sift(self, messages: list[Message], offsets: _Offsets) -> tuple[list[Message], _Offsets]:
        """Those of the messages that are due."""
        # Two looks without a call a message: topics without headers pay for the first, others for both.
        if not any(map(Message.headers, messages)):
            return messages, offsets
        given: list[Any] = list(map(Message.headers, messages))
        if HEADERS.isdisjoint([name for headers in given if headers for name, _ in headers]):
            return messages, offsets
        is_due = np.fromiter(map(self._is_due, messages, given), np.bool_, len(messages))
        if is_due.all():
            return messages, offsets
        return list(compress(messages, is_due.tolist())), offsets[is_due]

    def _is_due(self, message: Message, headers: Any) -> bool:
        if not headers or HEADERS.isdisjoint([name for name, _ in headers]):
            return True
        kind, timestamp_ms = message.timestamp()
        asked = due(headers, None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms)
        offset = offset_of(message)
        if asked.unreadable is not None:
            self._unreadable = self._unreadable or (offset, asked.unreadable)
            self._unreadable_count += 1
        if asked.at_ms is None or asked.at_ms <= self._now_ms:
            return True
        self._again.setdefault(look_again_ms(asked.at_ms, self._now_ms), []).append(offset)
        return False

    def held_back(self) -> Iterator[tuple[int, OffsetSet]]:
        """When to look again, and at which messages; complete, and logged, when all messages were sifted."""
        if self._unreadable is not None:
            offset, header = self._unreadable
            log.warning(
                "due_time_unreadable topic=%s partition=%d offset=%d header=%s messages=%d",
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
    """Those of the messages that are due, and of the others when to look again."""
    if not any(map(Message.headers, messages)):
        return messages, []
    early = EarlyMessages(piece, now_ms)
    offsets = np.fromiter(map(Message.offset, messages), np.int64, len(messages))
    due_now, _ = early.sift(list(messages), offsets)
    return due_now, list(early.held_back())
