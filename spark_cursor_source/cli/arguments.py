"""Arguments shared by several subcommands: the cluster and the control topics."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC, DEFAULT_MARKERS_TOPIC

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments for the cluster and the control topics."""
    parser.add_argument("--bootstrap-servers", help="default: as in the file, or localhost:9092")
    parser.add_argument("--config-file", help="a properties file with what else the Kafka clients need")
    parser.add_argument("--markers-topic", default=DEFAULT_MARKERS_TOPIC)
    parser.add_argument("--cursors-topic", default=DEFAULT_CURSORS_TOPIC)


def kafka_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Returns the Kafka client options for the given cluster."""
    given = {"bootstrap.servers": arguments.bootstrap_servers, "config.file": arguments.config_file}
    kafka = {name: value for name, value in given.items() if value is not None}
    return kafka or {"bootstrap.servers": "localhost:9092"}
