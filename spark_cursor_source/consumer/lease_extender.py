"""Lease extension for the batch in progress, so that a long batch is not delivered twice."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import CursorqError

log = logging.getLogger(__name__)


class Leased(Protocol):
    """Messages under a lease."""

    @property
    def offsets(self) -> OffsetSet: ...


LeasedT = TypeVar("LeasedT", bound=Leased)


class LeaseExtender(Generic[LeasedT]):
    """Extends the leases of tracked messages every third of a lease, for at most 12 h per batch.

    The extender runs in the planner's process. If the driver dies, extension stops and the leases expire.
    """

    def __init__(self, extend: Callable[[Sequence[LeasedT]], None], *, lease_ms: int) -> None:
        self._extend = extend
        self._lease_ms = lease_ms
        self._held: tuple[LeasedT, ...] = ()
        self._since = 0.0
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="cursorq-lease-keeper", daemon=True)

    def track(self, leased: Sequence[LeasedT]) -> None:
        """Replaces the set of extended messages.

        The 12 h limit starts with the first call after :meth:`untrack`, so a tracked batch may grow.
        """
        with self._changed:
            if not self._held:
                self._since = time.monotonic()
                self._changed.notify()
            self._held = tuple(leased)
        if not self._thread.is_alive() and not self._stopped:
            self._thread.start()

    def untrack(self) -> None:
        """Stops extending a completed batch. Leases of messages that are not acked expire."""
        with self._changed:
            self._held = ()
            self._changed.notify()

    def stop(self) -> None:
        """Stops the thread."""
        with self._changed:
            self._stopped, self._held = True, ()
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stopped:
            with self._changed:
                if not self._held:
                    self._changed.wait()
                    continue
                before = self._since
                self._changed.wait(self._lease_ms / 3000)
                held = self._held
                if self._stopped or not held or self._since != before:
                    continue
                too_long = time.monotonic() - self._since > MAX_LEASE_MS / 1000
            if too_long:
                log.warning(
                    "The longest lease is over and is not extended further. event=lease_limit_reached "
                    "hours=12 messages=%d",
                    sum(len(d.offsets) for d in held),
                )
                self.untrack()
                continue
            try:
                self._extend(held)
            except CursorqError as problem:
                # The leases have two thirds of their time left, so the next round can still succeed.
                log.warning(
                    "Leases could not be extended. The next attempt follows. event=lease_extension_failed "
                    "error=%s",
                    problem,
                )
