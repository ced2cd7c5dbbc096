"""Less work for the garbage collector: pauses, and objects that live as long as the process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


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


@cache  # once per process
def exempt_loaded_modules() -> None:
    """Take all objects of this moment out of garbage collections.

    Spark collects garbage in a Python worker after each task. That visits the 60,000 objects of the loaded
    modules, which are never garbage, and takes 10 to 40 ms.
    """
    gc.freeze()
