"""Pool of clients that a process keeps between tasks. Each client has one borrower at a time."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Configuration = frozenset[tuple[str, str]]
ClientT = TypeVar("ClientT")


class ClientPool(Generic[ClientT]):
    """Pool of idle clients by configuration.

    It keeps at most ``kept`` and closes them when the process ends.
    """

    def __init__(self, end: Callable[[ClientT], None], *, kept: int) -> None:
        self._end, self._kept = end, kept
        self._lock = threading.Lock()
        # ordered by last use, the most recent at the end
        self._clients: list[tuple[Configuration, ClientT]] = []
        self._lost_in_fork: list[tuple[Configuration, ClientT]] = []
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.close)

    def take(self, key: Configuration) -> ClientT | None:
        """Take a client of this configuration, or None."""
        with self._lock:
            for index in reversed(range(len(self._clients))):
                if self._clients[index][0] == key:
                    return self._clients.pop(index)[1]
        return None

    def put(self, key: Configuration, client: ClientT) -> None:
        """Return a client to the pool. If the pool is full, the least recently used client is closed."""
        with self._lock:
            self._clients.append((key, client))
            evicted = self._clients[: -self._kept]
            del self._clients[: -self._kept]
        for _, oldest in evicted:
            self._end(oldest)

    def close(self) -> None:
        """Close all idle clients."""
        with self._lock:
            closing, self._clients = self._clients, []
        for _, client in closing:
            self._end(client)

    def _forget(self) -> None:
        # A forked child has the parent's clients without their threads. It can neither use nor close them.
        # They are kept, because even their deallocation would hang.
        self._lock = threading.Lock()
        self._lost_in_fork, self._clients = self._clients, []
