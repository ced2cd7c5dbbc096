"""Apache Kafka for development and tests: one broker or a cluster, in child processes, on loopback.

A start has three steps: find Java and the jars (``runtime``), format new storage, and run each broker
(``node``) under its keeper (``keeper``). The keeper kills the broker when this process ends for any reason.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from spark_cursor_source.devkit.node import BrokerNode
from spark_cursor_source.devkit.ports import BrokerPorts
from spark_cursor_source.devkit.questions import (
    active_controller,
    group_coordinator,
    leader_of,
    transaction_coordinator,
)
from spark_cursor_source.devkit.runtime import BrokerRuntime, find_runtime
from spark_cursor_source.devkit.settings import OF_STORAGE, random_id, write_settings
from spark_cursor_source.errors import BrokerError, BrokerNotReady, BrokerNotRunning
from spark_cursor_source.kafka.deadline import wait_in_steps

_GRACE_S = 1.0
_MOST_BROKERS = 100


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


class EmbeddedKafka:
    """A Kafka (KRaft) of one or more brokers as child processes, which end with this process.

    ``port`` is the client port on 127.0.0.1, in a cluster that of broker 1. Further brokers use the next
    ports. ``None`` selects free ports, which later starts use again. ``data_dir`` is kept, reused, and
    formatted only if new. ``None`` selects a temporary directory, which :meth:`close` removes. ``properties``
    are additional broker settings and override the defaults. The client listener is named ``CLIENT``, so
    ``{"listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT", ...}`` secures it, and
    ``client_config`` contains the login of the readiness check. ``heap_mb`` is the heap of a JVM in MiB
    (default: 512, in a cluster 256). By default, the JVM starts fast, with half the CPU time in the first
    minute; ``long_lived`` optimizes it for brokers that carry load for long. ``ready_timeout_s`` is the
    timeout of a start in seconds (default: 120, in a cluster 240). ``progress`` receives a line of text per
    step of the very first start, which downloads the jars (default: written to stderr).

    The brokers of a cluster have the ids 1, 2, 3 and so on, and each is also a controller. With three or more
    brokers, topics have three replicas and ``min.insync.replicas`` 2 by default. The methods ``start``,
    ``stop``, ``kill``, ``pause`` and ``resume`` take the id of a broker; without one, they apply to all.

    :meth:`start` raises JavaNotFound, JarsNotResolved, PortTaken or BrokerNotReady.

    Example::

        from confluent_kafka import Producer

        from spark_cursor_source.devkit import EmbeddedKafka, ensure_topic

        with EmbeddedKafka(properties={"auto.create.topics.enable": False}) as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

        with EmbeddedKafka(brokers=3) as cluster:
            ensure_topic({"bootstrap.servers": cluster.bootstrap_servers}, "orders", partitions=1)
            leader = cluster.leader("orders", 0)
            assert leader is not None  # kill(None) would kill all brokers
            cluster.kill(leader)
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        port: int | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        properties: Mapping[str, object] | None = None,
        client_config: Mapping[str, str] | None = None,
        heap_mb: int | None = None,
        long_lived: bool = False,
        ready_timeout_s: float | None = None,
        progress: Callable[[str], None] = _say,
    ) -> None:
        _check_whole("brokers", brokers)
        if not 1 <= brokers <= _MOST_BROKERS:
            least = "a Kafka has one broker at least" if brokers < 1 else f"more than {_MOST_BROKERS}"
            raise BrokerError(f"brokers={brokers}: {least}; give 1, or 3")
        if data_dir == "":
            raise BrokerError("data_dir='': it is empty; name a directory, or leave it out")
        if port is not None:
            _check_whole("port", port)
        if heap_mb is not None:
            _check_whole("heap_mb", heap_mb)
        highest = 65_536 - brokers
        if port is not None and not 1 <= port <= highest:
            raise BrokerError(f"port={port}: the ports of the brokers begin here; give one of 1 to {highest}")
        self._numbers = range(1, brokers + 1)
        self._ports = BrokerPorts(self._numbers, port)
        self._kept_dir = None if data_dir is None else Path(data_dir).absolute()
        self._directory = self._kept_dir
        self._properties = dict(properties or {})
        self._client_config = dict(client_config or {})
        self._jvm_options = _jvm_options(brokers, heap_mb, long_lived=long_lived)
        usual_s = 120.0 if brokers == 1 else 240.0
        self._ready_timeout_s = usual_s if ready_timeout_s is None else ready_timeout_s
        self._progress = progress
        self._nodes: dict[int, BrokerNode] = {}

    def __repr__(self) -> str:
        state = f"pids={self.pids}" if self.running else "not running"
        return f"EmbeddedKafka({self._ports.bootstrap_servers or None}, {state})"

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every broker, the same for all starts.

        Raises BrokerNotRunning before the first start.
        """
        if not self._ports.bootstrap_servers:
            raise BrokerNotRunning("bootstrap_servers")
        return self._ports.bootstrap_servers

    @property
    def pid(self) -> int:
        """Process id of the JVM of the broker, or of broker 1. Raises BrokerNotRunning."""
        return self._node(1, "pid").require("pid").pid

    @property
    def pids(self) -> dict[int, int]:
        """Process ids of existing brokers, by broker id."""
        found = {number: node.process for number, node in self._nodes.items() if node.running}
        return {number: process.pid for number, process in found.items() if process is not None}

    @property
    def running(self) -> bool:
        """True if the process of at least one broker exists, paused or not."""
        return any(node.running for node in self._nodes.values())

    @property
    def data_dir(self) -> Path:
        """Directory of data, settings and logs. Raises BrokerNotRunning before the first start."""
        if self._directory is None:
            raise BrokerNotRunning("data_dir")
        return self._directory

    @property
    def log_path(self) -> Path:
        """Log file (warnings and errors) of the broker, or of broker 1. It covers all starts by this object.

        Raises BrokerNotRunning before the first start.
        """
        return self._node(1, "log_path").log_path

    def log_tail(self, lines: int = 30, *, broker: int = 1) -> str:
        """Returns the last lines that a broker has logged since its last start.

        Raises BrokerNotRunning before the first start.
        """
        return self._node(broker, "log_tail()").log_tail(lines)

    def prepare(self) -> None:
        """Downloads the files that a start needs. Returns immediately if all exist.

        Raises JavaNotFound, JarsNotResolved.
        """
        find_runtime(self._progress)

    def start(self, broker: int | None = None) -> Self:
        """Starts all brokers, or one, and waits until a metadata response contains each of them.

        Running brokers are not affected. A majority of a cluster must run: with fewer, a broker does not
        become ready.

        Raises JavaNotFound, JarsNotResolved, PortTaken, BrokerNotReady.
        """
        wanted = [number for number in self._wanted(broker) if number not in self.pids]
        if not wanted:
            return self
        runtime = find_runtime(self._progress)
        self._ports.check(wanted)
        self._place()
        starting = [self._nodes[number] for number in wanted]
        for node in starting:
            node.forget_ended()
        for attempts_left in (2, 1, 0):
            self._ports.choose()
            try:
                self._launch(runtime, starting)
                break
            except BrokerNotReady as failure:
                if "Address already in use" not in failure.log_tail:
                    raise
                # Another process took a port between the check and the broker's bind.
                self._ports.check(wanted, failure)
                if attempts_left == 0:
                    raise
        self._ports.keep()
        return self

    def stop(self, broker: int | None = None, *, timeout_s: float = 30.0) -> None:
        """Stops all brokers, or one, cleanly (SIGTERM), and by force after ``timeout_s`` seconds.

        The data is kept.
        """
        nodes = self._chosen(broker)
        for node in nodes:
            node.tell_to_end()
        until = time.monotonic() + timeout_s
        # Brokers left without a majority wait in vain for the controllers' permission to shut down.
        minority = max(0, len(nodes) - 1) // 2
        while sum(node.running for node in nodes) > minority and time.monotonic() < until:
            time.sleep(0.02)
        for node in nodes:
            node.end(min(_GRACE_S, max(0.0, until - time.monotonic())))

    def kill(self, broker: int | None = None) -> None:
        """Kills all brokers, or one, like a crash (SIGKILL). The data is kept. Raises BrokerNotRunning.

        The next start takes 3 s longer, because the controller waits for the dead broker's session timeout.
        """
        for node in self._alive(broker, "kill()"):
            node.kill()

    def restart(self) -> Self:
        """Stops the brokers cleanly if running, then starts them on the same ports and data.

        Raises the errors of ``start``.
        """
        self.stop()
        return self.start()

    def pause(self, broker: int | None = None) -> None:
        """Pauses all brokers, or one (SIGSTOP): connections stay open without responses.

        Raises BrokerNotRunning.
        """
        for node in self._alive(broker, "pause()"):
            node.require("pause()").pause()

    def resume(self, broker: int | None = None) -> None:
        """Resumes all paused brokers, or one (SIGCONT). Raises BrokerNotRunning."""
        for node in self._alive(broker, "resume()"):
            node.require("resume()").signal(signal.SIGCONT)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits at most ``timeout_s`` seconds for the end of a broker. Returns True if one has ended.

        Raises BrokerNotRunning if no broker was started, or all were stopped or killed by this object.
        """
        nodes = [node for node in self._chosen(None) if node.process is not None]
        if not nodes:
            raise BrokerNotRunning("wait()")

        def has_ended(most_s: float) -> bool:
            if all(node.running for node in nodes):
                time.sleep(most_s)
            return not all(node.running for node in nodes)

        return wait_in_steps(has_ended, timeout_s)

    def close(self) -> None:
        """Stops the brokers, and removes a temporary data directory.

        Brokers with temporary data are killed: a clean stop would flush data that is removed next, which
        takes half a minute with a thousand partitions.
        """
        if self._kept_dir is None and self.running:
            self.kill()
        self.stop()
        if self._kept_dir is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
            self._nodes.clear()

    def leader(self, topic: str, partition: int) -> int | None:
        """Returns the id of the leader of a partition; None without a leader or without such a partition."""
        return leader_of(self._to_ask(), topic, partition)

    def coordinator(self, group: str) -> int | None:
        """Returns the id of the coordinator of a consumer group; None before the cluster's first group."""
        return group_coordinator(self._to_ask(), group)

    def transaction_coordinator(self, transactional_id: str) -> int | None:
        """Returns the id of the coordinator of a transactional id; None before the first transaction."""
        return transaction_coordinator(self._to_ask(), transactional_id)

    def controller(self) -> int | None:
        """Returns the id of the elected controller; None if no controller is elected."""
        answering = {number: node.directory for number, node in self._nodes.items() if node.answering}
        found = active_controller(answering.values())
        return found if found in answering else None

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

    def _wanted(self, broker: int | None) -> Sequence[int]:
        if broker is None:
            return self._numbers
        if broker not in self._numbers:
            raise BrokerError(f"there is no broker {broker}; their ids are 1 to {len(self._numbers)}")
        return [broker]

    def _chosen(self, broker: int | None) -> list[BrokerNode]:
        return [self._nodes[number] for number in self._wanted(broker) if number in self._nodes]

    def _alive(self, broker: int | None, wanted: str) -> list[BrokerNode]:
        found = [node for node in self._chosen(broker) if node.running]
        if not found:
            raise BrokerNotRunning(wanted)
        return found

    def _node(self, broker: int, wanted: str) -> BrokerNode:
        (number,) = self._wanted(broker)
        if number not in self._nodes:
            raise BrokerNotRunning(wanted)
        return self._nodes[number]

    def _to_ask(self) -> dict[str, str]:
        """Returns the configuration of a client for brokers that respond."""
        answering = [number for number, node in self._nodes.items() if node.answering]
        if not answering:
            raise BrokerNotRunning("a question to the brokers")
        return {**self._client_config, "bootstrap.servers": self._ports.addresses(answering)}

    def _place(self) -> None:
        """Creates the data directory, and in a cluster one subdirectory per broker."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="cursorq-kafka-"))
            weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True, exist_ok=True)
        _check_directory(self._directory, len(self._numbers))
        for number in self._numbers:
            own = self._directory if len(self._numbers) == 1 else self._directory / f"broker-{number}"
            own.mkdir(exist_ok=True)
            doomed = None if self._kept_dir is not None else self._directory
            self._nodes.setdefault(number, BrokerNode(number, own, doomed=doomed))

    def _launch(self, runtime: BrokerRuntime, nodes: Sequence[BrokerNode]) -> None:
        deadline = time.monotonic() + self._ready_timeout_s
        settings = {}
        for node in nodes:
            number = node.number
            settings[number] = write_settings(
                node.directory, number, self._ports.client[number], self._ports.controller, self._properties
            )
            node.begin_log()
        new = [node for node in nodes if node.is_new]
        if new:
            usual = not any(name.startswith(OF_STORAGE) for name in self._properties)
            new[0].format(runtime, settings[new[0].number], random_id(), usual=usual)
        for node in new[1:]:
            node.format_like(new[0].storage)
        try:
            for node in nodes:
                node.launch(runtime, settings[node.number], self._jvm_options)
            for node in nodes:
                node.await_ready(
                    self._ports.client[node.number],
                    [node.number for node in nodes],
                    client_config=self._client_config,
                    deadline=deadline,
                    timeout_s=self._ready_timeout_s,
                )
        except BaseException:
            for node in nodes:
                node.forget_ended()
            raise


def _jvm_options(brokers: int, heap_mb: int | None, *, long_lived: bool) -> list[str]:
    heap = f"-Xmx{heap_mb or (512 if brokers == 1 else 256)}m"
    if long_lived:
        return [heap, "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
    # The quick compiler and a collector without threads of its own: half the CPU time in the first minute.
    return [heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def _check_whole(argument: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BrokerError(f"{argument}={value!r}: it is not a whole number; give an int")


def _check_directory(directory: Path, brokers: int) -> None:
    """Rejects the data of a Kafka with another number of brokers, because ids and voters differ."""
    of_one = (directory / "logs").is_dir()
    of_several = len(list(directory.glob("broker-*/logs")))
    if (brokers == 1 and of_several) or (brokers > 1 and (of_one or of_several not in (0, brokers))):
        there = 1 if of_one else of_several
        raise BrokerError(
            f"{directory} holds the data of a Kafka with {there} broker(s), not {brokers}; "
            f"give brokers={there}, or another data_dir"
        )
