"""``cursorq dead``: lists, shows, redrives and deletes dead letters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.decoders import (
    AvroSchema,
    ProtobufDescriptor,
    ProtobufMessage,
    decoder_of,
)
from spark_cursor_source.cli.frame import Json, Yes, add_verb, new_group, not_empty
from spark_cursor_source.cli.masks import Mask, MaskField, mask_of
from spark_cursor_source.cli.output import agree, instant, plain, print_json, print_table
from spark_cursor_source.cli.pause import Author
from spark_cursor_source.cli.subscription import instant as parse_instant

if TYPE_CHECKING:
    from spark_cursor_source.admin import DeadLetterFilter, DeadLetterRecord

VERBS = new_group("Lists, shows, redrives and deletes dead letters.")

_SHOWN = 80  # characters of an error in a list


def _position(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition("/")
    if not partition.isdecimal() or not offset.isdecimal():
        raise typer.BadParameter(f"{text!r} is not of the form PARTITION/OFFSET, such as 0/17")
    return int(partition), int(offset)


DeadTopic = Annotated[str, typer.Argument(metavar="TOPIC", help="the dead-letter topic: orders-billing-DLQ")]
# An empty pattern is found everywhere, so it would select all dead letters.
Reason = Annotated[
    Any,
    typer.Option(
        parser=not_empty, metavar="REGEX", help="max-deliveries, rejected or expired, or a part of it"
    ),
]
Error = Annotated[Any, typer.Option(parser=not_empty, metavar="REGEX", help="found in the error")]
Template = Annotated[
    str | None, typer.Option(metavar="TEXT", help="the error as 'cursorq dead list --groups' shows it")
]
Subscription = Annotated[str, typer.Option(metavar="NAME", help="which gave the messages up; *: all")]
Since = Annotated[
    Any, typer.Option(parser=parse_instant, metavar="TIME", help="messages produced then or later")
]
Until = Annotated[Any, typer.Option(parser=parse_instant, metavar="TIME", help="messages produced before")]
At = Annotated[
    list[Any] | None,
    typer.Option(parser=_position, metavar="P/N", help="partition/offset of the dead letter, repeated"),
]
DryRun = Annotated[bool, typer.Option(help="only say what would be done")]


@connected
def list_(
    cluster: Cluster,
    topic: DeadTopic,
    groups: Annotated[bool, typer.Option("--groups", help="count them by reason and error")] = False,
    all: Annotated[bool, typer.Option("--all", help="also those that were redriven or deleted")] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="the first N")] = 100,
    reason: Reason = None,
    error: Error = None,
    template: Template = None,
    subscription: Subscription = "*",
    since: Since = None,
    until: Until = None,
    json: Json = False,
) -> None:
    """Lists the dead letters of a topic that wait, or counts them by reason and error.

    In a group, numbers, ids, times and quoted texts of the errors are masked.
    """
    only = _filter(reason, error, template, subscription, since, until, None)
    if groups:
        _list_groups(cluster, topic, only, json)
        return
    from spark_cursor_source.admin import letter_to_json, read_dead_letters

    letters = read_dead_letters(
        cluster.kafka, topic, only, limit=limit, settled=all, cursors_topic=cluster.cursors_topic
    )
    if json:
        print_json([letter_to_json(one) for one in letters])
    elif not letters:
        print(f"no dead letters of {topic} wait")
    else:
        print_table(
            ("at", "message", "subscription", "reason", "deliveries", "written", "state", "error"),
            [_row(one) for one in letters],
        )


def _list_groups(cluster: Cluster, topic: str, only: DeadLetterFilter, json: bool) -> None:
    from json import loads

    from spark_cursor_source.admin import group_dead_letters

    found = group_dead_letters(cluster.kafka, topic, only, cursors_topic=cluster.cursors_topic)
    if json:
        print_json([loads(one.to_json()) for one in found])
    elif not found:
        print(f"{topic} has no dead letters")
    else:
        print_table(
            ("waiting", "redriven", "subscription", "reason", "last", "example", "error"),
            [
                (
                    one.waiting,
                    one.redriven,
                    one.subscription,
                    one.reason,
                    instant(one.last_ms),
                    f"{one.sample.partition}/{one.sample.offset}",
                    plain(one.template) or "-",
                )
                for one in found
            ],
        )


@connected
def show(
    cluster: Cluster,
    topic: DeadTopic,
    at: Annotated[
        Any, typer.Argument(parser=_position, metavar="P/N", help="partition/offset, as in the list")
    ],
    payload: Annotated[bool, typer.Option("--payload", help="key, value and headers too")] = False,
    avro_schema: AvroSchema = None,
    protobuf_descriptor: ProtobufDescriptor = None,
    protobuf_message: ProtobufMessage = None,
    mask_field: MaskField = None,
    mask: Mask = False,
    json: Json = False,
) -> None:
    """Shows one dead letter: where it came from, why and when it was given up, and its content if asked."""
    from spark_cursor_source.admin import letter_to_json, read_dead_letter

    decoder = decoder_of(avro_schema, protobuf_descriptor, protobuf_message)
    letter = read_dead_letter(cluster.kafka, topic, *at, cursors_topic=cluster.cursors_topic)
    if letter is None:
        print(f"cursorq: {topic} has no dead letter at {at[0]}/{at[1]}", file=sys.stderr)
        raise typer.Exit(1)
    hides = mask_of(mask_field, mask)
    fields = letter_to_json(letter, payload=payload, mask=hides, decoder=decoder)
    if json:
        print_json(fields)
        return
    for name, value in fields.items():
        text = instant(value) if name.endswith("_ms") else "-" if value in (None, "") else str(value)
        print(f"{name.removesuffix('_ms'):<18}{plain(text)}")


@connected
def redrive(
    cluster: Cluster,
    topic: DeadTopic,
    reason: Reason = None,
    error: Error = None,
    template: Template = None,
    subscription: Subscription = "*",
    since: Since = None,
    until: Until = None,
    at: At = None,
    rate: Annotated[float | None, typer.Option(metavar="N", min=0.001, help="messages a second")] = None,
    to_subscription: Annotated[
        str | None, typer.Option(metavar="NAME", help="deliver again to this subscription alone, in place")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    author: Author = None,
    json: Json = False,
) -> None:
    """Appends dead letters to the queue topics that they came from.

    Every subscription of the queue topic receives a new message; with --to-subscription, only that one,
    and nothing is appended. Each dead letter is redriven once; an interrupted redrive goes on where it
    stopped.
    """
    from dataclasses import asdict

    from spark_cursor_source.admin.redrive import redrive as run

    only = _filter(reason, error, template, subscription, since, until, at)
    names: dict[str, Any] = {"to_subscription": to_subscription, "rate": rate, **cluster.tracker_topics}
    _agree(lambda: run(cluster.kafka, topic, only, dry_run=True, **names), dry_run=dry_run, yes=yes)
    done = run(cluster.kafka, topic, only, dry_run=dry_run, author=author, **names)
    print_json(asdict(done)) if json else print(done)


@connected
def delete(
    cluster: Cluster,
    topic: DeadTopic,
    reason: Reason = None,
    error: Error = None,
    template: Template = None,
    subscription: Subscription = "*",
    since: Since = None,
    until: Until = None,
    at: At = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="all dead letters of the topic, without another option")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    author: Author = None,
    json: Json = False,
) -> None:
    """Deletes dead letters: they are neither listed nor redriven any more.

    Kafka removes records from the beginning of a partition only. Records behind a dead letter that is kept
    stay in the log until it is deleted too.
    """
    from dataclasses import asdict

    from spark_cursor_source.admin import delete_dead_letters

    only = _filter(reason, error, template, subscription, since, until, at)
    if only.selects_all != everything:
        raise typer.BadParameter("give options that select dead letters, or --everything alone")
    names: dict[str, Any] = {"everything": everything, **cluster.tracker_topics}
    _agree(
        lambda: delete_dead_letters(cluster.kafka, topic, only, dry_run=True, **names),
        dry_run=dry_run,
        yes=yes,
    )
    done = delete_dead_letters(cluster.kafka, topic, only, dry_run=dry_run, author=author, **names)
    print_json(asdict(done)) if json else print(done)


def _agree(preview: Callable[[], object], *, dry_run: bool, yes: bool) -> None:
    """Shows on a terminal what would be done, and asks. A script is not asked and pays for no preview."""
    if not (dry_run or yes) and sys.stdin.isatty() and sys.stdout.isatty():
        agree(f"{preview()}. Go on?", yes=False)


def _filter(
    reason: str | None,
    error: str | None,
    template: str | None,
    subscription: str,
    since: int | None,
    until: int | None,
    at: list[Any] | None,
) -> DeadLetterFilter:
    from spark_cursor_source.admin import DeadLetterFilter

    only = DeadLetterFilter(reason=reason or "", error=error or "", since_ms=since, until_ms=until)
    positions = frozenset(at) if at else None
    return replace(only, template=template, subscription=subscription, at=positions)


def _row(letter: DeadLetterRecord) -> tuple[object, ...]:
    error = plain(letter.error)
    return (
        f"{letter.partition}/{letter.offset}",
        f"{letter.origin_topic}/{letter.origin_partition}/{letter.origin_offset}",
        letter.subscription,
        letter.reason,
        letter.delivery_count,
        instant(letter.written_ms),
        letter.state,
        error if len(error) <= _SHOWN else f"{error[: _SHOWN - 1]}…",
    )


add_verb(VERBS, list_, name="list")
for _verb in (show, redrive, delete):
    add_verb(VERBS, _verb)
