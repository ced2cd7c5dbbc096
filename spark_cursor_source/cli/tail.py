"""``cursorq tail``: prints the messages at the end of a queue with their states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.decoders import (
    AvroSchema,
    ProtobufDescriptor,
    ProtobufMessage,
    decoder_of,
)
from spark_cursor_source.cli.frame import Follow
from spark_cursor_source.cli.masks import Mask, MaskField, mask_of
from spark_cursor_source.cli.output import plain, print_line, short_time, until_interrupted
from spark_cursor_source.core.counted import counted

if TYPE_CHECKING:
    from spark_cursor_source.admin.message_tail import TailedMessage

_KEY, _VALUE = 40, 200  # characters that are shown


@connected
def tail(
    cluster: Cluster,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="the queue topic")],
    subscription: Annotated[str | None, typer.Option(metavar="NAME", help="states of this one only")] = None,
    last: Annotated[int, typer.Option(metavar="N", min=0, help="how many messages")] = 10,
    payload: Annotated[bool, typer.Option("--payload", help="show the values too")] = False,
    avro_schema: AvroSchema = None,
    protobuf_descriptor: ProtobufDescriptor = None,
    protobuf_message: ProtobufMessage = None,
    mask_field: MaskField = None,
    mask: Mask = False,
    follow: Follow = False,
    json: Annotated[bool, typer.Option("--json", help="print a line of JSON for each")] = False,
) -> None:
    """Prints the last messages of a queue, each with its state in each subscription.

    Nothing is leased or moved. See the whole life of one with `cursorq message`.
    """
    from spark_cursor_source.admin.message_tail import read_tail
    from spark_cursor_source.admin.outstanding import read_cursors

    hides = mask_of(mask_field, mask)
    decoder = decoder_of(avro_schema, protobuf_descriptor, protobuf_message)
    if subscription is not None and not follow:  # one that is followed may begin later
        read_cursors(cluster.kafka, cluster.cursors_topic, topic=topic, subscription=subscription)
    read = read_tail(
        cluster.kafka,
        topic,
        subscription=subscription,
        last=last,
        payload=payload,
        follow=follow,
        cursors_topic=cluster.cursors_topic,
    )
    found = (one.decoded(decoder).masked(hides) for one in read)
    if follow:
        with until_interrupted():
            for one in found:
                _print(one, json)
        return
    kept = sorted(found, key=lambda one: (one.timestamp_ms or 0, one.partition, one.offset))
    for one in kept[len(kept) - min(last, len(kept)) :]:
        _print(one, json)


def _print(one: TailedMessage, json: bool) -> None:
    if json:
        print_line(one.to_json())
    else:
        print(line_of(one), flush=True)


def line_of(one: TailedMessage) -> str:
    """Returns a message as one line: time, id, states, size, key and value."""
    told = one.to_json()
    states = " ".join(
        f"{state.subscription}={state.state}" + (f"({state.delivery_count})" if state.delivery_count else "")
        for state in one.states
    )
    key = "" if told["key"] is None else f"  key {_cut(told['key'], _KEY)!r}"
    value = "" if told["value"] is None else f"  {_cut(told['value'], _VALUE)}"
    value += "" if one.value_note is None else f"  ({plain(one.value_note)})"
    place = f"{one.topic}/{one.partition}/{one.offset}"
    size = counted(one.size, "byte")
    return f"{short_time(one.timestamp_ms)}  {place}  {states or 'unread'}  {size}{key}{value}"


def _cut(text: str, most: int) -> str:
    return plain(text) if len(text) <= most else f"{plain(text[:most])}…"
