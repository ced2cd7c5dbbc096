"""The ``cursorq`` command: parses arguments, makes one call, prints. Only this package prints.

A subcommand is a module with a function that adds its parser and sets ``run`` on it. ``SUBCOMMANDS`` lists
these functions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from spark_cursor_source.cli.broker import add_broker
from spark_cursor_source.cli.demo import add_demo
from spark_cursor_source.cli.resume import add_resume
from spark_cursor_source.cli.stats import add_stats
from spark_cursor_source.cli.subscription import add_subscription
from spark_cursor_source.errors import CursorqError

if TYPE_CHECKING:
    from spark_cursor_source.cli.arguments import Subcommands

SUBCOMMANDS: tuple[Callable[[Subcommands], None], ...] = (
    add_broker,
    add_demo,
    add_resume,
    add_subscription,
    add_stats,
)


INTERRUPTED = 130  #: a shell's exit code after Ctrl-C


def parser_of() -> argparse.ArgumentParser:
    """Builds the parser of the command with all its subcommands."""
    parser = argparse.ArgumentParser(prog="cursorq", description="Individual-ack queues on Kafka for Spark.")
    subcommands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in SUBCOMMANDS:
        add(subcommands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns the exit code.

    The exit code is 0 on success, 1 after an error of this package (printed on stderr), 2 after wrong usage,
    and 130 after Ctrl-C.
    """
    arguments = parser_of().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except CursorqError as error:
        print(f"cursorq: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("cursorq: interrupted", file=sys.stderr)
        return INTERRUPTED
