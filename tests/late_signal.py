"""A signal that no system call of the main thread notices, as one that comes just before the call begins."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.beside import beside
from tests.waiting import PATIENCE_S

_BEGUN_S = 0.5  # until the main thread waits
_NOTICED_S = 20.0


@contextmanager
def late_signal(
    number: signal.Signals = signal.SIGUSR1, *, after: threading.Event | None = None
) -> Iterator[None]:
    """Sends the signal while the block waits, and fails if the block does not end soon after.

    The block sets ``after`` where it begins to wait, if it has more to do before than a moment's work.

    Another thread receives the signal. Python runs the handler in the main thread, but only when that thread
    returns from its system call. The handler raises KeyboardInterrupt, unless the block sets another one.
    """
    waiter, in_time = threading.get_ident(), True

    def tell(ended: threading.Event) -> None:
        nonlocal in_time
        if after is not None:
            after.wait(PATIENCE_S)
        ended.wait(_BEGUN_S)
        signal.pthread_kill(threading.get_ident(), number)
        if not ended.wait(_NOTICED_S):
            in_time = False
            signal.pthread_kill(waiter, number)

    before = signal.signal(number, signal.default_int_handler)
    try:
        with beside(tell):
            yield
    finally:
        signal.signal(number, before)
    assert in_time, f"{number.name} was not noticed in {_NOTICED_S:g} s"
