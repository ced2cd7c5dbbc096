"""Death at a step: a process that counts what it is about to do, and ends itself before the n-th of a kind.

Between two steps nothing is written, so to die before each of them is to die everywhere.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.e2e.spark_app import record


class Steps:
    """The steps of this process; before the one ``die_at``, as in ``"MarkerSender.flush:2"``, it is gone.

    Only the thread that made them takes steps: when others come to theirs is nobody's plan.
    """

    def __init__(self, die_at: str | None, events: str, run: str) -> None:
        self._die_at = die_at
        self._events = events
        self._run = run
        self._thread = threading.get_ident()
        self._taken: Counter[str] = Counter()

    def step(self, name: str) -> None:
        """What is done next."""
        if threading.get_ident() != self._thread:
            return
        self._taken[name] += 1
        if f"{name}:{self._taken[name]}" == self._die_at:
            record(self._events, event="died", run=self._run, at=time.time(), before=self._die_at)
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, owner: Any, *methods: str) -> None:
        """Each call of these methods is a step."""
        for method in methods:
            setattr(owner, method, self._counted(getattr(owner, method), f"{owner.__name__}.{method}"))

    def _counted(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(call)
        def counted(*given: Any, **named: Any) -> Any:
            self.step(name)
            return call(*given, **named)

        return counted
