"""``cursorq produce``: sends messages to a queue."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.frame import Json
from spark_cursor_source.cli.output import print_json, with_progress
from spark_cursor_source.core.counted import counted
from spark_cursor_source.core.names import MAX_PARTITIONS

_Message = tuple[bytes | None, bytes | None]


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = str(text).partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"'{text}' is not of the form NAME=VALUE", param_hint="'--header'")
    return name, os.fsencode(value)


@connected
def produce(
    cluster: Cluster,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="created if the broker may create it")],
    values: Annotated[
        list[str] | None, typer.Argument(metavar="[VALUE]...", help="default: the lines of stdin")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="of each message")] = None,
    headers: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="repeated")
    ] = None,
    deliver_after: Annotated[
        str | None, typer.Option(metavar="TIME", help="deliver them later, for example after 30s")
    ] = None,
    messages: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="send N numbered examples instead")
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            metavar="P", min=1, max=MAX_PARTITIONS, help="create the topic with P, if it is missing"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Sends messages to a queue: the given values, the lines of stdin, or examples.

    Ends when the brokers have confirmed all of them.
    """
    from spark_cursor_source.core.duration import parse_duration
    from spark_cursor_source.devkit.messages import ensure_topic, send_messages
    from spark_cursor_source.options.arguments import check_topic
    from spark_cursor_source.wire.deliver_at import DELIVER_AFTER

    check_topic("topic", topic)
    given: list[tuple[str, str | bytes | None]] = [_header(one) for one in headers or ()]
    if deliver_after is not None:
        parse_duration(deliver_after)  # refused here, and not by a reader later
        given.append((DELIVER_AFTER, deliver_after.encode()))
    own_key = None if key is None else os.fsencode(key)
    sent: Iterable[_Message]
    if messages:
        sent = _examples(own_key, messages)
    else:
        # A shell may pass bytes that are not UTF-8. os.fsencode returns the same bytes.
        sent = ((own_key, value) for value in (map(os.fsencode, values) if values else _stdin()))
    if partitions is not None:
        ensure_topic(cluster.kafka, topic, partitions=partitions)
    count = send_messages(cluster.kafka, topic, with_progress(sent, messages, "sending"), headers=given)
    if json:
        print_json({"topic": topic, "messages": count})
    else:
        print(f"{counted(count, 'message')} in {topic}")


def _stdin() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _examples(key: bytes | None, count: int) -> Iterator[_Message]:
    for number in range(count):
        yield key or b"key-%d" % (number % 50), b'{"number": %d}' % number
