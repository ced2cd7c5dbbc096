"""A tracker as a process, also without extras: ``python -m spark_cursor_source.tracker CONF``."""

from __future__ import annotations

import argparse
import signal
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spark_cursor_source.errors import CursorqError
from spark_cursor_source.metrics.json_log import LogFormat, log_to_stderr
from spark_cursor_source.metrics.server import DEFAULT_HOST
from spark_cursor_source.tracker.standalone import Tracker


def read_options(path: str) -> dict[str, Any]:
    """Returns the options of a TOML file.

    Raises:
        ValueError: the file cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as why:
        raise ValueError(f"{path} cannot be read: {why}") from None


def run(
    options: Mapping[str, Any],
    *,
    take_over: bool,
    metrics_port: int | None = None,
    metrics_host: str = DEFAULT_HOST,
    log_format: LogFormat = LogFormat.TEXT,
) -> int:
    """Runs a tracker until Ctrl-C or SIGTERM. Returns the exit code.

    Raises:
        CursorqError: the tracker cannot start, or has ended by itself.
    """
    log_to_stderr(log_format)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Tracker(
            {**options, **({"takeOver": True} if take_over else {})},
            metrics_port=metrics_port,
            metrics_host=metrics_host,
        ) as tracker:
            tracker.wait()
    except KeyboardInterrupt:
        pass
    return 0


def main(argv: Sequence[str]) -> int:
    """Parses the arguments of ``cursorq tracker`` and runs it. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="cursorq tracker", description="Runs a tracker until Ctrl-C.")
    parser.add_argument("conf", metavar="CONF", help="a TOML file such as conf/tracker.toml")
    parser.add_argument("--take-over", action="store_true", help="replace the tracker of a Spark query")
    parser.add_argument("--metrics-port", type=int, help="show metrics to Prometheus on this port")
    parser.add_argument("--metrics-host", default=DEFAULT_HOST, help="address of the metrics")
    parser.add_argument("--log-format", type=LogFormat, choices=list(LogFormat), default=LogFormat.TEXT)
    parser.add_argument(
        "--json",
        action="store_const",
        const=LogFormat.JSON,
        dest="log_format",
        help="the same as --log-format json",
    )
    given = parser.parse_args(argv)
    try:
        options = read_options(given.conf)
    except ValueError as why:
        parser.error(str(why))
    try:
        return run(
            options,
            take_over=given.take_over,
            metrics_port=given.metrics_port,
            metrics_host=given.metrics_host,
            log_format=given.log_format,
        )
    except CursorqError as error:
        sys.stderr.write(f"cursorq tracker: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
