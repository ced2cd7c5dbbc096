"""Which processes belong to an app, and what each of them is. Linux only: it is read from ``/proc``."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

TAG = "CURSORQ_E2E_APP"  #: environment variable that every process of an app inherits


class Part(StrEnum):
    """A part of an app, told by its command line."""

    JVM = "org.apache.spark.deploy.SparkSubmit"
    WORKER = "pyspark.daemon pyspark.worker"
    PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"


def pids_with_tag(tag: str) -> set[int]:
    """The living processes that were started with this tag, at any depth."""
    wanted = f"{TAG}={tag}".encode()
    found = set()
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if wanted in (directory / "environ").read_bytes().split(b"\0") and not _is_dead(directory):
                found.add(int(directory.name))
    return found


def pids_of(tag: str, part: Part) -> set[int]:
    """Those of them that are this part."""
    found = {pid for pid in pids_with_tag(tag) if part.value in _command_line(pid)}
    # Workers are forks of a daemon that looks the same.
    return {pid for pid in found if _parent(pid) in found} if part is Part.WORKER else found


def kill(pids: Iterable[int]) -> None:
    """SIGKILL, all at once."""
    signal_all(pids, signal.SIGKILL)


def kill_tree(tag: str) -> None:
    """SIGKILL for every process with this tag; they are frozen first, so that none starts another."""
    frozen: set[int] = set()
    while new := pids_with_tag(tag) - frozen:
        signal_all(new, signal.SIGSTOP)
        frozen |= new
    kill(frozen)


def die(tag: str | None) -> None:
    """SIGKILL for every process with this tag, and last for this one; None: it is the only one."""
    pids = set() if tag is None else pids_with_tag(tag)
    kill([*(pids - {os.getpid()}), os.getpid()])


def write_stacks(tag: str) -> None:
    """Have every process with this tag write the stacks of its threads, and end those of Python.

    A JVM writes to its standard output, and Python to its standard error, with PYTHONFAULTHANDLER only.
    """
    pids = pids_with_tag(tag)
    machines = {pid for pid in pids if _command_line(pid).partition(" ")[0].endswith("java")}
    signal_all(machines, signal.SIGQUIT)
    time.sleep(2)  # nothing tells when a JVM has written them all
    signal_all(pids - machines, signal.SIGABRT)
    time.sleep(1)
    kill_tree(tag)


def pause_tree(tag: str) -> None:
    """SIGSTOP for every process with this tag."""
    frozen: set[int] = set()
    while new := pids_with_tag(tag) - frozen:
        signal_all(new, signal.SIGSTOP)
        frozen |= new


def resume_tree(tag: str) -> None:
    """SIGCONT for every process with this tag."""
    signal_all(pids_with_tag(tag), signal.SIGCONT)


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """A signal for those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _is_dead(directory: Path) -> bool:
    # "pid (name) state ...": a zombie is nobody.
    return (directory / "stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
