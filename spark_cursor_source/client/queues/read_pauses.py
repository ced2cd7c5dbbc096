"""Pauses of partitions whose messages cannot be read. Those of other partitions do not wait for them."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from spark_cursor_source.errors import CursorqError, KafkaUnavailable, ReadStalled
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.topics.retry_pauses import pause_ms

log = logging.getLogger(__name__)

_LONGEST_MS = 60_000


@dataclass(frozen=True, slots=True)
class _Pause:
    why: CursorqError
    tries: int
    until: Deadline


class ReadPauses:
    """Growing pauses of partitions after failed reads. Not thread-safe."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._pauses: dict[int, _Pause] = {}

    @property
    def partitions(self) -> frozenset[int]:
        """Partitions that are not read now."""
        return frozenset(number for number, pause in self._pauses.items() if not pause.until.over)

    def trouble(self, partitions: Collection[int]) -> CursorqError | None:
        """Returns an error if the last reads of all these partitions have failed."""
        found = [self._pauses[number].why for number in partitions if number in self._pauses]
        return found[0] if found and len(found) == len(partitions) else None

    @contextmanager
    def reading(self, partition: int) -> Iterator[None]:
        """Ends the block at a passing error of its read, and begins a pause."""
        began = time.monotonic()
        try:
            yield
        except (KafkaUnavailable, ReadStalled) as why:
            known = self._pauses.get(partition)
            tries = 1 if known is None else known.tries + 1
            wait_ms = min(pause_ms(tries, round(1000 * (time.monotonic() - began))), _LONGEST_MS)
            self._pauses[partition] = _Pause(why, tries, Deadline.after_ms(wait_ms))
            log.warning(
                "Messages of a partition cannot be read and are tried again. Other partitions are read. "
                "event=partition_read_paused topic=%s partition=%d next_try_s=%d why=%s",
                self._topic,
                partition,
                wait_ms // 1000,
                why,
            )
        else:
            self._pauses.pop(partition, None)

    def forget(self, partitions: Iterable[int]) -> None:
        """Forgets the pauses of partitions that are not read any more, or that are read anew."""
        for number in partitions:
            self._pauses.pop(number, None)
