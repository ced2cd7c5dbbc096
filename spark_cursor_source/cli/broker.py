"""``cursorq broker``: runs a development broker or cluster."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from spark_cursor_source._features import require_library
from spark_cursor_source.cli.frame import Json, path_not_empty
from spark_cursor_source.cli.output import print_json


def broker(
    brokers: Annotated[
        int, typer.Option(help="how many; three keep a topic in three replicas, of which two acknowledge")
    ] = 1,
    port: Annotated[
        int | None,
        typer.Option(help="port on 127.0.0.1; further brokers take the next ones (default: free ones)"),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            parser=path_not_empty, metavar="PATH", help="keep the data here (default: removed at the end)"
        ),
    ] = None,
    prepare: Annotated[bool, typer.Option("--prepare", help="only download what a broker needs")] = False,
    json: Json = False,
) -> int:
    """Runs a development Kafka broker until Ctrl-C.

    Runs an Apache Kafka broker, or a cluster, on loopback until Ctrl-C or SIGTERM. Prints the bootstrap
    servers once each broker answers.
    """
    from spark_cursor_source.devkit.broker import EmbeddedKafka

    kafka = EmbeddedKafka(brokers=brokers, port=port, data_dir=data_dir, long_lived=brokers == 1)
    if prepare:
        kafka.prepare()
        if json:
            print_json({"prepared": True})
        return 0
    require_library("pyspark", what="the embedded broker")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"cursorq: starting {brokers} broker{'s' * (brokers > 1)} ...", file=sys.stderr, flush=True)
    try:
        with kafka:
            if json:
                print_json({"bootstrap_servers": kafka.bootstrap_servers})
            else:
                print(f"bootstrap servers: {kafka.bootstrap_servers}")
                print(
                    f"cursorq: for the commands in another shell: "
                    f"export CURSORQ_BOOTSTRAP_SERVERS={kafka.bootstrap_servers}",
                    file=sys.stderr,
                )
            sys.stdout.flush()
            kafka.wait()
            ended = min(set(range(1, brokers + 1)) - kafka.pids.keys())
            which = "the broker" if brokers == 1 else f"broker {ended}"
            log = kafka.log_tail(broker=ended)
            print(f"cursorq: {which} ended by itself; its log says:\n{log}", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        return 0
