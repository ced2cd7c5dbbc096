"""The demo's Spark processes: started, killed like a crash, and never outliving the demo."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from spark_cursor_source.devkit.demo.scenario import Scenario
from spark_cursor_source.devkit.demo.worker import Job
from spark_cursor_source.devkit.process import KeptProcess
from spark_cursor_source.devkit.spark_session import python_environment


class SparkProcess:
    """A worker and its JVM. Both end with the demo, even if the demo is killed."""

    def __init__(
        self, name: str, number: int, scenario: Scenario, bootstrap_servers: str, root: Path
    ) -> None:
        """``number`` counts the processes of that ``name``, which share a checkpoint."""
        self.name = name
        directory = root / f"{name}-{number}"
        directory.mkdir()
        job = Job.of(
            scenario,
            bootstrap_servers=bootstrap_servers,
            directory=directory,
            checkpoint=root / f"{name}-checkpoint",
        )
        self._log = directory / "log.txt"
        environment = {**os.environ, **python_environment(), "TMPDIR": str(directory)}
        command = [
            sys.executable,
            "-m",
            "spark_cursor_source.devkit.demo.worker",
            name,
            json.dumps(asdict(job)),
        ]
        self._process = KeptProcess(command, cwd=directory, log=self._log, doomed=None, env=environment)

    @property
    def pid(self) -> int:
        """Process id of the worker's Python."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True if the worker is running."""
        return self._process.alive

    def log_tail(self, lines: int = 30) -> str:
        """Returns the last output lines of worker and JVM, without the frames of Java stack traces."""
        text = self._log.read_text(encoding="utf-8", errors="replace")
        told = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
        return "\n".join(told[-lines:])

    def kill(self) -> None:
        """Sends SIGKILL to all at once: the driver's JVM, its Python, and with them the Python workers."""
        self._process.kill_all()
