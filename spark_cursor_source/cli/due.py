"""``cursorq due``: says what is ready for delivery, for schedulers."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.frame import Json
from spark_cursor_source.cli.output import instant, print_json, print_table

NOTHING = 3  #: exit code with ``--exit-code`` if nothing is ready


@connected
def due(
    cluster: Cluster,
    subscription: Annotated[str | None, typer.Option(metavar="NAME", help="default: all")] = None,
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="the queue topic; default: all")] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="end with 0 if something is ready, else with 3")
    ] = False,
    json: Json = False,
) -> None:
    """Says how many messages are ready for delivery, and when the next ones will be."""
    from dataclasses import asdict

    from spark_cursor_source.admin.due import read_due

    found = read_due(
        cluster.kafka, subscription=subscription, topic=topic, cursors_topic=cluster.cursors_topic
    )
    if json:
        print_json([asdict(one) for one in found])
    elif not found:
        print("there are no subscriptions")
    else:
        print_table(
            (
                "topic",
                "subscription",
                "ready",
                "unread",
                "available",
                "delayed",
                "blocked",
                "leased",
                "next due",
            ),
            [
                (
                    one.topic,
                    one.subscription,
                    one.ready,
                    one.unread,
                    one.available,
                    one.delayed,
                    one.blocked,
                    one.leased,
                    "paused" if one.paused else instant(one.next_due_ms),
                )
                for one in found
            ],
        )
    if exit_code and not any(one.ready for one in found):
        raise typer.Exit(NOTHING)
