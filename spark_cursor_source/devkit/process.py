"""Process of a broker, and helpers for free ports."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from spark_cursor_source.devkit import keeper
from spark_cursor_source.errors import BrokerError, BrokerNotReady

HOST = "127.0.0.1"

# Below the ephemeral port range of clients (32768 and up on Linux). A client that reconnects to a port of
# that range while the broker is down can get the same port as its source port. It then connects to itself,
# and the broker cannot bind the port again.
_FREE_PORTS = range(20_000, 32_000)

_AT_WORK = frozenset("RSD")  # running, sleeping, or in disk wait


class KeptProcess:
    """A command under the keeper. ``pid`` is the process id of the command itself."""

    def __init__(
        self,
        command: list[str],
        *,
        cwd: Path,
        log: Path,
        doomed: Path | None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        kept_by = [sys.executable, "-I", "-S", str(keeper.__file__), str(doomed or ""), str(log)]
        # A separate session: Ctrl-C in the terminal reaches this process only, which then stops the broker
        # cleanly.
        self._keeper = subprocess.Popen(
            [*kept_by, *command],
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._keeper.stdout is not None
        pid = self._keeper.stdout.readline()
        if not pid:
            self._close()
            raise BrokerNotReady(f"{command[0]} could not be started", str(log), "")
        self.pid = int(pid)

    @property
    def alive(self) -> bool:
        return self._keeper.poll() is None

    def signal(self, number: signal.Signals) -> None:
        # The process may end between the check and the signal.
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def pause(self) -> None:
        """Sends SIGSTOP and waits for its effect: threads run until one of them receives the signal."""
        self.signal(signal.SIGSTOP)
        while self.alive and self._state() in _AT_WORK:
            time.sleep(0.001)

    @property
    def paused(self) -> bool:
        return self._state() == "T"

    def _state(self) -> str:
        """Returns the state letter of proc(5); empty if the system does not provide it."""
        with contextlib.suppress(OSError):
            _, _, fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")
            return fields.split()[0]
        return ""

    def wait(self, timeout_s: float) -> bool:
        try:
            self._keeper.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Sends SIGKILL if alive. Afterwards the keeper has ended and its pipes are closed."""
        self.signal(signal.SIGKILL)
        self._close()

    def kill_all(self) -> None:
        """Kills the command and all processes that it has started within its process group."""
        # Only this process reaps the keeper, so the group id cannot have been reused.
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._keeper.pid, signal.SIGKILL)
        self._close()

    def _close(self) -> None:
        self._keeper.wait()
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe is not None:
                pipe.close()


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port(*, other_than: Collection[int] = ()) -> int:
    for port in random.sample(_FREE_PORTS, 200):
        if port not in other_than and is_free(port):
            return port
    raise BrokerError("200 random ports of 127.0.0.1 are all taken; give a `port` that is free")


def accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=0.2).close()
    except OSError:
        return False
    return True
