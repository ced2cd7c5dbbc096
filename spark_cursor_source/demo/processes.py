"""The demo's Spark processes: started, killed as a crash would, and never outliving the demo."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

from spark_cursor_source._broker_process import KeptProcess
from spark_cursor_source.demo.scenario import Scenario
from spark_cursor_source.demo.worker import Job
from spark_cursor_source.spark.local_session import python_environment

_END_S = 10.0


class SparkProcess:
    """A worker and its JVM. It ends with the demo, even where the demo itself is killed."""

    def __init__(
        self, name: str, number: int, scenario: Scenario, bootstrap_servers: str, root: Path
    ) -> None:
        """The ``number``-th process of that name; they share a checkpoint."""
        self.name = name
        directory = root / f"{name}-{number}"
        directory.mkdir()
        job = Job.of(
            scenario,
            bootstrap_servers=bootstrap_servers,
            directory=directory,
            checkpoint=root / f"{name}-checkpoint",
        )
        self._pid_file = Path(job.pid_file)
        self._log = directory / "log.txt"
        environment = {**os.environ, **python_environment(), "TMPDIR": str(directory)}
        command = [sys.executable, "-m", "spark_cursor_source.demo.worker", name, json.dumps(asdict(job))]
        self._process = KeptProcess(command, cwd=directory, log=self._log, doomed=None, env=environment)

    @property
    def pid(self) -> int:
        """Process id of the worker's Python."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.alive

    def log_tail(self, lines: int = 30) -> str:
        """The last lines that it and its JVM have written, without the frames of Java's stack traces."""
        text = self._log.read_text(encoding="utf-8", errors="replace")
        told = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
        return "\n".join(told[-lines:])

    def kill(self) -> None:
        """SIGKILL for the JVM, which is the driver, and for the Python process; both are gone afterwards."""
        jvm = self._jvm()
        if jvm is not None and self._process.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(jvm, signal.SIGKILL)
        self._process.kill()
        if jvm is not None:
            _await_end(jvm)

    def _jvm(self) -> int | None:
        try:
            text = self._pid_file.read_text(encoding="ascii")
        except FileNotFoundError:
            return None  # not started yet: it ends when its parent does
        return int(text) if text else None


def _await_end(pid: int) -> None:
    """It is not our child, so its end can only be looked for."""
    deadline = time.monotonic() + _END_S
    while time.monotonic() < deadline and not _is_gone(pid):
        time.sleep(0.02)


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # Where nobody reaps orphans, a dead one keeps its id.
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return status.rpartition(")")[2].split()[0] == "Z"
    return False
