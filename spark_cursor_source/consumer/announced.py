"""Redeliveries of a plain client: announced by the tracker and not started yet."""

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

_COUNT_MS = 2_000  # poll interval for new partitions of the redeliveries topic


class AnnouncedRedeliveries:
    """Announcements of the tracker to one run, in arrival order. Not thread-safe."""

    def __init__(self, config: Mapping[str, str], topic: str, topics: ClusterAdmin) -> None:
        self._topics = topics
        self._tail = RedeliveryLog(config, topic)
        self._places = RedeliveryPartitions(topics, topic)
        self._count = Pace(_COUNT_MS)
        self._scanned: dict[int, int] | None = None
        self._taken = StartedDeliveries()
        self._waiting: deque[Redeliver] = deque()

    def look(self, is_ours: Callable[[Redeliver], bool]) -> None:
        """Reads the announcements written since the last call.

        Raises:
            RedeliveriesTopicRecreated: the topic was deleted and created again.
        """
        if self._count.is_time():
            self._places.count()
        found = self._topics.end_offsets(self._places.all, committed=True)
        ends = {number: at for (_, number), at in found.items()}
        self._tail.poll(ends)
        # The first call precedes the first Hello. Announcements to this run are written after its Hello.
        records = self._tail.between(ends if self._scanned is None else self._scanned, ends)
        self._waiting.extend(one.redeliver for one in records if is_ours(one.redeliver))
        self._tail.discard(ends)
        self._scanned = ends

    def waiting(self, paused: Collection[int], *, alone: bool) -> int:
        """Number of waiting messages in partitions that are not paused: suspects (``alone``) or others."""
        return sum(
            len(one.offsets)
            for one in self._waiting
            if one.alone == alone and one.cell.partition not in paused
        )

    def take(self, most: int, paused: Collection[int], *, alone: bool) -> Redeliver | None:
        """Removes and returns the next announcement with at most ``most`` messages; None if none waits.

        ``alone`` selects suspects or others. Partitions in ``paused`` are skipped.
        """
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
        """Puts an announcement back at the front of the queue."""
        self._waiting.appendleft(one)

    def started(self, delivery: Delivery) -> None:
        """Records a started delivery. Announcements of earlier deliveries of its messages are stale."""
        self._taken.add(delivery)

    def forget(self, cells: Collection[Cell]) -> None:
        """Drops the announcements of these cells. The tracker announces them again to the next owner."""
        self._waiting = deque(one for one in self._waiting if one.cell not in cells)

    def close(self) -> None:
        """Closes the consumer."""
        self._tail.close()
