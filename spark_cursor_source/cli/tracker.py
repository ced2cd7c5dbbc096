"""``cursorq tracker``: runs a tracker without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spark_cursor_source.cli.frame import LogForm
from spark_cursor_source.metrics.json_log import LogFormat


def tracker(
    conf: Annotated[Path, typer.Argument(metavar="CONF", help="a TOML file such as conf/tracker.toml")],
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="replace the tracker that runs as a Spark query, as takeOver=true in the file does",
        ),
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="show metrics to Prometheus on this port; 0 takes a free one"),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(help="address of the metrics; 0.0.0.0 for a Prometheus on another machine")
    ] = "127.0.0.1",
    log_format: LogForm = LogFormat.TEXT,
    json: Annotated[bool, typer.Option("--json", help="the same as --log-format json")] = False,
) -> int:
    """Runs a tracker without Spark until Ctrl-C or SIGTERM.

    Several processes with the same file share the work. If one dies, the others have its part after
    sessionTimeout. Where the extra [cli] is not installed, this verb works too.
    """
    from spark_cursor_source.tracker.__main__ import read_options, run

    try:
        options = read_options(str(conf))
    except ValueError as why:
        raise typer.BadParameter(str(why), param_hint="'CONF'") from None
    return run(
        options,
        take_over=take_over,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
        log_format=LogFormat.JSON if json else log_format,
    )
