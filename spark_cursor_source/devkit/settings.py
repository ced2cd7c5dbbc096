"""Settings and log configuration of the embedded broker."""

from __future__ import annotations

import base64
import os
import uuid
from collections.abc import Mapping
from pathlib import Path

from spark_cursor_source.devkit.process import HOST

LOGGING = """\
status = error
shutdownHook = disable
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.markers.name = kafka.coordinator.transaction.TransactionMarkerChannelManager
logger.markers.level = info
"""  # Kafka reports transaction markers that it drops as information (KAFKA-20734), also while it shuts down

_SMALL_AND_FAST = {
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "share.coordinator.state.topic.num.partitions": 2,
}

#: beginnings of the names of settings that decide what newly formatted storage contains, or where it is
OF_STORAGE = (
    "log.dir",
    "metadata.log.dir",
    "node.",
    "broker.id",
    "process.",
    "controller.quorum.",
    "unstable.",
)


def write_settings(
    directory: Path,
    number: int,
    port: int,
    controller_ports: Mapping[int, int],
    properties: Mapping[str, object],
) -> Path:
    """Writes the ``server.properties`` of a broker into its directory. ``properties`` take precedence.

    ``controller_ports`` contains the ports of all brokers, because each broker is a voter of the quorum.
    """
    voters = (f"{node}@{HOST}:{of}" for node, of in controller_ports.items())
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": number,
        "listeners": f"CLIENT://{HOST}:{port},CONTROLLER://{HOST}:{controller_ports[number]}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(voters),
        "log.dirs": str(directory / "logs"),
        **_SMALL_AND_FAST,
        **_by_brokers(len(controller_ports)),
        **properties,
    }
    path = directory / "server.properties"
    path.unlink(missing_ok=True)
    # Readable by this user only, because `properties` may contain passwords.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.writelines(f"{name}={_property(value)}\n" for name, value in settings.items())
    return path


def _by_brokers(brokers: int) -> dict[str, object]:
    """Returns the settings for this many brokers.

    With three brokers: three replicas, of which two are in sync. A single broker writes no records while it
    is idle.
    """
    copies, in_sync = min(3, brokers), min(2, brokers)
    settings: dict[str, object] = {
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
    }
    if brokers == 1:
        settings["metadata.max.idle.interval.ms"] = 0  # a third less CPU time while the broker is idle
    else:
        settings |= {"default.replication.factor": copies, "min.insync.replicas": in_sync}
    return settings


def _property(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).replace("\\", "\\\\").replace("\n", "\\n")


def random_id() -> str:
    """Returns a random cluster or directory id in Kafka's format."""
    while True:
        candidate = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not candidate.startswith("-"):  # the format tool would parse a leading dash as an option
            return candidate
