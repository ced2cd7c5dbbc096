"""``cursorq message``: shows one message, where it is now, and its whole history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.decoders import (
    AvroSchema,
    ProtobufDescriptor,
    ProtobufMessage,
    decoder_of,
)
from spark_cursor_source.cli.frame import Json
from spark_cursor_source.cli.masks import Mask, MaskField, mask_of
from spark_cursor_source.cli.output import age, instant, plain, print_json, print_table, short_time
from spark_cursor_source.core.counted import counted

if TYPE_CHECKING:
    from spark_cursor_source.admin.message_event import MessageEvent
    from spark_cursor_source.admin.message_history import MessageHistory
    from spark_cursor_source.core.message_state import MessageState

MOST_SHOWN = 2_000  # characters of a value on a terminal


class MessageId(NamedTuple):
    """Place of a message."""

    topic: str
    partition: int
    offset: int


def message_id(text: str) -> MessageId:
    """Parses an id such as ``orders/0/17``."""
    topic, partition, offset = ([*str(text).rsplit("/", 2), "", ""])[:3]
    if not (topic and partition.isdecimal() and offset.isdecimal()):
        raise typer.BadParameter(f"{text!r} is not of the form TOPIC/PARTITION/OFFSET, such as orders/0/17")
    return MessageId(topic, int(partition), int(offset))


@connected
def message(
    cluster: Cluster,
    id: Annotated[
        MessageId, typer.Argument(parser=message_id, metavar="ID", help="TOPIC/PARTITION/OFFSET: orders/0/17")
    ],
    subscription: Annotated[str | None, typer.Option(help="default: all that read it")] = None,
    payload: Annotated[bool, typer.Option("--payload", help="show the value too")] = False,
    avro_schema: AvroSchema = None,
    protobuf_descriptor: ProtobufDescriptor = None,
    protobuf_message: ProtobufMessage = None,
    mask_field: MaskField = None,
    mask: Mask = False,
    json: Json = False,
) -> None:
    """Shows one message: where it is now, and every marker about it.

    The history goes as far back as the markers topic. LEASE_EXPIRED is no marker: the next START shows that
    the lease had ended.
    """
    from spark_cursor_source.admin.message_history import read_message_history

    decoder = decoder_of(avro_schema, protobuf_descriptor, protobuf_message)
    history = read_message_history(
        cluster.kafka,
        id.topic,
        id.partition,
        id.offset,
        subscription=subscription,
        payload=payload,
        markers_topic=cluster.markers_topic,
        cursors_topic=cluster.cursors_topic,
        group_id_prefix=cluster.group_id_prefix,
    )
    history = history.decoded(decoder).masked(mask_of(mask_field, mask))
    if json:
        print_json(history.to_json())
        return
    for line in _head(history, payload=payload):
        print(line)
    for title, events in _by_subscription(history):
        print(f"\n{title}")
        if events:
            columns = ("time (UTC)", "event", "delivery", "run", "host", "details")
            print_table(columns, [_event(same) for same in _alike(events)])
        else:
            print("no marker is about this message, or the markers topic has forgotten it")


def _by_subscription(history: MessageHistory) -> Iterator[tuple[str, list[MessageEvent]]]:
    """Yields a line about each subscription, and the events of it."""
    titles: dict[str, list[str]] = {}
    for state in history.states:
        titles.setdefault(state.subscription, []).append(_told(state))
    for event in history.events:  # a keep-alive of version 1 alone tells no state
        titles.setdefault(event.subscription, [event.subscription])
    for subscription, lines in titles.items():
        yield "\n".join(lines), [one for one in history.events if one.subscription == subscription]


def _head(history: MessageHistory, *, payload: bool) -> Iterator[str]:
    from spark_cursor_source.admin.message_history import text_of

    place = f"{history.topic}/{history.partition}/{history.offset}"
    if not history.found:
        yield f"{place} is no message any more: retention or compaction has removed it, or it never was one"
        return
    key = "no key" if history.key is None else f"key {plain(text_of(history.key) or '')!r}"
    yield f"{place}, {instant(history.timestamp_ms)}, {counted(history.size or 0, 'byte')}, {key}"
    if history.rescued:
        yield "  retention has deleted this message from its topic, and the rescue topic has it"
    for name, value in history.headers:
        yield f"  {plain(name)}: {plain(text_of(value) or '')}"
    if payload:
        shown = "null" if history.value is None else plain(text_of(history.value) or "")
        cut = f"… ({len(shown):,} characters)" if len(shown) > MOST_SHOWN else ""
        note = "" if history.value_note is None else f" ({plain(history.value_note)})"
        yield f"value{note}: {shown[:MOST_SHOWN]}{cut}"


def _told(one: MessageState) -> str:
    """Returns a line about the state of the message in one subscription."""
    told = f"{one.subscription}: {one.state}"
    if one.outcome is not None:
        told += f" ({one.outcome})"
    if one.until_ms is not None:
        told += f" until {instant(one.until_ms)}"
    if one.run is not None:
        told += f" by run {one.run}" + (f" on {one.host}" if one.host else ", which is no member now")
    if one.delivery_count:
        told += f", delivery {one.delivery_count}"
    if one.key_order:
        told += f", {one.key_order}"
    return told + (f": {plain(one.reason)}" if one.reason else "")


def _alike(events: Iterable[MessageEvent]) -> Iterator[list[MessageEvent]]:
    """Yields the events, with consecutive ones of the same kind, delivery, run and blocker together."""
    for _, same in groupby(events, key=lambda one: (one.kind, one.delivery_count, one.run, one.behind)):
        yield list(same)


def _event(same: Sequence[MessageEvent]) -> tuple[object, ...]:
    first, last = same[0], same[-1]
    details = [f"{len(same)} times, last at {short_time(last.at_ms)}"] if len(same) > 1 else []
    spans = (("lease", last.lease_ms), ("delay", last.delay_ms))
    details += [f"{name} {age(ms)}" for name, ms in spans if ms is not None]
    details += [] if last.behind is None else [f"waits for offset {last.behind:,}"]
    details += [last.reason] if last.reason else []
    run = None if first.run is None else first.run[:8]
    return short_time(first.at_ms), first.kind, first.delivery_count, run, first.host, ", ".join(details)
