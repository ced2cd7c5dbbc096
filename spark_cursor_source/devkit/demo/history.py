"""History of every message, from the markers topic: deliveries, reasons of redeliveries, and the end."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from spark_cursor_source.consumer.planner import HANDED_BACK
from spark_cursor_source.core.marker import End, Hello, KeepAlive, Marker, Reject, Release, Start

MessageId = tuple[int, int]  #: (partition, offset) in the queue topic


class Reason(enum.StrEnum):
    """Reason of a redelivery."""

    FAILED = "failed"  #: the handler raised an exception
    RELEASED = "released"  #: the handler released the message
    LEASE_OVER = "lease ran out"
    REPLAYED = "replay after the crash"
    UNEXPLAINED = "unexplained"  #: an error: redelivered after its ack or under a running lease


@dataclass(slots=True)
class _Delivery:
    """The last delivery of a message."""

    run_id: str | None
    count: int | None
    deadline_ms: int
    given_back: Reason | None = None


class MarkerHistory:
    """Aggregates the markers of one subscription and topic, added in log order.

    The code is separate from the tracker's state machine on purpose, as an independent check of its results.

    >>> from spark_cursor_source.core.cell import Cell
    >>> from spark_cursor_source.core.offsets import OffsetSet
    >>> cell, both = Cell(subscription="s", topic="t", partition=0), OffsetSet.of((0, 2))
    >>> history = MarkerHistory()
    >>> start = Start(cell=cell, offsets=both, lease_ms=9_000, delivery_count=1, run_id="a")
    >>> history.add(start, at_ms=0)
    >>> history.add(End(cell=cell, offsets=OffsetSet.of((0, 1))), at_ms=10)
    >>> again = Start(cell=cell, offsets=OffsetSet.of((1, 2)), lease_ms=9_000, delivery_count=2, run_id="b")
    >>> history.add(again, at_ms=20)
    >>> dict(history.again), history.acked, history.in_flight
    ({<Reason.REPLAYED: 'replay after the crash'>: 1}, {(0, 0)}, 1)
    """

    def __init__(self) -> None:
        self._last: dict[MessageId, _Delivery] = {}
        self._held: set[MessageId] = set()
        self.acked: set[MessageId] = set()
        self.deliveries = 0
        self.again: Counter[Reason] = Counter()  #: count of redeliveries by reason
        self.runs: dict[str, None] = {}  #: run ids in order of their first marker

    @property
    def in_flight(self) -> int:
        """Number of delivered messages without a settlement since."""
        return len(self._held)

    def add(self, marker: Marker, *, at_ms: int) -> None:
        """Adds the next marker, with its append time ``at_ms``."""
        match marker:
            case Start():
                self.runs.setdefault(marker.run_id or "")
                for message in _messages(marker):
                    self._deliver(message, marker, at_ms)
            case End():
                ended = set(_messages(marker))
                self.acked |= ended
                self._held -= ended
            case Release():
                # A release without a delay follows an exception, so that the tracker's backoff applies.
                reason = Reason.FAILED if marker.delay_ms is None else Reason.RELEASED
                self._give_back(marker, reason)
            case Reject():
                self._held -= set(_messages(marker))
            case KeepAlive():
                for message in _messages(marker):
                    self._keep_alive(message, marker, at_ms)
            case Hello():
                self.runs.setdefault(marker.run_id)

    def _deliver(self, message: MessageId, start: Start, at_ms: int) -> None:
        before = self._last.get(message)
        self.deliveries += 1
        if before is not None:
            self.again[self._why(message, before, start, at_ms)] += 1
        self._last[message] = _Delivery(start.run_id, start.delivery_count, at_ms + start.lease_ms)
        self._held.add(message)

    def _why(self, message: MessageId, before: _Delivery, start: Start, at_ms: int) -> Reason:
        if message in self.acked:
            return Reason.UNEXPLAINED
        if before.given_back is not None:
            return before.given_back
        if before.deadline_ms < at_ms:
            return Reason.LEASE_OVER
        return Reason.REPLAYED if before.run_id != start.run_id else Reason.UNEXPLAINED

    def _give_back(self, release: Release, reason: Reason) -> None:
        for message in _messages(release):
            last = self._last.get(message)
            if last is not None and last.count == release.delivery_count:
                last.given_back = Reason.REPLAYED if release.reason == HANDED_BACK else reason
                self._held.discard(message)

    def _keep_alive(self, message: MessageId, marker: KeepAlive, at_ms: int) -> None:
        last = self._last.get(message)
        if last is not None and last.run_id == marker.run_id:
            last.deadline_ms = max(last.deadline_ms, at_ms + marker.lease_ms)


def _messages(marker: Start | End | Release | Reject | KeepAlive) -> Iterable[MessageId]:
    partition = marker.cell.partition
    return ((partition, offset) for offset in marker.offsets)
