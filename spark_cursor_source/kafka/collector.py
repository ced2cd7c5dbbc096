"""Pause of the garbage collector during work that creates many objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector while thousands of messages are created.

    Messages are in no reference cycle, but the collector would scan each of them repeatedly.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
