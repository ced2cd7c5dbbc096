"""``cursorq limit``: sets the limits of a subscription while its queries run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.frame import Json, not_empty
from spark_cursor_source.cli.output import print_json
from spark_cursor_source.cli.pause import Author, Name, TrackerTimeout
from spark_cursor_source.core.duration import parse_duration
from spark_cursor_source.core.limits import Limits
from spark_cursor_source.core.move_preview import partitions_text

if TYPE_CHECKING:
    from spark_cursor_source.admin.limits import Limited


@connected
def limit(
    cluster: Cluster,
    subscription: Name,
    rate: Annotated[
        Any,
        typer.Option(
            parser=not_empty, metavar="N", help="messages per second, redeliveries included; none: no limit"
        ),
    ] = None,
    max_outstanding: Annotated[
        Any,
        typer.Option(parser=not_empty, metavar="N", help="outstanding messages, at most; none: no limit"),
    ] = None,
    author: Author = None,
    tracker_timeout: TrackerTimeout = "60s",
    json: Json = False,
) -> None:
    """Limits the rate and the outstanding messages of a subscription, on all its topics.

    Running queries and clients follow within two seconds. A limit that is not given stays as it is. Consumers
    that share the subscription divide the limits by the number of their partitions.
    """
    from spark_cursor_source.admin.limits import KEEP, limit_subscription, outstanding_of, rate_of

    if rate is None and max_outstanding is None:
        raise typer.BadParameter("give --rate, --max-outstanding or both")
    limited = limit_subscription(
        cluster.kafka,
        subscription,
        rate=KEEP if rate is None else rate_of(rate),
        max_outstanding=KEEP if max_outstanding is None else outstanding_of(max_outstanding),
        author=author,
        **cluster.tracker_topics,
        tracker_timeout_ms=parse_duration(tracker_timeout),
    )
    if json:
        print_json({"subscription": subscription, **limited._asdict()})
    else:
        print(limit_text(subscription, limited))


def limit_text(subscription: str, limited: Limited) -> str:
    """Returns one line about the result."""
    limits = Limits(rate=limited.rate, max_outstanding=limited.max_outstanding)
    return f"{limits.told_of(subscription)}, on {partitions_text(limited.partitions)}"
