"""``cursorq broker``: runs a development broker or cluster."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_cursor_source.cli.arguments import Subcommands


def add_broker(subcommands: Subcommands) -> None:
    """Adds ``cursorq broker``."""
    parser = subcommands.add_parser(
        "broker",
        help="run a development Kafka broker until Ctrl-C",
        description="Run an Apache Kafka broker, or a cluster, on loopback until Ctrl-C or SIGTERM. "
        "Prints the bootstrap servers once each broker answers.",
    )
    parser.add_argument(
        "--brokers",
        type=int,
        default=1,
        help="how many; three keep a topic in three replicas, of which two acknowledge (default: 1)",
    )
    parser.add_argument(
        "--port", type=int, help="port on 127.0.0.1; further brokers take the next ones (default: free ones)"
    )
    parser.add_argument("--data-dir", type=Path, help="keep the data here (default: removed at the end)")
    parser.add_argument("--prepare", action="store_true", help="only download what a broker needs")
    parser.set_defaults(run=_broker)


def _broker(arguments: argparse.Namespace) -> int:
    from spark_cursor_source.devkit.broker import EmbeddedKafka

    broker = EmbeddedKafka(brokers=arguments.brokers, port=arguments.port, data_dir=arguments.data_dir)
    if arguments.prepare:
        broker.prepare()
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with broker:
            print(f"bootstrap servers: {broker.bootstrap_servers}", flush=True)
            broker.wait()
            ended = min(set(range(1, arguments.brokers + 1)) - broker.pids.keys())
            which = "the broker" if arguments.brokers == 1 else f"broker {ended}"
            log = broker.log_tail(broker=ended)
            print(f"cursorq: {which} ended by itself; its log says:\n{log}", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        return 0
