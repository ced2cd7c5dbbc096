"""The ``cursorq`` command: parse, make one call, print. The only module of the package that prints.

A subcommand is a function that adds its parser and sets ``run`` on it, listed in ``SUBCOMMANDS``.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spark_cursor_source.errors import CursorqError

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 when it did its work, 1 on an error of ours (told on stderr), 2 on wrong usage."""
    parser = argparse.ArgumentParser(prog="cursorq", description="Individual-ack queues on Kafka for Spark.")
    subcommands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in SUBCOMMANDS:
        add(subcommands)
    arguments = parser.parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except CursorqError as error:
        print(f"cursorq: {error}", file=sys.stderr)
        return 1


def _add_broker(subcommands: Subcommands) -> None:
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


SUBCOMMANDS: tuple[Callable[[Subcommands], None], ...] = (_add_broker,)

if __name__ == "__main__":
    sys.exit(main())
