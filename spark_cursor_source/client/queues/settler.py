"""What is said of received messages, gathered and written as few markers by a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace

from spark_cursor_source.consumer.client_leases import ClientLeases
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, KeepAlive, Marker, Reject, Release
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.errors import (
    ClientClosed,
    CursorqError,
    KafkaUnavailable,
    MarkersNotDurable,
    NotSettled,
)

log = logging.getLogger(__name__)

Write = Callable[[Sequence[Marker]], None]  #: markers; they are on the brokers when it returns
Settlement = End | Release | Reject | KeepAlive  #: what is said of messages

_LINGER_S = 0.003  # in which further acks join the first, where nobody waits for it
_PAUSE_S = 0.2


class Acks:
    """Offsets of a cell that are acked and not yet written."""

    __slots__ = ("cell", "offsets")

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.offsets: list[int] = []


class AckBatcher:
    """Writes what is said of messages, and keeps the leases of those of which nothing was said yet.

    All that comes while a write is on its way is one write: a thousand acks are one End of their cell. What
    the brokers do not take is tried again until they do. Threads may share it.
    """

    def __init__(self, write: Write, *, lease_ms: int, timeout_ms: int) -> None:
        self._write = write
        self._lease_ms, self._timeout_ms = lease_ms, timeout_ms
        self._lock = threading.Lock()
        self._acks: dict[Cell, Acks] = {}
        self._said: list[Settlement] = []
        self._written: Future[None] = Future()  # of what was said since the last write began
        self._idle = True
        self._work, self._urgent = threading.Event(), threading.Event()
        self._leases = ClientLeases()
        self._extended_s = time.monotonic()
        self._closed = False
        self._given_up: CursorqError | None = None  # why something that was said is not written
        self._thread = threading.Thread(target=self._run, name="cursorq-settler", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def acks_of(self, cell: Cell) -> Acks:
        """Where acks of a cell are gathered, to be handed to :meth:`ack`."""
        with self._lock:
            return self._acks.setdefault(cell, Acks(cell))

    def ack(self, acks: Acks, offset: int) -> Future[None]:
        """The message has ended; the future is done when that is on the brokers."""
        with self._lock:
            if self._closed:
                raise ClientClosed
            acks.offsets.append(offset)
            if self._idle:
                self._wake()
            return self._written

    def say(self, settlement: Settlement) -> Future[None]:
        """The same for anything else that is to be said of messages."""
        with self._lock:
            if self._closed:
                raise ClientClosed
            self._said.append(settlement)
            if self._idle:
                self._wake()
            return self._written

    def wait_for(self, written: Future[None], timeout_ms: int | None) -> None:
        """Wait for such a future, now rather than later.

        Raises:
            NotSettled: not in time; it is tried further, until the consumer is closed.
            MarkersPartitionsChanged, TopicNotFound, NotAuthorized, KafkaRefused
        """
        self._urgent.set()
        waited_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        try:
            written.result(waited_ms / 1000)
        except TimeoutError:
            raise NotSettled(waited_ms, "no answer") from None
        except (MarkersNotDurable, KafkaUnavailable) as late:
            raise NotSettled(waited_ms, str(late)) from late

    def flush(self, timeout_ms: int | None) -> None:
        """Wait for all that was said before."""
        with self._lock:
            nothing = self._idle and not self._said and not any(acks.offsets for acks in self._acks.values())
            written = self._written
            if not nothing:
                self._wake()
        if not nothing:
            self.wait_for(written, timeout_ms)

    def track(self, cell: Cell, offsets: OffsetSet, *, run_id: str) -> None:
        """Keep these leases from now on."""
        with self._lock:
            self._leases.add(cell, offsets, run_id=run_id, now_ms=_now_ms())

    def untrack(self, cell: Cell, offsets: OffsetSet) -> None:
        """Leave these to their lease."""
        with self._lock:
            self._leases.remove(cell, offsets)

    @property
    def held(self) -> int:
        """How many messages are leased, in the buffer or handed out."""
        with self._lock:
            return len(self._leases)

    def close(self) -> None:
        """Write what was said, for the client's timeout at most; what is still leased runs out.

        Raises:
            NotSettled: the brokers did not take it all.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._wake()
        self._urgent.set()
        self._thread.join()
        if self._given_up is not None:
            raise NotSettled(self._timeout_ms, str(self._given_up)) from self._given_up

    # -- the thread ------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._idle = False
        self._work.set()

    def _run(self) -> None:
        while True:
            closing = self._closed  # what was said before that is in this round
            written, markers = self._take()
            if markers:
                self._carry_out(written, markers)
            elif closing:
                return
            else:
                self._rest()

    def _carry_out(self, written: Future[None], markers: Sequence[Marker]) -> None:
        """Write until it is written; who waits is told after the timeout, and then a closed one gives up."""
        began_s = time.monotonic()
        while True:
            try:
                self._write(markers)
            except (MarkersNotDurable, KafkaUnavailable) as problem:
                log.warning("settlement_is_late markers=%d error=%s", len(markers), problem)
                if time.monotonic() - began_s < self._timeout_ms / 1000:
                    time.sleep(_PAUSE_S)
                    continue
                if not written.done():
                    written.set_exception(problem)
                if not self._closed:
                    continue
                if not all(isinstance(marker, KeepAlive) for marker in markers):
                    self._given_up = problem
            except CursorqError as problem:
                log.error("settlement_failed markers=%d error=%s", len(markers), problem)
                written.set_exception(problem)
            if not written.done():
                written.set_result(None)
            self._forget(markers)
            return

    def _rest(self) -> None:
        """Until there is something to do."""
        with self._lock:
            if self._has_work() or self._closed:
                return
            self._idle = True
            self._work.clear()
            self._urgent.clear()
        left_s = self._extended_s + self._lease_ms / 3000 - time.monotonic()
        if self._work.wait(max(left_s, 0)):
            self._urgent.wait(_LINGER_S)

    def _has_work(self) -> bool:
        return bool(self._said) or any(acks.offsets for acks in self._acks.values())

    def _take(self) -> tuple[Future[None], list[Marker]]:
        """All that was said by now, as markers: what gives back before what ends.

        KeepAlives in turn before both: after a V1 marker that gives back, one would begin the lease anew.
        """
        with self._lock:
            said, self._said = self._said, []
            acked = [(acks.cell, acks.offsets) for acks in self._acks.values() if acks.offsets]
            for acks in self._acks.values():
                if acks.offsets:
                    acks.offsets = []
            keep_alives: list[KeepAlive] = []
            if time.monotonic() - self._extended_s >= self._lease_ms / 3000:
                keep_alives = self._due_keep_alives()
            written = self._written
            if said or acked:
                self._written = Future()
                self._idle = False
        ends = [End(cell=cell, offsets=OffsetSet.from_offsets(offsets)) for cell, offsets in acked]
        if not said and not ends:
            written = Future()  # nobody waits for KeepAlives
        return written, [*keep_alives, *_joined(said), *ends]

    def _due_keep_alives(self) -> list[KeepAlive]:
        self._extended_s = time.monotonic()
        overdue = self._leases.overdue
        markers = self._leases.keep_alives(now_ms=_now_ms(), lease_ms=self._lease_ms)
        if self._leases.overdue > overdue:
            log.warning("lease_limit_reached hours=12 messages=%d", self._leases.overdue - overdue)
        return markers

    def _forget(self, markers: Sequence[Marker]) -> None:
        """These are settled, or cannot be: no KeepAlive speaks for them."""
        with self._lock:
            for marker in markers:
                if isinstance(marker, (End, Release, Reject)):
                    self._leases.remove(marker.cell, marker.offsets)


def _joined(said: Sequence[Settlement]) -> list[Marker]:
    """One marker for all that the same is said of."""
    joined: dict[Settlement, list[OffsetSet]] = {}
    for one in said:
        joined.setdefault(replace(one, offsets=EMPTY), []).append(one.offsets)
    return [replace(one, offsets=OffsetSet.union(offsets)) for one, offsets in joined.items()]


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
