"""``cursorq broker``: a development broker."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_cursor_source.cli.arguments import Subcommands


def add_broker(subcommands: Subcommands) -> None:
    """Add ``cursorq broker``."""
    parser = subcommands.add_parser(
        "broker",
        help="run a development Kafka broker until Ctrl-C",
        description="Run a single Apache Kafka broker on loopback until Ctrl-C or SIGTERM. "
        "Prints its bootstrap servers once it answers.",
    )
    parser.add_argument("--port", type=int, help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument("--data-dir", type=Path, help="keep the data here (default: removed at the end)")
    parser.add_argument("--prepare", action="store_true", help="only download what a broker needs")
    parser.set_defaults(run=_broker)


def _broker(arguments: argparse.Namespace) -> int:
    from spark_cursor_source.embedded import EmbeddedKafka

    broker = EmbeddedKafka(port=arguments.port, data_dir=arguments.data_dir)
    if arguments.prepare:
        broker.prepare()
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with broker:
            print(f"bootstrap servers: {broker.bootstrap_servers}", flush=True)
            broker.wait()
            print(f"cursorq: the broker ended by itself; its log says:\n{broker.log_tail()}", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        return 0
