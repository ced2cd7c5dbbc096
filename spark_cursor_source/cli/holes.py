"""``cursorq holes``: draws the partitions of a subscription."""

from __future__ import annotations

import json as json_module
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.frame import Json
from spark_cursor_source.cli.output import console
from spark_cursor_source.errors import InvalidArgument

if TYPE_CHECKING:
    from spark_cursor_source.admin.partition_map import MapCell, PartitionMap

LETTERS = {
    "acked": ".", "leased": "L", "available": "A", "delayed": "D", "blocked": "B", "held": "H", "unread": "_"
}  # fmt: skip
_STYLES = {
    ".": "dim", "L": "bold blue", "A": "bold yellow", "D": "bold magenta", "B": "bold cyan", "H": "bold red",
    "_": "dim",
}  # fmt: skip
#: states that are shown in small letters among more of another state
_URGENT = ("held", "leased", "available", "delayed", "blocked")


@connected
def holes(
    cluster: Cluster,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="the queue topic")],
    subscription: Annotated[str, typer.Option(metavar="NAME")],
    partition: Annotated[int | None, typer.Option(metavar="P", help="default: each")] = None,
    first: Annotated[int | None, typer.Option(metavar="OFFSET", min=0, help="zoom: from here")] = None,
    end: Annotated[int | None, typer.Option(metavar="OFFSET", min=0, help="zoom: up to here")] = None,
    json: Json = False,
) -> None:
    """Draws each partition of a subscription from its mark-delete position to the end of the log.

    A letter stands for a part of the offsets, and for the state of most of them: `.` acked, `L` leased, `A`
    available, `D` delayed, `B` blocked, `H` held, `_` unread. A small letter says that a few such messages
    are among others. JSON has the exact ranges.
    """
    from spark_cursor_source.admin.partition_map import read_partition_map

    read = partial(
        read_partition_map, cluster.kafka, topic, subscription, cursors_topic=cluster.cursors_topic
    )
    maps = read(partition=partition)
    if partition is not None and not maps:
        there = ", ".join(str(one.partition) for one in read())
        raise InvalidArgument("partition", partition, f"'{subscription}' has read these partitions: {there}")
    if json:
        print(json_module.dumps([json_module.loads(one.to_json()) for one in maps], indent=2))
        return
    width = min(120, shutil.get_terminal_size().columns)
    for one in maps:
        _print(one, width, first, end)


def _print(one: PartitionMap, width: int, first: int | None, end: int | None) -> None:
    head, *strips = lines_of(one, width, first=first, end=end)
    print(head)
    if not sys.stdout.isatty():
        print("\n".join(strips))
        return
    from rich.text import Text

    for strip in strips:
        text = Text()
        for letter in strip:
            text.append(letter, _STYLES.get(letter.upper() if letter.isalpha() else letter, ""))
        console().print(text)


def lines_of(
    one: PartitionMap, width: int, *, first: int | None = None, end: int | None = None
) -> Iterator[str]:
    """Returns the drawing of a partition: a line of counts, and a strip of at most ``width`` characters."""
    first, end = max(one.first, first or 0), min(one.end, one.end if end is None else end)
    counts = zip(LETTERS, one.counts(first, end), strict=True)
    if first > end or first == end < one.end:
        yield f"{one.topic}/{one.partition}  --first and --end leave none of {one.first:,} to {one.end:,}"
        return
    told = [f"{count:,} {state}" for state, count in counts if count and first < end]
    yield f"{one.topic}/{one.partition}  {first:,} to {end:,}: {', '.join(told) or 'all messages are acked'}"
    if first < end:
        yield "".join(map(letter_of, one.cells(width, first=first, end=end)))


def letter_of(cell: MapCell) -> str:
    """Returns the letter of the state of most offsets, or a small one for a few outstanding messages."""
    present = dict(cell.present)
    urgent = next((state for state in _URGENT if state in present), None)
    if cell.state in _URGENT or urgent is None:
        return LETTERS[cell.state]
    return LETTERS[urgent].lower()
