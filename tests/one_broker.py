"""One broker for all workers of ``make test``, in the process that directs them.

A broker that waits takes two percent of a core, and one that has just started is slow for a minute. So the
first worker that needs the session's broker has it started, and the others get its address.
"""

from __future__ import annotations

import threading
from multiprocessing.connection import Client, Listener
from typing import Any

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import BrokerError, CursorqError


class BrokerDesk:
    """Starts the broker when a worker asks for it, and ends it with the run."""

    def __init__(self, broker: EmbeddedKafka) -> None:
        self._broker = broker
        self._listener = Listener()
        threading.Thread(target=self._serve, name="broker-desk", daemon=True).start()

    @property
    def address(self) -> Any:
        """Where workers ask, as an argument of :class:`BrokerOfAll`."""
        return self._listener.address

    def close(self) -> None:
        """End the broker, if a worker has asked for it."""
        self._listener.close()
        self._broker.close()

    def _serve(self) -> None:
        while True:
            try:
                worker = self._listener.accept()
            except OSError:  # closed
                return
            with worker:
                try:
                    worker.send((self._broker.start().bootstrap_servers, ""))
                except CursorqError as failed:
                    worker.send(("", str(failed)))


class BrokerOfAll(EmbeddedKafka):
    """The broker of another process, which the tests of this one never stop."""

    def __init__(self, desk: Any) -> None:
        """Wait until it has started. Raises BrokerError."""
        super().__init__()
        with Client(desk) as asked:
            self._servers, trouble = asked.recv()
        if trouble:
            raise BrokerError(trouble)

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the broker."""
        return self._servers
