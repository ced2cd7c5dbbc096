"""Processes that start in milliseconds: forks of a process that has imported what they need."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.warm import planners

_CONTEXT = multiprocessing.get_context("forkserver")
# pandas, because pyarrow imports it with the first array that it makes.
_CONTEXT.set_forkserver_preload(["tests.e2e.plain_app", "tests.tracker.outbox_app", "pandas"])


def start_forked(run: Callable[[Any], None], told: object, directory: Path) -> BaseProcess:
    """A process that runs ``run(told)`` in this directory; it ends at the latest with the one that starts it.

    What it prints is in the file ``log`` of the directory.
    """
    process = _CONTEXT.Process(target=_run, args=(run, told, directory), daemon=True)
    process.start()
    return process


def _run(run: Callable[[Any], None], told: object, directory: Path) -> None:
    os.setsid()
    os.chdir(directory)
    log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for output in (1, 2):
        os.dup2(log, output)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    run(told)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)


@contextmanager
def forked_planners(directory: Path) -> Iterator[str]:
    """Stream planners of a JVM that starts next are forks; yields a variable for its environment alone."""
    place = str(directory / "planners")
    with subprocess.Popen([sys.executable, planners.__file__, place], stdin=subprocess.PIPE):
        os.environ[planners.PLACE] = place
        yield planners.PLACE
