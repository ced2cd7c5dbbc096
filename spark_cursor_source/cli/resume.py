"""``cursorq resume``: close a breaker."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from spark_cursor_source.cli.arguments import add_cluster, kafka_of

if TYPE_CHECKING:
    from spark_cursor_source.cli.arguments import Subcommands


def add_resume(subcommands: Subcommands) -> None:
    """Add ``cursorq resume``."""
    parser = subcommands.add_parser(
        "resume",
        help="close the breaker of a subscription",
        description="Close the breaker of a subscription, which the tracker opened because there were too "
        "many dead letters: those that it held go out, and leases run out again.",
    )
    parser.add_argument("--subscription", required=True)
    parser.add_argument("--topic", help="only on this queue topic (default: on all that it reads)")
    add_cluster(parser)
    parser.set_defaults(run=_resume)


def _resume(arguments: argparse.Namespace) -> int:
    from spark_cursor_source.kafka.resume import resume

    partitions = resume(
        kafka_of(arguments),
        arguments.subscription,
        arguments.topic,
        markers_topic=arguments.markers_topic,
        cursors_topic=arguments.cursors_topic,
    )
    if not partitions:
        print(f"no breaker of {arguments.subscription} is open")
        return 0
    print(
        f"the breaker of {arguments.subscription} closes, on {partitions} partition{'s'[: partitions != 1]}"
    )
    return 0
