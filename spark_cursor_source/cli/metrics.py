"""``cursorq metrics``: shows metrics of the topics to Prometheus."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from typing import Annotated

import typer

from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.frame import LogForm
from spark_cursor_source.cli.output import print_json, print_line
from spark_cursor_source.metrics.json_log import LogFormat, log_to_stderr

DEFAULT_PORT = 9464


@connected
def metrics(
    cluster: Cluster,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="port of the endpoint; 0 takes a free one")
    ] = DEFAULT_PORT,
    host: Annotated[
        str, typer.Option(help="address to listen on; 0.0.0.0 for a Prometheus on another machine")
    ] = "127.0.0.1",
    once: Annotated[bool, typer.Option("--once", help="print the metrics as text, and end")] = False,
    subscription: Annotated[str | None, typer.Option(metavar="NAME", help="default: all")] = None,
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="default: all")] = None,
    tracker_timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="the tracker is down if it reads no marker for so long")
    ] = "60s",
    log_format: LogForm = LogFormat.TEXT,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="print JSON: with --once the metrics, else the address and the log lines"
        ),
    ] = False,
) -> None:
    """Shows metrics of what the topics contain to Prometheus, until Ctrl-C or SIGTERM.

    The topics are read at each scrape: backlog, age, outstanding messages, totals, positions and consumers of
    each subscription, and the tracker. Nothing is written.
    """
    from spark_cursor_source.admin.topic_metrics import TopicMetrics
    from spark_cursor_source.core.duration import parse_duration
    from spark_cursor_source.kafka.deadline import wait_in_steps
    from spark_cursor_source.metrics.server import openmetrics, serve_metrics

    topics = TopicMetrics(
        cluster.kafka,
        subscription=subscription,
        topic=topic,
        **cluster.names,
        tracker_timeout_ms=parse_duration(tracker_timeout),
    )
    with topics:
        if once:
            samples = topics.read()
            if json:
                print_json([one.to_json() for one in samples])
            else:
                print(openmetrics(samples), end="")
            return
        log_to_stderr(LogFormat.JSON if json else log_format)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with serve_metrics(topics, port=port, host=host) as server:
            address = f"http://{host}:{server.port}/metrics"
            if json:
                print_line({"metrics": address})
            else:
                print(f"metrics: {address}", flush=True)
            with suppress(KeyboardInterrupt):
                wait_in_steps(threading.Event().wait)
