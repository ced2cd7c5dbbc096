"""``cursorq audit``: lists the operators' actions."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.frame import Json
from spark_cursor_source.cli.output import instant, plain, print_json, print_table
from spark_cursor_source.cli.subscription import instant as parse_instant


@connected
def audit(
    cluster: Cluster,
    subscription: Annotated[str | None, typer.Option(metavar="NAME", help="default: all")] = None,
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="the queue topic; default: all")] = None,
    since: Annotated[
        Any,
        typer.Option(parser=parse_instant, metavar="TIME", help="ISO 8601 with an offset, or ms since 1970"),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="the latest N actions")] = 50,
    json: Json = False,
) -> None:
    """Lists the actions of operators and their authors, the latest first.

    The list reaches as far back as the retention of the markers topic. All of it is read; --since makes this
    shorter.
    """
    from dataclasses import asdict

    from spark_cursor_source.admin.audit import read_audit

    entries = read_audit(
        cluster.kafka,
        subscription=subscription,
        topic=topic,
        since_ms=since,
        limit=limit,
        markers_topic=cluster.markers_topic,
    )
    if json:
        print_json([asdict(one) for one in entries])
    elif not entries:
        print("no operator has acted in the time that the markers topic keeps")
    else:
        print_table(
            ("time", "who", "subscription", "topic", "partitions", "action"),
            [
                (
                    instant(one.at_ms),
                    one.author,
                    one.subscription,
                    one.topic,
                    ",".join(map(str, one.partitions)),
                    plain(one.action),
                )
                for one in entries
            ],
        )
