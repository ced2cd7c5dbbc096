"""One broker of an embedded Kafka: its directory, its ports, and its process from launch to end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from spark_cursor_source.devkit.process import HOST, KeptProcess, accepts
from spark_cursor_source.devkit.runtime import BrokerRuntime
from spark_cursor_source.devkit.settings import LOGGING, random_id
from spark_cursor_source.errors import BrokerError, BrokerNotReady, BrokerNotRunning


class BrokerNode:
    """A broker with its id and its own directory. A started broker runs under its keeper.

    ``doomed`` is the directory that the keeper removes if this process ends without a :meth:`stop`.
    """

    def __init__(self, number: int, directory: Path, *, doomed: Path | None) -> None:
        self.number = number
        self.directory = directory
        self.process: KeptProcess | None = None
        self._doomed = doomed
        self._dumped: tuple[Path, Path] | None = None
        self._log_began: int | None = None  # size of the log at the last start

    @property
    def running(self) -> bool:
        """True if the process exists, paused or not."""
        return self.process is not None and self.process.alive

    @property
    def answering(self) -> bool:
        """True if the process exists and is not paused."""
        return self.process is not None and self.process.alive and not self.process.paused

    @property
    def log_path(self) -> Path:
        return self.directory / "broker.log"

    def log_tail(self, lines: int = 30) -> str:
        """Returns the last lines of the log since the last start."""
        text = self.log_path.read_bytes()[self._log_began :].decode("utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def begin_log(self) -> None:
        """Notes that what follows in the log is of a new start. The first one empties the log."""
        if self._log_began is None:
            self.log_path.write_bytes(b"")
        self._log_began = self.log_path.stat().st_size

    def require(self, wanted: str) -> KeptProcess:
        """Returns the running process. Raises BrokerNotRunning."""
        if self.process is None or not self.process.alive:
            raise BrokerNotRunning(wanted)
        return self.process

    def forget_ended(self) -> None:
        """Closes the pipes of a process that ended by itself."""
        if self.process is not None:
            self.process.kill()
            self.process = None

    @property
    def is_new(self) -> bool:
        """True if the directory is not formatted yet."""
        return not any(self.directory.glob("*/meta.properties"))

    def format(self, runtime: BrokerRuntime, settings: Path, cluster: str, *, usual: bool) -> None:
        """Formats the directory for a broker. Raises BrokerNotReady.

        With ``usual`` settings, a copy of the first storage that was formatted takes the place of a JVM.
        """
        if usual and runtime.storage.is_dir():
            self.format_like(runtime.storage, cluster=cluster)
            return
        archive = [f"-XX:SharedArchiveFile={runtime.archive}"] if runtime.archive.is_file() else []
        # fmt: off
        command = [
            runtime.java, "-Xmx128m", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=1", *archive, "-Xlog:disable",
            *self._jvm_tail(runtime), "kafka.tools.StorageTool", "format", "--ignore-formatted",
            "--cluster-id", cluster, "--config", str(settings),
        ]
        # fmt: on
        done = subprocess.run(command, cwd=self.directory, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
            raise BrokerNotReady("Kafka's format tool refused the data directory", str(self.log_path), tail)
        if usual:
            _keep_storage(self.storage, runtime.storage)

    @property
    def storage(self) -> Path:
        """Log directory of the broker, if no property sets another one."""
        return self.directory / "logs"

    def format_like(self, storage: Path, *, cluster: str | None = None) -> None:
        """Formats the directory as a copy of this storage, by default of the same cluster, without a JVM."""
        shutil.copytree(storage, self.storage, dirs_exist_ok=True)
        identity = self.storage / "meta.properties"
        own = {"node.id": str(self.number), "directory.id": random_id()}
        if cluster is not None:
            own["cluster.id"] = cluster
        kept = [
            line
            for line in identity.read_text(encoding="utf-8").splitlines()
            if line.partition("=")[0] not in own
        ]
        lines = [*kept, *(f"{name}={value}" for name, value in own.items())]
        identity.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def launch(self, runtime: BrokerRuntime, settings: Path, jvm: Sequence[str]) -> None:
        """Starts the process with these JVM options."""
        if runtime.archive.is_file():
            self._dumped, archive_flag = None, f"-XX:SharedArchiveFile={runtime.archive}"
        else:
            self._dumped = (self.directory / "classes.jsa", runtime.archive)
            archive_flag = f"-XX:ArchiveClassesAtExit={self._dumped[0]}"
        # fmt: off
        command = [
            runtime.java, *jvm, "-XX:+ExitOnOutOfMemoryError", archive_flag, "-Xlog:disable",
            "-Xlog:all=error:stderr", *self._jvm_tail(runtime), "kafka.Kafka", str(settings),
        ]
        # fmt: on
        self.process = KeptProcess(command, cwd=self.directory, log=self.log_path, doomed=self._doomed)

    def await_ready(
        self,
        port: int,
        named: Collection[int],
        *,
        client_config: Mapping[str, str],
        deadline: float,
        timeout_s: float,
    ) -> None:
        """Waits for the port, then for a metadata response that contains all these brokers."""
        admin: AdminClient | None = None
        while time.monotonic() < deadline:
            if not self.running:
                raise self._not_ready("the broker ended while it was starting")
            if admin is None:
                # No client before the port is open: its reconnect backoff takes longer than this wait.
                if not accepts(port):
                    time.sleep(0.02)
                    continue
                address = {"bootstrap.servers": f"{HOST}:{port}"}
                quiet = {"log_level": "0"}
                admin = AdminClient({**address, **quiet, **client_config})
            try:
                found = admin.list_topics(timeout=min(2.0, max(0.1, deadline - time.monotonic()))).brokers
                if set(named) <= found.keys():
                    return
            except KafkaException:
                pass
            time.sleep(0.02)  # not ready yet; the deadline ends the loop
        raise self._not_ready(f"the broker answered no metadata request in {timeout_s:g} s")

    def tell_to_end(self) -> None:
        """Sends SIGTERM. Resumes a paused process first."""
        if self.process is not None and self.process.alive:
            self.process.signal(signal.SIGCONT)
            self.process.signal(signal.SIGTERM)

    def end(self, timeout_s: float) -> None:
        """Waits for the process to end after SIGTERM. Kills it after ``timeout_s`` seconds."""
        if self.process is None:
            return
        clean = self.process.wait(timeout_s)
        self.process.kill()
        self.process = None
        if self._dumped is not None and clean:
            _keep_archive(*self._dumped)

    def kill(self) -> None:
        """Sends SIGKILL. Raises BrokerNotRunning."""
        self.require("kill()").kill()
        self.process = None

    def _jvm_tail(self, runtime: BrokerRuntime) -> list[str]:
        logging = self.directory / "log4j2.properties"
        logging.write_text(LOGGING)
        return [f"-Dlog4j2.configurationFile={logging}", "-Djava.awt.headless=true", "-cp", runtime.classpath]

    def _not_ready(self, what: str) -> BrokerError:
        return BrokerNotReady(what, str(self.log_path), self.log_tail())


def _keep_storage(formatted: Path, kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=kept.name, dir=kept.parent))
    shutil.copytree(formatted, beside / "logs")
    with contextlib.suppress(OSError):  # another process has kept its own
        os.rename(beside / "logs", kept)
    shutil.rmtree(beside)


def _keep_archive(dumped: Path, archive: Path) -> None:
    if not dumped.is_file() or archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    # Moved next to the target and renamed, because another broker may be starting from the same file.
    beside = archive.with_suffix(f".{os.getpid()}")
    shutil.move(dumped, beside)
    os.replace(beside, archive)
