"""The port of a Spark Connect server that a client starts: one test at a time has it."""

from __future__ import annotations

import fcntl
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.spark.harness import wait_until

_PORT = 15002  #: of a server that a client starts; Spark gives no choice


def _is_free() -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", _PORT)) != 0


@contextmanager
def connect_port() -> Iterator[None]:
    """Keep other tests, also those of other runs on this machine, from the port of the server."""
    with Path(tempfile.gettempdir(), "cursorq-connect.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wait_until(_is_free, f"port {_PORT} is free", timeout_s=300)
        yield
