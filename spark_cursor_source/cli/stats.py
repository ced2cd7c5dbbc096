"""``cursorq stats``: prints the state of subscriptions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from spark_cursor_source.cli.arguments import add_cluster, kafka_of
from spark_cursor_source.core.names import DEFAULT_REDELIVERIES_TOPIC
from spark_cursor_source.core.subscription_type import DEFAULT_GROUP_ID_PREFIX

if TYPE_CHECKING:
    from spark_cursor_source.cli.arguments import Subcommands


def add_stats(subcommands: Subcommands) -> None:
    """Adds ``cursorq stats``."""
    parser = subcommands.add_parser(
        "stats",
        help="where subscriptions stand, and who reads them",
        description="Backlog, leases, positions, consumers and totals of subscriptions, as of now.",
    )
    parser.add_argument("--subscription", help="default: all")
    parser.add_argument("--topic", help="default: all")
    parser.add_argument("--json", action="store_true", help="everything, also of each partition")
    add_cluster(parser)
    parser.add_argument("--redeliveries-topic", default=DEFAULT_REDELIVERIES_TOPIC)
    parser.add_argument("--group-id-prefix", default=DEFAULT_GROUP_ID_PREFIX)
    parser.set_defaults(run=_stats)


def _stats(arguments: argparse.Namespace) -> int:
    from spark_cursor_source.admin.stats import read_stats

    stats = read_stats(
        kafka_of(arguments),
        subscription=arguments.subscription,
        topic=arguments.topic,
        markers_topic=arguments.markers_topic,
        redeliveries_topic=arguments.redeliveries_topic,
        cursors_topic=arguments.cursors_topic,
        group_id_prefix=arguments.group_id_prefix,
    )
    if text := stats.to_json(indent=2) if arguments.json else stats.to_text():
        print(text)
    return 0
