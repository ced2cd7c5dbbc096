"""A real Apache Kafka for development and tests: one node, in a child process, on loopback.

The three beats of a start: find a Java and the jars (``_broker_runtime``), format the storage if it is new,
run the broker under its keeper (``_broker_keeper``), which ends it when this process ends, however it ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from spark_cursor_source._broker_process import HOST, KeptProcess, accepts, free_port, is_free
from spark_cursor_source._broker_runtime import BrokerRuntime, find_runtime
from spark_cursor_source._broker_settings import LOGGING, cluster_id, write_settings
from spark_cursor_source.errors import BrokerError, BrokerNotReady, BrokerNotRunning, PortTaken


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


class EmbeddedKafka:
    """A single-node Kafka broker (KRaft) as a child process; it never outlives this process.

    ``port`` is the client port on 127.0.0.1 (``None``: a free one, kept from the first start). ``data_dir``
    is kept and used again, and formatted only if new (``None``: a temporary one, removed by :meth:`close`).
    ``properties`` are further broker settings and win over the ones made here; the client listener is named
    ``CLIENT``, so ``{"listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT", ...}``
    secures it, with ``client_config`` telling the readiness check how to log in. ``heap_mb`` is the JVM's
    heap in MiB, ``ready_timeout_s`` the seconds a start may take. ``progress`` gets a line of text per step
    of the very first start, which downloads the jars (default: written to stderr).

    :meth:`start` raises JavaNotFound, JarsNotResolved, PortTaken or BrokerNotReady.

    Example::

        with EmbeddedKafka(properties={"auto.create.topics.enable": False}) as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        properties: Mapping[str, object] | None = None,
        client_config: Mapping[str, str] | None = None,
        heap_mb: int = 512,
        ready_timeout_s: float = 60.0,
        progress: Callable[[str], None] = _say,
    ) -> None:
        self._wanted_port = port
        self._port = port
        self._kept_dir = None if data_dir is None else Path(data_dir).absolute()
        self._directory = self._kept_dir
        self._properties = dict(properties or {})
        self._client_config = dict(client_config or {})
        self._heap_mb = heap_mb
        self._ready_timeout_s = ready_timeout_s
        self._progress = progress
        self._process: KeptProcess | None = None
        self._dumped: tuple[Path, Path] | None = None

    def __repr__(self) -> str:
        state = f"pid={self.pid}" if self.running else "not running"
        return f"EmbeddedKafka(port={self._port}, {state})"

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients, the same for all starts; before the first, raises BrokerNotRunning."""
        if self._port is None:
            raise BrokerNotRunning("bootstrap_servers")
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """Process id of the broker's JVM. Raises BrokerNotRunning."""
        return self._running("pid").pid

    @property
    def running(self) -> bool:
        """Whether the broker's process exists (a paused one does)."""
        return self._process is not None and self._process.alive

    @property
    def data_dir(self) -> Path:
        """The broker's data, settings and log; before the first start, raises BrokerNotRunning."""
        if self._directory is None:
            raise BrokerNotRunning("data_dir")
        return self._directory

    @property
    def log_path(self) -> Path:
        """The broker's log (warnings and worse); before the first start, raises BrokerNotRunning."""
        return self.data_dir / "broker.log"

    def log_tail(self, lines: int = 30) -> str:
        """The last lines of the log; before the first start, raises BrokerNotRunning."""
        text = self.log_path.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def prepare(self) -> None:
        """Get from the network what a start needs; returns at once when all is there.

        Raises JavaNotFound, JarsNotResolved.
        """
        find_runtime(self._progress)

    def start(self) -> Self:
        """Start the broker and wait until it answers a metadata request; no effect on a running one.

        Raises JavaNotFound, JarsNotResolved, PortTaken, BrokerNotReady.
        """
        if self.running:
            return self
        if self._process is not None:
            self._process.kill()  # it ended by itself; its pipes are still open
            self._process = None
        runtime = find_runtime(self._progress)
        if self._port is not None and not is_free(self._port):
            raise PortTaken(self._port)
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="cursorq-kafka-"))
            weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True, exist_ok=True)
        for attempts_left in (2, 1, 0):
            port = self._port or free_port()
            try:
                self._launch(runtime, port, free_port(other_than=port))
                break
            except BrokerNotReady as failure:
                if "Address already in use" not in failure.log_tail:
                    raise
                # Somebody took a port between our look and the broker's bind.
                if self._wanted_port is not None and not is_free(self._wanted_port):
                    raise PortTaken(self._wanted_port) from failure
                if attempts_left == 0:
                    raise
        self._port = port
        return self

    def stop(self, timeout_s: float = 30.0) -> None:
        """End the broker cleanly (SIGTERM), after ``timeout_s`` seconds by force; the data stays."""
        if self._process is None:
            return
        if self._process.alive:
            self._process.signal(signal.SIGCONT)
            self._process.signal(signal.SIGTERM)
        clean = self._process.wait(timeout_s)
        self._process.kill()
        self._process = None
        if self._dumped is not None and clean:
            self._keep_archive(*self._dumped)

    def kill(self) -> None:
        """End the broker as a crash would (SIGKILL); the data stays. Raises BrokerNotRunning.

        The next start takes 3 s longer: the controller first waits for the dead broker's session to end.
        """
        self._running("kill()").kill()
        self._process = None

    def restart(self) -> Self:
        """Stop cleanly if running, then start on the same port and data. Raises what :meth:`start` raises."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Freeze the broker (SIGSTOP): connections stay, nothing is answered. Raises BrokerNotRunning."""
        self._running("pause()").pause()

    def resume(self) -> None:
        """Let a paused broker run on (SIGCONT). Raises BrokerNotRunning."""
        self._running("resume()").signal(signal.SIGCONT)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait at most ``timeout_s`` seconds for its end; whether it came. Raises BrokerNotRunning."""
        return self._running("wait()").wait(timeout_s)

    def close(self) -> None:
        """Stop, and remove the data directory if it is a temporary one."""
        self.stop()
        if self._kept_dir is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _running(self, wanted: str) -> KeptProcess:
        if self._process is None or not self._process.alive:
            raise BrokerNotRunning(wanted)
        return self._process

    def _launch(self, runtime: BrokerRuntime, port: int, controller_port: int) -> None:
        deadline = time.monotonic() + self._ready_timeout_s
        settings = write_settings(self.data_dir, port, controller_port, self._properties)
        self.log_path.write_bytes(b"")
        self._format_if_new(runtime, settings)
        if runtime.archive.is_file():
            self._dumped, archive_flag = None, f"-XX:SharedArchiveFile={runtime.archive}"
        else:
            self._dumped = (self.data_dir / "classes.jsa", runtime.archive)
            archive_flag = f"-XX:ArchiveClassesAtExit={self._dumped[0]}"
        # fmt: off
        command = [
            runtime.java, f"-Xmx{self._heap_mb}m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
            "-XX:+ExitOnOutOfMemoryError", archive_flag, "-Xlog:disable", "-Xlog:all=error:stderr",
            *self._jvm_tail(runtime), "kafka.Kafka", str(settings),
        ]
        # fmt: on
        doomed = None if self._kept_dir is not None else self._directory
        self._process = KeptProcess(command, cwd=self.data_dir, log=self.log_path, doomed=doomed)
        try:
            self._await_ready(port, deadline)
        except BaseException:
            self._process.kill()
            self._process = None
            raise

    def _jvm_tail(self, runtime: BrokerRuntime) -> list[str]:
        logging = self.data_dir / "log4j2.properties"
        logging.write_text(LOGGING)
        return [f"-Dlog4j2.configurationFile={logging}", "-Djava.awt.headless=true", "-cp", runtime.classpath]

    def _format_if_new(self, runtime: BrokerRuntime, settings: Path) -> None:
        if any(self.data_dir.glob("*/meta.properties")):
            return
        archive = [f"-XX:SharedArchiveFile={runtime.archive}"] if runtime.archive.is_file() else []
        # fmt: off
        command = [
            runtime.java, "-Xmx128m", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=1", *archive, "-Xlog:disable",
            *self._jvm_tail(runtime), "kafka.tools.StorageTool", "format", "--ignore-formatted",
            "--cluster-id", cluster_id(), "--config", str(settings),
        ]
        # fmt: on
        done = subprocess.run(command, cwd=self.data_dir, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
            raise BrokerNotReady("Kafka's format tool refused the data directory", str(self.log_path), tail)

    def _await_ready(self, port: int, deadline: float) -> None:
        """Wait for the port, then for a metadata answer that names the broker."""
        assert self._process is not None
        admin: AdminClient | None = None
        while time.monotonic() < deadline:
            if not self._process.alive:
                raise self._not_ready("the broker ended while it was starting")
            if admin is None:
                # No client before the port is open: its reconnects back off and cost more than the wait.
                if not accepts(port):
                    time.sleep(0.02)
                    continue
                address = {"bootstrap.servers": f"{HOST}:{port}"}
                quiet = {"log_level": "0"}
                admin = AdminClient({**address, **quiet, **self._client_config})
            try:
                if admin.list_topics(timeout=min(2.0, max(0.1, deadline - time.monotonic()))).brokers:
                    return
            except KafkaException:
                time.sleep(0.02)  # not yet; the deadline ends this
        raise self._not_ready(f"the broker answered no metadata request in {self._ready_timeout_s:g} s")

    def _not_ready(self, what: str) -> BrokerError:
        return BrokerNotReady(what, str(self.log_path), self.log_tail())

    @staticmethod
    def _keep_archive(dumped: Path, archive: Path) -> None:
        if not dumped.is_file() or archive.exists():
            return
        archive.parent.mkdir(parents=True, exist_ok=True)
        # Copied beside it and renamed: another broker may be starting from the same name.
        beside = archive.with_suffix(f".{os.getpid()}")
        shutil.move(dumped, beside)
        os.replace(beside, archive)
