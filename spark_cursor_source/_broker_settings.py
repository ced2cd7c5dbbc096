"""What the embedded broker is told: its settings and how it logs."""

from __future__ import annotations

import base64
import os
import uuid
from collections.abc import Mapping
from pathlib import Path

from spark_cursor_source._broker_process import HOST

LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""

_SMALL_AND_FAST = {
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 2,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 2,
}


def write_settings(
    directory: Path, port: int, controller_port: int, properties: Mapping[str, object]
) -> Path:
    """Write ``server.properties`` into ``directory``; ``properties`` win."""
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": f"CLIENT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "log.dirs": str(directory / "logs"),
        **_SMALL_AND_FAST,
        **properties,
    }
    path = directory / "server.properties"
    path.unlink(missing_ok=True)
    # Ours alone: `properties` may hold passwords.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.writelines(f"{name}={_property(value)}\n" for name, value in settings.items())
    return path


def _property(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).replace("\\", "\\\\").replace("\n", "\\n")


def cluster_id() -> str:
    """A random cluster id in Kafka's form."""
    while True:
        candidate = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not candidate.startswith("-"):  # the format tool would read it as an option
            return candidate
