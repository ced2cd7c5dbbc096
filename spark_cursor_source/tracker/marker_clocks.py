"""Broker time of each markers partition."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from spark_cursor_source.core.broker_clock import BrokerClock
from spark_cursor_source.kafka.admin import ClusterAdmin


class MarkerClocks:
    """One clock for each markers partition, because each partition has its own leader."""

    def __init__(self, topics: ClusterAdmin, markers_topic: str) -> None:
        self._topics = topics
        self._topic = markers_topic
        self._clocks: dict[int, BrokerClock] = {}
        self._read_all: dict[int, int] = {}  # by partition, broker time in ms when all its markers were read
        self._seen: dict[int, int] = {}  # end of each partition when its last append time was read
        self.fresh: set[int] = set()  #: partitions with an append since the start; their clocks are accurate

    def resume(self, partitions: Iterable[int], now_ms: Mapping[int, int]) -> None:
        """Adds the missing clocks. They start at ``now_ms``, readings of an earlier run."""
        for partition in partitions:
            self._clocks.setdefault(partition, BrokerClock(now_ms.get(partition)))

    def now(self, instant_ms: int) -> dict[int, int]:
        """Returns the broker time of each partition at a time of :func:`monotonic_ms`, if it is known."""
        times = {number: clock.now_ms(monotonic_ms=instant_ms) for number, clock in self._clocks.items()}
        return {number: now for number, now in times.items() if now is not None}

    def look(self, ends: Mapping[int, int]) -> None:
        """Reads the last append time of each partition whose end has moved."""
        changed = [number for number, end in ends.items() if self._seen.get(number) != end]
        if not changed:
            return
        last = self._topics.last_appends((self._topic, number) for number in changed)
        read_at = monotonic_ms()
        for (_, number), (_, at_ms, epoch) in last.items():
            self.observe(number, at_ms=at_ms, epoch=epoch, read_at=read_at)
        self.fresh |= {number for number in changed if number in self._seen}
        self._seen |= {number: ends[number] for number in changed}

    def observe(self, partition: int, *, at_ms: int, epoch: int | None, read_at: int) -> None:
        """Records the append time of a marker, which was read at ``read_at``."""
        self._clocks[partition].observe(broker_ms=at_ms, monotonic_ms=read_at, epoch=epoch)

    def note_all_read(self, times: Mapping[int, int]) -> None:
        """Records the broker times at which all markers of these partitions were read."""
        self._read_all |= times

    def read_between(self, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Returns the bounds of the append times of markers that were read just now.

        See :attr:`TrackerOffset.read_between`.
        """
        now = self.now(monotonic_ms())
        return {
            number: (self._read_all.get(number, 0), now[number]) for number in partitions if number in now
        }


def monotonic_ms() -> int:
    """Returns the time of this process's monotonic clock in ms."""
    return time.monotonic_ns() // 1_000_000
