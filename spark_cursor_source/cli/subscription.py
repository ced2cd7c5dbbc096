"""``cursorq subscription``: create, seek, skip, expire, snapshots and delete."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.frame import Json, Yes, add_verb, new_group
from spark_cursor_source.cli.output import agree, print_json
from spark_cursor_source.core.duration import parse_duration
from spark_cursor_source.core.marker import UNDO
from spark_cursor_source.core.move_preview import effect_of
from spark_cursor_source.wire.instant_text import instant_text

if TYPE_CHECKING:
    from spark_cursor_source.admin.subscriptions import Position, Subscriptions
    from spark_cursor_source.core.move_preview import MovePreview

VERBS = new_group(
    "Creates, seeks, skips, expires, saves, restores, clones and deletes subscriptions, also while queries "
    "read them; needs a tracker."
)


def instant(text: str) -> int:
    """Parses a time of an operator as milliseconds since 1970."""
    from argparse import ArgumentTypeError

    from spark_cursor_source.admin.instants import instant_ms

    try:
        return instant_ms(str(text))
    except ArgumentTypeError as why:
        raise typer.BadParameter(str(why)) from None


def _offsets(text: str) -> dict[int, int]:
    from argparse import ArgumentTypeError

    from spark_cursor_source.admin.instants import offsets_by_partition

    try:
        return offsets_by_partition(str(text))
    except ArgumentTypeError as why:
        raise typer.BadParameter(str(why)) from None


Subscription = Annotated[str, typer.Option("--subscription", metavar="NAME")]
Topic = Annotated[str, typer.Option("--topic", metavar="NAME", help="the queue topic")]
Timeout = Annotated[
    str, typer.Option("--tracker-timeout", metavar="TIME", help="how long to wait for a tracker")
]
Earliest = Annotated[bool, typer.Option("--earliest", help="the first record that is left")]
Latest = Annotated[bool, typer.Option("--latest", help="the end of the log")]
Time = Annotated[
    Any,
    typer.Option("--time", parser=instant, metavar="TIME", help="ISO 8601 with an offset, or ms since 1970"),
]
Offsets = Annotated[
    Any, typer.Option("--offsets", parser=_offsets, metavar="P=N,P=N", help="by partition: 0=17,1=40")
]

DryRun = Annotated[bool, typer.Option("--dry-run", help="only say what it would do")]

_Given = tuple[bool, bool, int | None, dict[int, int] | None]
_POSITIONS = ("--earliest", "--latest", "--time", "--offsets")


@connected
def create(
    cluster: Cluster,
    subscription: Subscription,
    topic: Topic,
    earliest: Earliest = False,
    latest: Latest = False,
    time: Time = None,
    offsets: Offsets = None,
    tracker_timeout: Timeout = "60s",
    json: Json = False,
) -> None:
    """Begins at a position, before any query reads it."""
    at = _position(topic, (earliest, latest, time, offsets))
    with _open(cluster, tracker_timeout) as subscriptions:
        positions = subscriptions.create(subscription, topic, at)
    _say_positions(subscription, topic, "begins at", positions, json)


@connected
def seek(
    cluster: Cluster,
    subscription: Subscription,
    topic: Topic,
    earliest: Earliest = False,
    latest: Latest = False,
    time: Time = None,
    offsets: Offsets = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    tracker_timeout: Timeout = "60s",
    json: Json = False,
) -> None:
    """Goes on from a position, back or forward."""
    to = _position(topic, (earliest, latest, time, offsets))
    with _open(cluster, tracker_timeout) as subscriptions:
        preview = subscriptions.preview_seek(subscription, topic, to)
        if not _agreed(subscription, preview, dry_run=dry_run, yes=yes, json=json):
            return
        positions = subscriptions.seek(subscription, topic, to)
    _say_positions(subscription, topic, "goes on at", positions, json)


@connected
def skip(
    cluster: Cluster,
    subscription: Subscription,
    topic: Topic,
    messages: Annotated[int, typer.Option(metavar="N")],
    partition: Annotated[int | None, typer.Option(metavar="P", help="default: in each partition")] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    tracker_timeout: Timeout = "60s",
    json: Json = False,
) -> None:
    """Ends the next messages of each partition, or of one.

    The output has the offset that each partition has reached. A skip that is repeated ends N more. After
    Ctrl-C or an error, `cursorq audit` shows whether it is stored, and `cursorq subscription undo` takes
    it back.
    """
    with _open(cluster, tracker_timeout) as subscriptions:
        preview = subscriptions.preview_skip(subscription, topic, messages, partition=partition)
        if not _agreed(subscription, preview, dry_run=dry_run, yes=yes, json=json):
            return
        positions = subscriptions.skip(subscription, topic, messages, partition=partition)
    _say_positions(subscription, topic, "has nothing left below", positions, json)


@connected
def skip_all(
    cluster: Cluster,
    subscription: Subscription,
    topic: Topic,
    dry_run: DryRun = False,
    yes: Yes = False,
    tracker_timeout: Timeout = "60s",
    json: Json = False,
) -> None:
    """Ends every message that can be read now."""
    with _open(cluster, tracker_timeout) as subscriptions:
        preview = subscriptions.preview_skip(subscription, topic)
        if not _agreed(subscription, preview, dry_run=dry_run, yes=yes, json=json):
            return
        positions = subscriptions.skip_all(subscription, topic)
    _say_positions(subscription, topic, "has nothing left below", positions, json)


@connected
def expire(
    cluster: Cluster,
    subscription: Subscription,
    topic: Topic,
    before: Annotated[
        Any,
        typer.Option(
            "--before",
            parser=instant,
            metavar="TIME",
            help="messages with an earlier timestamp: ISO 8601 with an offset, or ms since 1970",
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="such as 2d, before the last marker"),
    ] = None,
    partition: Annotated[int | None, typer.Option(metavar="P", help="default: in each partition")] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    tracker_timeout: Timeout = "60s",
    json: Json = False,
) -> None:
    """Ends the messages of each partition, or of one, that are older than a time.

    The timestamps of the messages count. An age counts from the last marker, by the brokers' clock. The
    messages count as acked, and no dead letter is written.
    """
    if (before is None) == (older_than is None):
        raise typer.BadParameter("give one of --before and --older-than")
    with _open(cluster, tracker_timeout) as subscriptions:
        before_ms: int = _before_ms(subscriptions, older_than) if before is None else before
        preview = subscriptions.preview_expire(subscription, topic, before_ms=before_ms, partition=partition)
        what = f", messages before {instant_text(before_ms)}"
        if not _agreed(subscription, preview, dry_run=dry_run, yes=yes, json=json, what=what):
            return
        positions = subscriptions.expire(subscription, topic, before_ms=before_ms, partition=partition)
    if not positions and not json:
        print(f"{subscription} has no message on {topic} before {instant_text(before_ms)}")
    _say_positions(subscription, topic, "has nothing left below", positions, json)


Name = Annotated[str, typer.Option("--name", metavar="NAME", help="the snapshot")]


@connected
def snapshot(
    cluster: Cluster,
    subscription: Subscription,
    topic: Topic,
    name: Name,
    forget: Annotated[bool, typer.Option("--forget", help="remove the snapshot instead")] = False,
    tracker_timeout: Timeout = "60s",
    json: Json = False,
) -> None:
    """Saves its state under a name, with the ack of each message."""
    with _open(cluster, tracker_timeout) as subscriptions:
        if forget:
            subscriptions.forget_snapshot(subscription, topic, name)
            positions: dict[int, int] = {}
        else:
            positions = subscriptions.snapshot(subscription, topic, name)
    if forget and not json:
        print(f"{subscription} has no snapshot '{name}' of {topic} any more")
    _say_positions(subscription, topic, f"is saved as '{name}' at", positions, json)


@connected
def snapshots(
    cluster: Cluster,
    subscription: Subscription,
    topic: Annotated[str | None, typer.Option("--topic", metavar="NAME", help="default: all")] = None,
    tracker_timeout: Timeout = "60s",
    json: Json = False,
) -> None:
    """Lists its snapshots. The snapshot undo is the state before the last seek, skip, expiry or restore."""
    with _open(cluster, tracker_timeout) as subscriptions:
        found = subscriptions.snapshots(subscription, topic)
    if json:
        print_json([asdict(one) for one in found])
        return
    for one in found:
        at = instant_text(one.at_ms)
        print(f"{one.topic} '{one.name}' {at}: {one.outstanding:,} outstanding, read up to {one.positions}")
    if not found:
        print(f"{subscription} has no snapshot")


@connected
def restore(
    cluster: Cluster,
    subscription: Subscription,
    topic: Topic,
    name: Name,
    dry_run: DryRun = False,
    yes: Yes = False,
    tracker_timeout: Timeout = "60s",
    json: Json = False,
) -> None:
    """Returns to the state of a snapshot."""
    _return_to(_open(cluster, tracker_timeout), subscription, topic, name, dry_run, yes, json)


@connected
def undo(
    cluster: Cluster,
    subscription: Subscription,
    topic: Topic,
    dry_run: DryRun = False,
    yes: Yes = False,
    tracker_timeout: Timeout = "60s",
    json: Json = False,
) -> None:
    """Returns to the state before the last seek, skip, expiry or restore. An undo can be undone, too."""
    _return_to(_open(cluster, tracker_timeout), subscription, topic, UNDO, dry_run, yes, json)


@connected
def clone(
    cluster: Cluster,
    subscription: Subscription,
    topic: Topic,
    to: Annotated[str, typer.Option("--to", metavar="NAME", help="the new subscription")],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="a snapshot; default: the present state")
    ] = None,
    tracker_timeout: Timeout = "60s",
    json: Json = False,
) -> None:
    """Creates another subscription with its state, or with that of a snapshot."""
    with _open(cluster, tracker_timeout) as subscriptions:
        positions = subscriptions.clone(subscription, topic, to, snapshot=name)
    _say_positions(to, topic, "begins at", positions, json)


@connected
def delete(
    cluster: Cluster,
    subscription: Subscription,
    force: Annotated[bool, typer.Option("--force", help="also one with consumers")] = False,
    tracker_timeout: Timeout = "60s",
    json: Json = False,
) -> None:
    """Forgets it, of all its topics."""
    with _open(cluster, tracker_timeout) as subscriptions:
        with_group = subscriptions.delete(subscription, force=force)
    if json:
        print_json({"subscription": subscription, "group_deleted": with_group})
    else:
        print(f"{subscription} is deleted" + ("" if with_group else "; its consumers still have its group"))


for _verb in (create, seek, skip, skip_all, expire, snapshot, snapshots, restore, undo, clone, delete):
    add_verb(VERBS, _verb)
add_verb(VERBS, seek, name="reset", hidden=True)  # as pulsar-admin calls it


def _open(cluster: Cluster, timeout: str) -> Subscriptions:
    from spark_cursor_source.admin.subscriptions import Subscriptions

    return Subscriptions(
        cluster.kafka,
        **cluster.tracker_topics,
        group_id_prefix=cluster.group_id_prefix,
        tracker_timeout_ms=parse_duration(timeout),
    )


def _return_to(
    opened: Subscriptions, subscription: str, topic: str, name: str, dry_run: bool, yes: bool, json: bool
) -> None:
    with opened as subscriptions:
        preview = subscriptions.preview_restore(subscription, topic, name)
        if not _agreed(subscription, preview, dry_run=dry_run, yes=yes, json=json):
            return
        positions = subscriptions.restore(subscription, topic, name)
    _say_positions(subscription, topic, "goes on at", positions, json)


def _before_ms(subscriptions: Subscriptions, older_than: str | None) -> int:
    latest_ms = subscriptions.latest_marker_ms()
    if latest_ms is None:
        raise typer.BadParameter("there is no marker yet; give --before", param_hint="'--older-than'")
    return latest_ms - parse_duration(older_than or "")


def _position(topic: str, given: _Given) -> Position:
    from spark_cursor_source.admin.subscriptions import EARLIEST, LATEST, at_offsets, at_time

    chosen = [name for name, value in zip(_POSITIONS, given, strict=True) if value not in (None, False)]
    if not chosen:
        raise typer.BadParameter(f"one of the arguments {' '.join(_POSITIONS)} is required")
    if len(chosen) > 1:
        raise typer.BadParameter(f"not allowed with argument {chosen[0]}", param_hint=f"'{chosen[1]}'")
    earliest, _, time_ms, offsets = given
    if offsets is not None:
        return at_offsets(topic, offsets)
    if time_ms is not None:
        return at_time(time_ms)
    return EARLIEST if earliest else LATEST


def _agreed(
    subscription: str,
    preview: Sequence[MovePreview],
    *,
    dry_run: bool,
    yes: bool,
    json: bool,
    what: str = "",
) -> bool:
    """Says what the move will do, and asks on a terminal. False: it is not to be done."""
    if dry_run and json:
        print_json({"subscription": subscription, "preview": [one.to_json() for one in preview]})
    elif dry_run:
        print(text_of(subscription + what, preview))
    else:
        print(text_of(subscription + what, preview), file=sys.stderr)
        agree("Go on?", yes=yes)
    return not dry_run


def text_of(subscription: str, preview: Sequence[MovePreview]) -> str:
    """Returns one line about the effect of a move on all its partitions."""
    return f"{subscription}: {effect_of(preview)}"


def _say_positions(subscription: str, topic: str, what: str, positions: dict[int, int], json: bool) -> None:
    if json:
        print_json({"subscription": subscription, "topic": topic, "positions": positions})
        return
    for partition, at in sorted(positions.items()):
        print(f"{subscription} {what} {topic} partition {partition} offset {at}")
