"""Lease extension for the batch in progress, so that a long batch is not delivered twice."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Generic

from spark_cursor_source.consumer.leases import HolderT, Leased, Leases
from spark_cursor_source.errors import CursorqError

log = logging.getLogger(__name__)


class LeaseExtender(Generic[HolderT]):
    """Thread that extends the :class:`Leases` of the batch in progress.

    The thread runs in the planner's process. If the driver dies, extension stops and the leases expire. A
    plain client needs no such thread: its ack batcher writes extensions between acks, in their order.
    """

    def __init__(self, extend: Callable[[Sequence[Leased[HolderT]]], None], *, lease_ms: int) -> None:
        self._extend = extend
        self._leases: Leases[HolderT] = Leases(lease_ms=lease_ms)
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="cursorq-lease-extender", daemon=True)

    def track(self, leases: Iterable[Leased[HolderT]]) -> None:
        """Adds messages of the batch in progress."""
        with self._changed:
            for leased in leases:
                self._leases.add(leased, now_ms=now_ms())
            self._changed.notify()
        if not self._thread.is_alive() and not self._stopped:
            self._thread.start()

    def untrack(self) -> None:
        """Stops extending a completed batch. Leases of messages that are not acked expire."""
        with self._changed:
            self._leases.clear()

    def stop(self) -> None:
        """Stops the thread."""
        with self._changed:
            self._stopped = True
            self._leases.clear()
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stopped:
            with self._changed:
                due = self._leases.due(now_ms())
                if not due:
                    self._changed.wait(self._leases.wait_s(now_ms()))
                    continue
            try:
                self._extend(due)
            except CursorqError as problem:
                # The leases have two thirds of their time left, so the next round can still succeed.
                log.warning(
                    "Leases could not be extended. The next attempt follows. event=lease_extension_failed "
                    "error=%s",
                    problem,
                )


def now_ms() -> int:
    """Returns the monotonic time in ms."""
    return time.monotonic_ns() // 1_000_000
