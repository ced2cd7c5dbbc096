"""Pool of clients that a process keeps between tasks. Each client has one borrower at a time."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

ClientT = TypeVar("ClientT")


class ClientPool(Generic[ClientT]):
    """Pool of idle clients by configuration.

    It keeps at most ``kept`` and closes them with ``end``, at the latest when the process ends. The default
    suffices for a task, which needs one client of a kind, and for sessions with two clusters.
    """

    def __init__(
        self,
        end: Callable[[ClientT], None],
        *,
        kept: int = 2,
        reset: Callable[[ClientT], None] | None = None,
    ) -> None:
        """``reset`` ends the work of a client, so that it is kept even after an abandoned generator."""
        self._end, self._kept, self._reset = end, kept, reset
        self._lock = threading.Lock()
        # ordered by last use, the most recent at the end
        self._clients: list[tuple[Hashable, ClientT]] = []
        self._lost_in_fork: list[tuple[Hashable, ClientT]] = []
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.close)

    @contextmanager
    def lend(self, key: Hashable, make: Callable[[], ClientT]) -> Iterator[ClientT]:
        """Lend an idle client with this key, or a new one, to one borrower at a time.

        The client returns to the pool when the block ends. After an exception it is closed, so that a broken
        client is not used again.
        """
        client = self._take(key)
        if client is None:
            client = make()
        try:
            yield client
        except BaseException as left:
            if self._reset is None or not isinstance(left, GeneratorExit):
                self._end(client)
                raise
            self._put(key, client)
            raise
        else:
            self._put(key, client)

    def close(self) -> None:
        """Close all idle clients."""
        with self._lock:
            closing, self._clients = self._clients, []
        for _, client in closing:
            self._end(client)

    def _take(self, key: Hashable) -> ClientT | None:
        with self._lock:
            for index in reversed(range(len(self._clients))):
                if self._clients[index][0] == key:
                    return self._clients.pop(index)[1]
        return None

    def _put(self, key: Hashable, client: ClientT) -> None:
        """Return a client to the pool. If the pool is full, the least recently used client is closed."""
        if self._reset is not None:
            self._reset(client)
        with self._lock:
            self._clients.append((key, client))
            evicted = self._clients[: -self._kept]
            del self._clients[: -self._kept]
        for _, oldest in evicted:
            self._end(oldest)

    def _forget(self) -> None:
        # A forked child has the parent's clients without their threads. It can neither use nor close them.
        # They are kept, because even their deallocation would hang.
        self._lock = threading.Lock()
        self._lost_in_fork, self._clients = self._clients, []
