"""What the markers topic says about every message: each delivery, why there was another, and how it ended."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from spark_cursor_source.consumer.planner import HANDED_BACK
from spark_cursor_source.core.marker import End, Hello, KeepAlive, Marker, Reject, Release, Start

MessageId = tuple[int, int]  #: partition, offset


class Reason(enum.StrEnum):
    """Why a message was delivered again."""

    FAILED = "failed"  #: the handler raised
    RELEASED = "released"  #: the handler gave it back
    LEASE_OVER = "lease ran out"
    REPLAYED = "replay after the crash"
    UNEXPLAINED = "unexplained"  #: what must not be: after its ack, or under a lease that still ran


@dataclass(slots=True)
class _Delivery:
    """The last delivery of a message."""

    run_id: str | None
    count: int | None
    deadline_ms: int
    given_back: Reason | None = None


class MarkerHistory:
    """Markers of one subscription and topic, added in the order of the log, and what they amount to.

    It is told apart from the tracker's state machine on purpose: what it finds is a second opinion.

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
        self.again: Counter[Reason] = Counter()  #: deliveries beyond the first
        self.runs: dict[str, None] = {}  #: in the order of their beginning

    @property
    def in_flight(self) -> int:
        """Messages that were delivered and of which nobody has said anything since."""
        return len(self._held)

    def add(self, marker: Marker, *, at_ms: int) -> None:
        """Take in the next marker, which the broker appended at ``at_ms``."""
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
                # Without a delay it is an exception's: the tracker's backoff is for those.
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
