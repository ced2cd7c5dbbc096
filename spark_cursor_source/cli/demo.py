"""``cursorq demo``: runs a broker, a consumer and a tracker with a crash, and prints a verdict."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from spark_cursor_source._features import require_library
from spark_cursor_source.cli.frame import Json
from spark_cursor_source.cli.output import print_json

LEAST_MESSAGES = 1_000  #: enough messages for every kind of fate


def _messages(text: str) -> int:
    if not str(text).isdecimal() or int(text) < LEAST_MESSAGES:
        raise typer.BadParameter(f"{text!r} is no number of at least {LEAST_MESSAGES}")
    return int(text)


def _new_directory(text: str) -> Path:
    if Path(text).exists():
        raise typer.BadParameter(f"{text!r} is there already; name a new directory")
    return Path(text)


def demo(
    messages: Annotated[int, typer.Option(metavar="N", parser=_messages)] = 20_000,
    time_limit: Annotated[float, typer.Option(metavar="S", help="seconds")] = 300.0,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=_new_directory,
            help="leave logs, checkpoints and data in this new directory",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Runs broker, messages, consumer, tracker, a crash: a live table and a verdict.

    Starts a broker, produces messages, runs a tracker and a consumer whose handler fails on some of them,
    kills the consumer in the middle, and shows what becomes of each message. Takes about two minutes; exits
    with 1 if a message was lost or a duplicate has no reason. With --json, stdout has only the verdict.
    """
    for library in ("pyspark", "pandas", "rich"):
        require_library(library, what="cursorq demo")
    from rich.console import Console

    from spark_cursor_source.cli import INTERRUPTED
    from spark_cursor_source.devkit.demo.run import demo as run_demo
    from spark_cursor_source.devkit.demo.scenario import Scenario

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        verdict = run_demo(
            Scenario(messages=messages, time_limit_s=time_limit),
            Console(stderr=json),
            keep=keep,
        )
    except KeyboardInterrupt:
        return INTERRUPTED
    if json:
        print_json(verdict.to_json())
    return 0 if verdict.passed else 1
