"""The log of one cell, second by second, and the tracker that reads it."""

from __future__ import annotations

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import (
    CloseBreaker,
    Delete,
    End,
    EndLeased,
    EndOffsetObserved,
    EndUpTo,
    Hello,
    KeepAlive,
    Leave,
    Marker,
    OpenBreaker,
    Reject,
    Release,
    Seek,
    Start,
    Withhold,
)
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.policy import Backoff, RedeliveryPolicy, StepBackoff
from spark_cursor_source.core.tracker import (
    CellTracker,
    DeadLetter,
    Decision,
    Redeliver,
)

CELL = Cell(subscription="billing", topic="orders", partition=3)
BEGINNING = CursorSnapshot(cell=CELL, read_position=0, next_marker=0)
A, B = "run-a", "run-b"
NO_DELAY = StepBackoff(delays_ms=())


def offsets(*spans: int | tuple[int, int]) -> OffsetSet:
    """Single offsets and half-open ranges as one set."""
    return OffsetSet.of(*(span if isinstance(span, tuple) else (span, span + 1) for span in spans))


class Log:
    """A tracker, and the markers of its cell as they are appended second by second."""

    def __init__(
        self,
        *,
        max_deliveries: int | None = 3,
        backoff: Backoff = NO_DELAY,
        jitter: float = 0.0,
        policy: RedeliveryPolicy | None = None,
    ) -> None:
        self.policy = policy or RedeliveryPolicy(
            max_deliveries=max_deliveries, backoff=backoff, jitter=jitter
        )
        self.tracker = CellTracker.resume(BEGINNING, cell=CELL, policy=self.policy)
        self.end = 0  # of the markers topic

    def append(self, marker: Marker, at: float) -> None:
        self.tracker.apply(marker, at_ms=round(at * 1000), marker_offset=self.end)
        self.end += 1

    def start(
        self,
        held: OffsetSet,
        *,
        at: float,
        lease: float = 60,
        count: int = 1,
        run: str = A,
        alone: bool = False,
    ) -> None:
        lease_ms = round(lease * 1000)
        marker = Start(
            cell=CELL, offsets=held, lease_ms=lease_ms, delivery_count=count, run_id=run, alone=alone
        )
        self.append(marker, at)

    def end_of(self, held: OffsetSet, *, at: float = 0, run: str | None = None) -> None:
        self.append(End(cell=CELL, offsets=held, run_id=run), at)

    def end_up_to(self, position: int, *, at: float = 0, run: str | None = None) -> None:
        self.append(EndUpTo(cell=CELL, position=position, run_id=run), at)

    def end_leased(self, held: OffsetSet, *, at: float = 0, run: str = A, count: int = 1) -> None:
        self.append(EndLeased(cell=CELL, offsets=held, run_id=run, delivery_count=count), at)

    def leave(self, held: OffsetSet, *, at: float = 0, count: int = 1, run: str | None = None) -> None:
        self.append(Leave(cell=CELL, offsets=held, delivery_count=count, run_id=run), at)

    def keep_alive(
        self,
        held: OffsetSet,
        *,
        at: float,
        lease: float = 60,
        count: int | None = None,
        run: str | None = None,
    ) -> None:
        marker = KeepAlive(
            cell=CELL, offsets=held, lease_ms=round(lease * 1000), delivery_count=count, run_id=run
        )
        self.append(marker, at)

    def release(
        self, held: OffsetSet, *, at: float, count: int = 1, delay: float | None = 0, reason: str = ""
    ) -> None:
        marker = Release(
            cell=CELL,
            offsets=held,
            delivery_count=count,
            delay_ms=None if delay is None else round(delay * 1000),
            reason=reason,
        )
        self.append(marker, at)

    def not_due(self, held: OffsetSet, *, at: float, due: float, count: int = 1) -> None:
        """The Release of messages that were not delivered."""
        self.append(Release(cell=CELL, offsets=held, delivery_count=count, due_ms=round(due * 1000)), at)

    def reject(self, held: OffsetSet, *, at: float = 0, count: int = 1, reason: str = "bad") -> None:
        self.append(Reject(cell=CELL, offsets=held, delivery_count=count, reason=reason), at)

    def hello(self, run: str, *, at: float = 0, position: int = 0, topic_id: str | None = None) -> None:
        self.append(Hello(cell=CELL, run_id=run, position=position, topic_id=topic_id), at)

    def log_end(self, position: int, *, at: float) -> None:
        self.append(EndOffsetObserved(cell=CELL, position=position), at)

    def hold(self, trip: str, *, at: float) -> None:
        self.append(OpenBreaker(cell=CELL, trip=trip), at)

    def resume(self, *, at: float) -> None:
        self.append(CloseBreaker(cell=CELL), at)

    def withhold(
        self,
        held: OffsetSet,
        *,
        at: float,
        delay: float = 10,
        tries: int = 1,
        count: int = 1,
        reason: str = "rejected",
        error: str = "bad",
        last: float = 0,
        trouble: str = "no leader",
    ) -> None:
        marker = Withhold(
            cell=CELL,
            offsets=held,
            delivery_count=count,
            reason=reason,
            error=error,
            last_delivery_ms=round(last * 1000),
            trouble=trouble,
            tries=tries,
            delay_ms=round(delay * 1000),
        )
        self.append(marker, at)

    def advance(self, now: float | None) -> list[Decision]:
        return self.tracker.advance(None if now is None else round(now * 1000))

    def seek(self, position: int, *, at: float = 0) -> None:
        self.append(Seek(cell=CELL, position=position), at)

    def delete(self, *, at: float = 0) -> None:
        self.append(Delete(cell=CELL), at)

    @property
    def state(self) -> CursorSnapshot:
        state = self.tracker.snapshot()
        assert state is not None, "there is no cell"
        return state

    def restart(self, *, max_deliveries: int | None) -> None:
        self.resume_with(RedeliveryPolicy(max_deliveries=max_deliveries, backoff=self.policy.backoff))

    def resume_with(self, policy: RedeliveryPolicy) -> None:
        self.policy = policy
        self.tracker = CellTracker.resume(self.state, cell=CELL, policy=self.policy)


def redeliver(held: OffsetSet, count: int, *, run: str = A, alone: bool = False) -> Redeliver:
    return Redeliver(cell=CELL, offsets=held, delivery_count=count, run_id=run, alone=alone)


def dead(
    held: OffsetSet,
    count: int,
    reason: str,
    error: str = "",
    last: float = 0,
    *,
    tries: int = 0,
    generation: float = 0,
) -> DeadLetter:
    return DeadLetter(
        cell=CELL,
        offsets=held,
        delivery_count=count,
        reason=reason,
        error=error,
        last_delivery_ms=round(last * 1000) or None,
        tries=tries,
        generation_ms=round(generation * 1000) or None,
    )


def delivered_times(log: Log, held: OffsetSet, times: int) -> None:
    """Deliver the offsets ``times`` times, the last one at 0 with a lease of 60 s; all of it in run A."""
    for count in range(1, times + 1):
        log.start(held, at=0, count=count)
        if count < times:
            log.release(held, at=0, count=count)
    log.advance(0)


def available_log(**options: int | None) -> Log:
    """Offset 0, delivered once, available and announced to run A at 61."""
    log = Log(**options)  # type: ignore[arg-type]
    log.start(offsets(0), at=0)
    assert log.advance(61) == [redeliver(offsets(0), 1)]
    return log
