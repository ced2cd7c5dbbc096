"""``cursorq resume``: closes a breaker and retries dead letters."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from spark_cursor_source.cli.arguments import add_cluster, kafka_of

if TYPE_CHECKING:
    from spark_cursor_source.admin.breaker import ClosedBreakers
    from spark_cursor_source.cli.arguments import Subcommands


def add_resume(subcommands: Subcommands) -> None:
    """Adds ``cursorq resume``."""
    parser = subcommands.add_parser(
        "resume",
        help="close the breaker of a subscription, try its held dead letters again",
        description="Close the breaker of a subscription, which the tracker opened because there were too "
        "many dead letters: those that it held go out, and leases run out again. Dead letters that could not "
        "be written are tried again at once.",
    )
    parser.add_argument("--subscription", required=True)
    parser.add_argument("--topic", help="only on this queue topic (default: on all that it reads)")
    add_cluster(parser)
    parser.set_defaults(run=_resume)


def _resume(arguments: argparse.Namespace) -> int:
    from spark_cursor_source.admin.breaker import close_breaker

    resumed = close_breaker(
        kafka_of(arguments),
        arguments.subscription,
        arguments.topic,
        markers_topic=arguments.markers_topic,
        cursors_topic=arguments.cursors_topic,
    )
    print(text_of(arguments.subscription, resumed))
    return 0


def text_of(subscription: str, resumed: ClosedBreakers) -> str:
    """Returns one line about the result."""
    if not any(resumed):
        return f"no breaker of {subscription} is open, and no dead letters of it wait to be written again"
    told = f"no breaker of {subscription} is open"
    if resumed.opened:
        told = f"the breaker of {subscription} closes, on {_partitions(resumed.opened)}"
    if resumed.retried:
        where = _partitions(resumed.retried)
        told += f"; its dead letters that could not be written are tried again, on {where}"
    return told


def _partitions(count: int) -> str:
    return f"{count} partition{'s'[: count != 1]}"
