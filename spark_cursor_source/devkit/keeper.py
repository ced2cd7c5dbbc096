"""Keeper process between the parent and the broker, so that the broker never outlives the parent.

Run as a script: ``python -I -S keeper.py <directory to remove or ''> <log file> <command...>``. The keeper
starts the command, writes its process id to stdout, and exits with its exit code. Its stdin is a lifeline
without data. When stdin closes because the parent has ended in any way, the keeper kills the broker
immediately and removes the directory. The script uses the standard library only, because it must start in
milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def _end_with_keeper() -> Callable[[], None] | None:
    """Returns the function to run before exec: on Linux, the kernel kills the broker with the keeper."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) and None


def _end_group() -> None:
    """Kills processes that the command has left behind, and the keeper with them."""
    if os.getpgrp() == os.getpid():  # only in a process group of the keeper's own, created by KeptProcess
        os.killpg(0, signal.SIGKILL)


def keep(doomed_directory: str, log_path: str, command: list[str]) -> int:
    """Runs ``command`` until it or the parent ends. Returns its exit code (negative: a signal)."""
    parent = os.getppid()
    told_to_end: list[int] = []
    wake, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)
    signal.set_wakeup_fd(wake_writer)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda number, _: told_to_end.append(number))
    with open(log_path, "ab") as log:
        broker = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_end_with_keeper()
        )
    os.write(1, b"%d\n" % broker.pid)
    while broker.poll() is None:
        readable, _, _ = select.select([0, wake], [], [], 1.0)
        if wake in readable:
            os.read(wake, 512)
        # A forked child of the parent may hold the lifeline open, so the parent's id is checked too.
        if 0 in readable or os.getppid() != parent or told_to_end:
            broker.kill()
            broker.wait()
            if doomed_directory:
                shutil.rmtree(doomed_directory, ignore_errors=True)
            _end_group()
    return broker.returncode


if __name__ == "__main__":
    code = keep(sys.argv[1], sys.argv[2], sys.argv[3:])
    sys.exit(code if code >= 0 else 128 - code)
