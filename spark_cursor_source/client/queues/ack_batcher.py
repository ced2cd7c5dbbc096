"""Batches the settlements of received messages. A background thread writes them as few markers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from spark_cursor_source.client.queues.failure import as_own_error
from spark_cursor_source.consumer.lease_extender import now_ms
from spark_cursor_source.consumer.leases import Leased, Leases, keep_alives
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, KeepAlive, Marker, Reject, Release
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.settling import Settling, SettlingFold
from spark_cursor_source.errors import (
    ClientClosed,
    CursorqError,
    KafkaUnavailable,
    MarkersNotDurable,
    NotSettled,
)
from spark_cursor_source.metrics.consumers import ConsumerCounts
from spark_cursor_source.options.arguments import call_timeout

log = logging.getLogger(__name__)

Write = Callable[[Sequence[Marker]], object]  #: writes markers; returns when the brokers have stored them

_LINGER_S = 0.003  # seconds in which further acks join the first ack, if no caller waits for it
_PAUSE_S = 0.2


class Acks:
    """Offsets of one cell that are acked and whose markers are not written yet."""

    __slots__ = ("cell", "offsets")

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.offsets: list[int] = []


class AckBatcher:
    """Writes settlements of messages, and extends the leases of messages that are not settled.

    All settlements that arrive during a write form the next write. A thousand acks of a cell become one End
    marker. A failed write is retried until the brokers store it. Threads may share a batcher.
    """

    def __init__(
        self, write: Write, *, lease_ms: int, timeout_ms: int, observer: ConsumerCounts | None = None
    ) -> None:
        self._write, self._observer = write, observer
        self._lease_ms, self._timeout_ms = lease_ms, timeout_ms
        self._lock = threading.Lock()
        self._acks: dict[Cell, Acks] = {}
        self._settled: list[Settling] = []
        self._written = _shared()  # completes with the settlements since the last write began
        self._in_progress = _shared()  # completes when the last settlements taken are stored
        self._in_progress.set_result(None)
        self._taken = self._in_progress  # completes with the settlements taken last
        self._idle = True
        self._work, self._urgent = threading.Event(), threading.Event()
        self._leases: Leases[str] = Leases(lease_ms=lease_ms)
        self._closed = False
        self._given_up: CursorqError | None = None  # error of dropped settlements, for close() to report
        self._failed: CursorqError | None = None  # unexpected error that ended the thread
        self._thread = threading.Thread(target=self._run, name="cursorq-ack-batcher", daemon=True)

    def start(self) -> None:
        """Starts the writing thread."""
        self._thread.start()

    def acks_of(self, cell: Cell) -> Acks:
        """Returns the pending acks of a cell, an argument of :meth:`ack`."""
        with self._lock:
            return self._acks.setdefault(cell, Acks(cell))

    def ack(self, acks: Acks, offset: int) -> Future[None]:
        """Queues the ack of an offset. The future completes when the brokers have stored the ack."""
        with self._lock:
            self.check()
            acks.offsets.append(offset)
            if self._idle:
                self._wake()
            return self._written

    def settle(self, settlement: Settling) -> Future[None]:
        """Queues any other settlement. The future completes when the brokers have stored the settlement."""
        with self._lock:
            self.check()
            self._settled.append(settlement)
            if self._idle:
                self._wake()
            return self._written

    def check(self) -> None:
        """Raises ClientClosed after :meth:`close`, and ConsumerFailed after the writing thread has failed."""
        if self._closed:
            raise ClientClosed
        if self._failed is not None:
            raise self._failed.with_traceback(None)  # a shared error's traceback grows with each raise

    def wait_for(self, written: Future[None], timeout_ms: int | None) -> None:
        """Waits for a future of :meth:`ack` or :meth:`settle`, and makes the thread write without lingering.

        Raises:
            NotSettled: the timeout passed first. The thread retries until the consumer is closed.
            MarkersPartitionsChanged, TopicNotFound, NotAuthorized, KafkaRefused, ConsumerFailed
        """
        self._urgent.set()
        waited_ms = call_timeout(timeout_ms, self._timeout_ms)
        try:
            written.result(waited_ms / 1000)
        except TimeoutError:
            raise NotSettled(waited_ms, "no answer") from None
        except (MarkersNotDurable, KafkaUnavailable) as late:
            raise NotSettled(waited_ms, str(late)) from late

    def flush(self, timeout_ms: int | None) -> None:
        """Waits until all settlements queued before this call are stored.

        Raises the errors of :meth:`wait_for`.
        """
        with self._lock:
            if self._failed is not None:
                raise self._failed.with_traceback(None)
            written = self._in_progress
            if self._has_work():
                written = self._written
                self._wake()
            elif written.done():
                return
        self.wait_for(written, timeout_ms)

    def track(self, cell: Cell, offsets: OffsetSet, *, run_id: str, delivery_count: int = 1) -> None:
        """Starts to extend the leases of these messages."""
        if self._observer is not None:
            self._observer.started(cell, offsets, delivery_count=delivery_count)
        with self._lock:
            self._leases.remove(cell, offsets)  # a message redelivered while held counts with its last lease
            self._leases.add(Leased(cell=cell, holder=run_id, offsets=offsets), now_ms=now_ms())

    @property
    def held(self) -> int:
        """The number of leased messages, both buffered and received."""
        with self._lock:
            return len(self._leases)

    def close(self) -> None:
        """Writes the queued settlements, for at most the client's timeout. Remaining leases expire.

        Raises:
            NotSettled: the brokers did not store all settlements.
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
        try:
            self._write_until_closed()
        except Exception as why:  # noqa: BLE001 - a thread that ends silently would lose all later acks
            self._fail(why)

    def _fail(self, why: Exception) -> None:
        """Fails all settlements that are not stored, and all later calls."""
        log.error("The thread of acks failed. event=ack_thread_failed error=%r", why, exc_info=why)
        failed = as_own_error(why)
        with self._lock:
            self._failed = self._given_up = failed
            pending = [one for one in (self._taken, self._written, self._in_progress) if not one.done()]
        for future in pending:
            future.set_exception(failed)

    def _write_until_closed(self) -> None:
        while True:
            closing = self._closed  # read first: this round then includes all settlements before the close
            written, markers = self._take()
            if markers:
                self._carry_out(written, markers)
            elif closing:
                return
            else:
                self._rest()

    def _carry_out(self, written: Future[None], markers: Sequence[Marker]) -> None:
        """Writes markers and retries until the brokers store them.

        After the timeout, the future gets the error. A closed batcher then stops retrying. An error that a
        retry cannot mend also stops it.
        """
        began_s = time.monotonic()
        while True:
            try:
                self._write(markers)
            except (MarkersNotDurable, KafkaUnavailable) as problem:
                log.warning(
                    "Acks could not be written yet and are retried. event=ack_write_retrying markers=%d "
                    "error=%s",
                    len(markers),
                    problem,
                )
                late = time.monotonic() - began_s >= self._timeout_ms / 1000
                if late and not written.done():
                    written.set_exception(problem)
                if not (late and self._closed):
                    time.sleep(_PAUSE_S)
                    continue
                self._drop(written, markers, problem)
            except CursorqError as problem:
                log.error(
                    "Acks could not be written. event=ack_write_failed markers=%d error=%s",
                    len(markers),
                    problem,
                )
                self._drop(written, markers, problem)
            else:
                if self._observer is not None:
                    self._observer.written(markers)
                self._complete(written, markers, None)
            return

    def _drop(self, written: Future[None], markers: Sequence[Marker], problem: CursorqError) -> None:
        """Reports markers that are not retried: to their future, or to close() if the future is completed."""
        if (written.done() or self._closed) and not all(isinstance(marker, KeepAlive) for marker in markers):
            self._given_up = problem
        self._complete(written, markers, problem)

    def _complete(
        self, written: Future[None], markers: Sequence[Marker], problem: CursorqError | None
    ) -> None:
        """Tells the callers how the write ended.

        A caller that was told may flush at once. Its settlements are then no longer in progress.
        """
        self._forget(markers)
        for future in (self._in_progress, written):
            if future.done():
                continue
            if problem is None:
                future.set_result(None)
            else:
                future.set_exception(problem)

    def _rest(self) -> None:
        """Waits until a settlement is queued or the next lease extension is due."""
        with self._lock:
            if self._has_work() or self._closed:
                return
            self._idle = True
            self._work.clear()
            self._urgent.clear()
            wait_s = self._leases.wait_s(now_ms())
        if self._work.wait(wait_s):
            self._urgent.wait(_LINGER_S)

    def _has_work(self) -> bool:
        return bool(self._settled) or any(acks.offsets for acks in self._acks.values())

    def _take(self) -> tuple[Future[None], list[Marker]]:
        """Takes all queued settlements as markers: KeepAlives first, then releases and rejects, then Ends.

        KeepAlives precede releases because a V1 KeepAlive after a V1 release would start a new lease.
        """
        with self._lock:
            settled, self._settled = self._settled, []
            acked = [(acks.cell, acks.offsets) for acks in self._acks.values() if acks.offsets]
            for acks in self._acks.values():
                if acks.offsets:
                    acks.offsets = []
            extended = keep_alives(self._leases.due(now_ms()), lease_ms=self._lease_ms)
            written = self._taken = self._written
            if settled or acked:
                self._written, self._in_progress = _shared(), _shared()
                self._idle = False
        ends = [End(cell=cell, offsets=OffsetSet.from_offsets(offsets)) for cell, offsets in acked]
        if not settled and not ends:
            written = _shared()  # a future that no caller waits for: these markers are only KeepAlives
        fold = SettlingFold(OffsetSet.union)
        for settling in settled:
            fold.add(settling, settling.offsets)
        return written, [*extended, *fold.markers(), *ends]

    def _forget(self, markers: Sequence[Marker]) -> None:
        """Stops extending the leases of messages that are settled or whose settlement failed."""
        with self._lock:
            for marker in markers:
                if isinstance(marker, (End, Release, Reject)):
                    self._leases.remove(marker.cell, marker.offsets)


def _shared() -> Future[None]:
    """Returns a future that cannot be cancelled: whoever gives up waiting leaves it to the others."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future
