"""Counts of the consumers of a plain client."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, KeepAlive, Marker, Reject, Release
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.metrics import table
from spark_cursor_source.metrics.counts import Counts, LimitedLabel
from spark_cursor_source.metrics.table import Sample

_MOST_NAMES = 100  # values of the labels subscription and queue, before the others are ``other``
_MOST_LEASES = 1_000  # starts that are remembered until their messages are settled
_ACTIONS: dict[type[Marker], str] = {End: "ack", Release: "release", Reject: "reject"}


class ServiceCounts:
    """Counts of all consumers of a service, closed ones included."""

    def __init__(self, *, most_names: int = _MOST_NAMES) -> None:
        self._counts = Counts()
        self._subscription, self._queue = LimitedLabel(most=most_names), LimitedLabel(most=most_names)
        self._open: dict[ConsumerCounts, None] = {}
        self._lock = threading.Lock()

    def consumer(self, topic: str, subscription: str, queue: str) -> ConsumerCounts:
        """Returns the counts of a new consumer. ``queue`` is empty for a consumer of all queues."""
        labels = (topic, self._subscription(subscription), self._queue(queue))
        made = ConsumerCounts(self._counts, labels, self._forget)
        with self._lock:
            self._open[made] = None
        return made

    def samples(self) -> Iterator[Sample]:
        """Yields the metrics of the client."""
        with self._lock:
            consumers = list(self._open)
        in_flight, buffered = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
        for one in consumers:
            in_flight[one.labels] += one.held()
            buffered[one.labels] += one.buffered()
        for metric, counted in ((table.CLIENT_IN_FLIGHT, in_flight), (table.CLIENT_BUFFERED, buffered)):
            yield from (Sample(metric, labels, messages) for labels, messages in counted.items())
        yield from self._counts.samples()

    def _forget(self, consumer: ConsumerCounts) -> None:
        with self._lock:
            self._open.pop(consumer, None)


class ConsumerCounts:
    """Counts of one consumer. The batcher of its acks calls it once for each write."""

    def __init__(
        self,
        counts: Counts,
        labels: tuple[str, str, str],
        forget: Callable[[ConsumerCounts], None],
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.labels = labels
        self.held: Callable[[], int] = lambda: 0  #: returns the number of leased messages
        self.buffered: Callable[[], int] = lambda: 0  #: returns the number of messages in the buffer
        self._counts, self._forget, self._now_s = counts, forget, now_s
        self._lock = threading.Lock()
        #: time, cell and messages of each start that are not settled yet
        self._started: deque[tuple[float, Cell, OffsetSet]] = deque(maxlen=_MOST_LEASES)

    def started(self, cell: Cell, offsets: OffsetSet, *, delivery_count: int) -> None:
        """Counts a delivery whose Start the brokers have stored."""
        self._counts.add(table.CLIENT_DELIVERIES, *self.labels, by=len(offsets))
        if delivery_count > 1:
            self._counts.add(table.CLIENT_REDELIVERIES, *self.labels, by=len(offsets))
        with self._lock:
            self._started.append((self._now_s(), cell, offsets))

    def written(self, markers: Iterable[Marker]) -> None:
        """Counts settlements and extensions that the brokers have stored."""
        for marker in markers:
            if isinstance(marker, KeepAlive):
                self._counts.add(table.LEASE_EXTENSIONS, *self.labels, by=len(marker.offsets))
            elif isinstance(marker, (End, Release, Reject)):
                action = _ACTIONS[type(marker)]
                self._counts.add(table.CLIENT_SETTLEMENTS, *self.labels, action, by=len(marker.offsets))
                self._settled(marker.cell, marker.offsets)

    def close(self) -> None:
        """Ends the gauges of this consumer. Its counters stay."""
        self._forget(self)

    def _settled(self, cell: Cell, offsets: OffsetSet) -> None:
        now_s, left = self._now_s(), []
        with self._lock:
            for began_s, of, held in self._started:
                rest = held if of != cell or held.isdisjoint(offsets) else held - offsets
                if len(rest) < len(held):
                    self._counts.observe(
                        table.PROCESSING, *self.labels, seconds=now_s - began_s, times=len(held) - len(rest)
                    )
                if rest:
                    left.append((began_s, of, rest))
            self._started = deque(left, maxlen=_MOST_LEASES)
