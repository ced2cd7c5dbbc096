"""``cursorq demo``: runs a broker, a consumer and a tracker with a crash, and prints a verdict."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_cursor_source.cli.arguments import Subcommands


LEAST_MESSAGES = 1_000  #: enough messages for every kind of fate


def add_demo(subcommands: Subcommands) -> None:
    """Adds ``cursorq demo``."""
    parser = subcommands.add_parser(
        "demo",
        help="broker, messages, consumer, tracker, a crash: a live table and a verdict",
        description="Start a broker, produce messages, run a tracker and a consumer whose handler fails on "
        "some of them, kill the consumer in the middle, and show what becomes of each message. Takes about "
        "a minute; exits with 1 if a message was lost or a duplicate has no reason.",
    )
    parser.add_argument("--messages", type=_messages, default=20_000, metavar="N", help="default: 20000")
    parser.add_argument("--time-limit", type=float, default=105.0, metavar="S", help="seconds, default: 105")
    parser.add_argument(
        "--keep",
        type=_new_directory,
        metavar="DIR",
        help="leave logs, checkpoints and data in this new directory",
    )
    parser.set_defaults(run=_demo)


def _messages(text: str) -> int:
    if not text.isdecimal() or int(text) < LEAST_MESSAGES:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least {LEAST_MESSAGES}")
    return int(text)


def _new_directory(text: str) -> Path:
    if Path(text).exists():
        raise argparse.ArgumentTypeError(f"{text!r} is there already; name a new directory")
    return Path(text)


def _demo(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from spark_cursor_source.devkit.demo.run import demo
    from spark_cursor_source.devkit.demo.scenario import Scenario

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        scenario = Scenario(messages=arguments.messages, time_limit_s=arguments.time_limit)
        return demo(scenario, Console(), keep=arguments.keep)
    except KeyboardInterrupt:
        return 130  # a shell's exit code after Ctrl-C
