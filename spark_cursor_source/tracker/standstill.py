"""Standstill of the process amid some work: a stopped process, or a virtual machine that is moved."""

from __future__ import annotations

import threading
import time
from types import TracebackType

STANDSTILL_S = 1.0  # more than a busy machine delays a thread, less than any session timeout

_BEAT_S = 0.25


class StandstillWatch:
    """Context manager with a thread that beats while the block runs. A beat that is late is a standstill.

    A slow request looks the same as a standstill to the thread that waits for it. The beats tell them apart.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._beat = self._late_s = 0.0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> StandstillWatch:
        self._beat, self._late_s = time.monotonic(), 0.0
        self._end.clear()
        self._thread = threading.Thread(target=self._run, name="cursorq-standstill", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def stood_still_s(self) -> float:
        """Returns how long the process stood still since the last call, in seconds. 0.0: it did not."""
        with self._lock:
            self._take_beat()
            late_s, self._late_s = self._late_s, 0.0
        return late_s

    def _run(self) -> None:
        while not self._end.wait(_BEAT_S):
            with self._lock:
                self._take_beat()

    def _take_beat(self) -> None:
        now = time.monotonic()
        late_s, self._beat = now - self._beat - _BEAT_S, now
        if late_s > STANDSTILL_S:
            self._late_s += late_s
