"""A signal that no system call of the main thread notices, as one that comes just before the call begins."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_BEGUN_S = 0.5  # until the main thread waits
_NOTICED_S = 20.0


@contextmanager
def late_signal(number: signal.Signals) -> Iterator[None]:
    """Sends the signal while the block waits. Its handler ends the block, and fails if that takes long.

    Another thread receives the signal. Python runs the handler in the main thread, but only when that thread
    returns from its system call.
    """
    waiter, ended, in_time = threading.get_ident(), threading.Event(), True
    before = signal.getsignal(number)

    def tell() -> None:
        nonlocal in_time
        ended.wait(_BEGUN_S)
        signal.pthread_kill(threading.get_ident(), number)
        if not ended.wait(_NOTICED_S):
            in_time = False
            signal.pthread_kill(waiter, number)

    teller = threading.Thread(target=tell)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
        signal.signal(number, before)
    assert in_time, f"{number.name} was not noticed in {_NOTICED_S:g} s"


@contextmanager
def interrupted_late() -> Iterator[None]:
    """Expects that the block waits until it is interrupted, by Ctrl-C at the worst moment."""
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        with late_signal(signal.SIGUSR1):
            try:
                yield
            except KeyboardInterrupt:
                return
            raise AssertionError("the wait ended by itself")
    finally:
        signal.signal(signal.SIGUSR1, before)
