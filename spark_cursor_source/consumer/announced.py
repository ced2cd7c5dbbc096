"""Messages that come back to a consumer: announced by the tracker, and not started yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from spark_cursor_source.core.batch import Delivery, StartedDeliveries
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.tracker import Redeliver
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import Pace
from spark_cursor_source.topics.redeliveries import RedeliveryLog
from spark_cursor_source.topics.redelivery_partitions import RedeliveryPartitions

_COUNT_MS = 2_000  # how often it is asked whether the redeliveries topic has more partitions


class AnnouncedRedeliveries:
    """What the tracker has announced to one run, in the order in which it came; one thread's."""

    def __init__(self, config: Mapping[str, str], topic: str, topics: ClusterAdmin) -> None:
        self._topics = topics
        self._tail = RedeliveryLog(config, topic)
        self._places = RedeliveryPartitions(topics, topic)
        self._count = Pace(_COUNT_MS)
        self._scanned: dict[int, int] | None = None
        self._taken = StartedDeliveries()
        self._waiting: deque[Redeliver] = deque()

    def look(self, is_ours: Callable[[Redeliver], bool]) -> None:
        """Take in what was announced since the last look.

        Raises:
            RedeliveriesTopicRecreated: the topic is another one by now.
        """
        if self._count.is_time():
            self._places.count()
        found = self._topics.end_offsets(self._places.all, committed=True)
        ends = {number: at for (_, number), at in found.items()}
        self._tail.poll(ends)
        # Before the first Hello: what is announced to this run comes after it.
        records = self._tail.between(ends if self._scanned is None else self._scanned, ends)
        self._waiting.extend(one.redeliver for one in records if is_ours(one.redeliver))
        self._tail.discard(ends)
        self._scanned = ends

    def waiting(self, paused: Collection[int], *, alone: bool) -> int:
        """How many messages wait of partitions that are not paused, suspects or others."""
        return sum(
            len(one.offsets)
            for one in self._waiting
            if one.alone == alone and one.cell.partition not in paused
        )

    def take(self, most: int, paused: Collection[int], *, alone: bool) -> Redeliver | None:
        """At most so many messages of what comes next, suspects or others; None where nothing does."""
        while most and (one := self._first(paused, alone)) is not None:
            self._waiting.remove(one)
            fresh = self._taken.fresh(one.cell, one.offsets, delivery_count=one.delivery_count)
            if not fresh:
                continue
            piece = next(fresh.chunks(most))
            if len(piece) < len(fresh):
                self.put_back(replace(one, offsets=fresh - piece))
            return replace(one, offsets=piece)
        return None

    def _first(self, paused: Collection[int], alone: bool) -> Redeliver | None:
        return next(
            (one for one in self._waiting if one.alone == alone and one.cell.partition not in paused), None
        )

    def put_back(self, one: Redeliver) -> None:
        """It comes next, again."""
        self._waiting.appendleft(one)

    def started(self, delivery: Delivery) -> None:
        """What was announced of an earlier delivery of these messages is stale."""
        self._taken.add(delivery)

    def forget(self, cells: Collection[Cell]) -> None:
        """The tracker announces them to whoever has these cells next."""
        self._waiting = deque(one for one in self._waiting if one.cell not in cells)

    def close(self) -> None:
        """End the consumer."""
        self._tail.close()
