"""``cursorq stats``: prints the state of subscriptions."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.frame import Json
from spark_cursor_source.cli.output import repeated


@connected
def stats(
    cluster: Cluster,
    subscription: Annotated[str | None, typer.Option(metavar="NAME", help="default: all")] = None,
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="default: all")] = None,
    watch: Annotated[
        str | None, typer.Option(metavar="TIME", help="print again after each such time, such as 5s")
    ] = None,
    json: Json = False,
) -> None:
    """Shows where subscriptions stand, and who reads them.

    Backlog, leases, positions, consumers and totals of subscriptions, as of now. JSON has each partition.
    With --watch, each round is printed below the last one, and JSON is one line; see also `cursorq top`.
    """
    from spark_cursor_source.admin.stats import read_stats

    for _ in repeated(watch):
        found = read_stats(
            cluster.kafka,
            subscription=subscription,
            topic=topic,
            **cluster.names,
        )
        text = found.to_json(indent=None if watch else 2) if json else found.to_text()
        print(text or "there are no subscriptions", flush=True)
