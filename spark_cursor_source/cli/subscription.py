"""``cursorq subscription``: create, seek, skip and delete."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from spark_cursor_source.admin.instants import instant_ms
from spark_cursor_source.cli.arguments import add_cluster, kafka_of
from spark_cursor_source.core.duration import parse_duration
from spark_cursor_source.core.subscription_type import DEFAULT_GROUP_ID_PREFIX

if TYPE_CHECKING:
    from spark_cursor_source.admin.subscriptions import Position, Subscriptions
    from spark_cursor_source.cli.arguments import Subcommands


def add_subscription(subcommands: Subcommands) -> None:
    """Adds ``cursorq subscription``."""
    parser = subcommands.add_parser(
        "subscription",
        help="create, seek, skip and delete subscriptions",
        description="Administer subscriptions, also while queries read them; needs a tracker that runs.",
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    create = _add_verb(verbs, "create", _create, "begin at a position, before any query reads it")
    seek = _add_verb(verbs, "seek", _seek, "go on from a position, back or forward", aliases=["reset"])
    skip = _add_verb(verbs, "skip", _skip, "end the next messages of each partition, or of one")
    _add_verb(verbs, "skip-all", _skip_all, "end every message that can be read now")
    delete = _add_verb(verbs, "delete", _delete, "forget it, of all its topics")
    for parser in (create, seek):
        at = parser.add_mutually_exclusive_group(required=True)
        at.add_argument("--earliest", action="store_true", help="the first record that is left")
        at.add_argument("--latest", action="store_true", help="the end of the log")
        at.add_argument("--time", type=instant_ms, help="ISO 8601 with an offset, or ms since 1970")
        at.add_argument("--offsets", type=_offsets, metavar="P=N,P=N", help="by partition: 0=17,1=40")
    skip.add_argument("--messages", type=int, required=True, metavar="N")
    skip.add_argument("--partition", type=int, metavar="P", help="default: in each partition")
    delete.add_argument("--force", action="store_true", help="also one with consumers")


def _add_verb(
    verbs: Subcommands,
    verb: str,
    run: Callable[[argparse.Namespace], int],
    what: str,
    *,
    aliases: Sequence[str] = (),
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(verb, help=what, description=what.capitalize() + ".", aliases=aliases)
    parser.add_argument("--subscription", required=True)
    if verb != "delete":
        parser.add_argument("--topic", required=True, help="the queue topic")
    add_cluster(parser)
    parser.add_argument("--group-id-prefix", default=DEFAULT_GROUP_ID_PREFIX)
    parser.add_argument("--tracker-timeout", default="60s", help="how long to wait for it (default: 60s)")
    parser.set_defaults(run=run)
    return parser


def _offsets(text: str) -> dict[int, int]:
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(number.isdecimal() and at.isdecimal() for number, _, at in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 0=17,1=40")
    return {int(number): int(at) for number, _, at in pairs}


def _open_subscriptions(arguments: argparse.Namespace) -> Subscriptions:
    from spark_cursor_source.admin.subscriptions import Subscriptions

    return Subscriptions(
        kafka_of(arguments),
        markers_topic=arguments.markers_topic,
        cursors_topic=arguments.cursors_topic,
        group_id_prefix=arguments.group_id_prefix,
        tracker_timeout_ms=parse_duration(arguments.tracker_timeout),
    )


def _position(arguments: argparse.Namespace) -> Position:
    from spark_cursor_source.admin.subscriptions import EARLIEST, LATEST, at_offsets, at_time

    if arguments.offsets is not None:
        return at_offsets(arguments.topic, arguments.offsets)
    if arguments.time is not None:
        return at_time(arguments.time)
    return EARLIEST if arguments.earliest else LATEST


def _create(arguments: argparse.Namespace) -> int:
    with _open_subscriptions(arguments) as subscriptions:
        positions = subscriptions.create(arguments.subscription, arguments.topic, _position(arguments))
    return _say_positions(arguments, "begins at", positions)


def _seek(arguments: argparse.Namespace) -> int:
    with _open_subscriptions(arguments) as subscriptions:
        positions = subscriptions.seek(arguments.subscription, arguments.topic, _position(arguments))
    return _say_positions(arguments, "goes on at", positions)


def _skip(arguments: argparse.Namespace) -> int:
    with _open_subscriptions(arguments) as subscriptions:
        positions = subscriptions.skip(
            arguments.subscription, arguments.topic, arguments.messages, partition=arguments.partition
        )
    return _say_positions(arguments, "has nothing left below", positions)


def _skip_all(arguments: argparse.Namespace) -> int:
    with _open_subscriptions(arguments) as subscriptions:
        positions = subscriptions.skip_all(arguments.subscription, arguments.topic)
    return _say_positions(arguments, "has nothing left below", positions)


def _delete(arguments: argparse.Namespace) -> int:
    with _open_subscriptions(arguments) as subscriptions:
        with_group = subscriptions.delete(arguments.subscription, force=arguments.force)
    print(
        f"{arguments.subscription} is deleted"
        + ("" if with_group else "; its consumers still have its group")
    )
    return 0


def _say_positions(arguments: argparse.Namespace, what: str, positions: dict[int, int]) -> int:
    for partition, at in sorted(positions.items()):
        print(f"{arguments.subscription} {what} {arguments.topic} partition {partition} offset {at}")
    return 0
