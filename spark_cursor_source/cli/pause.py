"""``cursorq pause`` and ``cursorq resume``: pauses a subscription, and ends what holds one up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.frame import Json
from spark_cursor_source.cli.output import print_json
from spark_cursor_source.core.duration import parse_duration
from spark_cursor_source.core.move_preview import partitions_text

if TYPE_CHECKING:
    from spark_cursor_source.admin.pause import Paused, Resumed

Name = Annotated[str, typer.Option("--subscription", metavar="NAME")]
QueueTopic = Annotated[
    str | None,
    typer.Option("--topic", metavar="NAME", help="only on this queue topic (default: on all that it reads)"),
]
Author = Annotated[
    str | None, typer.Option(metavar="TEXT", help="who acts, for 'cursorq audit' (default: user@host)")
]
TrackerTimeout = Annotated[str, typer.Option(metavar="TIME", help="how long to wait for a tracker")]


@connected
def pause(
    cluster: Cluster,
    subscription: Name,
    topic: QueueTopic = None,
    author: Author = None,
    tracker_timeout: TrackerTimeout = "60s",
    json: Json = False,
) -> None:
    """Pauses a subscription: its consumers lease no message until 'cursorq resume'.

    What they have leased is processed and acked as usual. Running queries and clients follow within two
    seconds.
    """
    from spark_cursor_source.admin.pause import pause_subscription

    paused = pause_subscription(
        cluster.kafka,
        subscription,
        topic,
        author=author,
        **cluster.tracker_topics,
        tracker_timeout_ms=parse_duration(tracker_timeout),
    )
    if json:
        print_json({"subscription": subscription, **paused._asdict()})
    else:
        print(pause_text(subscription, paused))


@connected
def resume(
    cluster: Cluster,
    subscription: Name,
    topic: QueueTopic = None,
    author: Author = None,
    json: Json = False,
) -> None:
    """Ends a pause of a subscription, closes its breaker, and tries its held dead letters again.

    The tracker opens the breaker because there are too many dead letters. When it closes, those that it held
    go out, and leases run out again. Dead letters that could not be written are tried again at once.
    """
    from spark_cursor_source.admin.pause import resume_subscription

    resumed = resume_subscription(cluster.kafka, subscription, topic, author=author, **cluster.tracker_topics)
    if json:
        print_json({"subscription": subscription, **resumed._asdict()})
    else:
        print(resume_text(subscription, resumed))


def pause_text(subscription: str, paused: Paused) -> str:
    """Returns one line about the result."""
    before = f", {paused.before} of them since before" if paused.before else ""
    return (
        f"{subscription} is paused on {partitions_text(paused.paused)}{before}; go on with: "
        f"cursorq resume --subscription {subscription}"
    )


def resume_text(subscription: str, resumed: Resumed) -> str:
    """Returns one line about the result."""
    told = []
    if resumed.paused:
        told.append(f"the pause of {subscription} ends, on {partitions_text(resumed.paused)}")
    if resumed.opened:
        told.append(f"the breaker of {subscription} closes, on {partitions_text(resumed.opened)}")
    if resumed.retried:
        where = partitions_text(resumed.retried)
        told.append(f"its dead letters that could not be written are tried again, on {where}")
    if not told:
        told.append(
            f"{subscription} is not paused, no breaker of it is open, and no dead letters of it wait to be "
            "written again"
        )
        if resumed.unread:
            where = partitions_text(resumed.unread)
            told.append(f"the tracker has yet to read markers of {where}, and a pause among them ends too")
    elif not resumed.opened and not resumed.paused:
        told.insert(0, f"no breaker of {subscription} is open")
    return "; ".join(told)
