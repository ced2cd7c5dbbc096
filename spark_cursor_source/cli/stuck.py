"""``cursorq stuck``: shows the messages that hold a queue up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.frame import Json
from spark_cursor_source.cli.output import age, print_json, print_table

if TYPE_CHECKING:
    from spark_cursor_source.core.message_state import MessageState

COLUMNS = ("message", "subscription", "state", "deliveries", "first", "until", "host", "last error")


@connected
def stuck(
    cluster: Cluster,
    topic: Annotated[str | None, typer.Option(help="default: all")] = None,
    subscription: Annotated[str | None, typer.Option(help="default: all")] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="messages in each list", min=1)] = 10,
    json: Json = False,
) -> None:
    """Shows the oldest and the most delivered messages, who holds them, and their last error.

    `first` is the time since the first delivery, and `until` the time that is left of the lease or the delay.
    Both are measured at the last marker, by the brokers' clock. `cursorq message` shows the history of one.
    With ordering=key, a last column shows which message waits for which.
    """
    from spark_cursor_source.admin.stuck import read_stuck

    found = read_stuck(
        cluster.kafka,
        topic=topic,
        subscription=subscription,
        limit=limit,
        markers_topic=cluster.markers_topic,
        cursors_topic=cluster.cursors_topic,
        group_id_prefix=cluster.group_id_prefix,
    )
    if json:
        print_json(found.to_json())
    elif not found.oldest:
        print("no message is outstanding")
    else:
        print("oldest")
        _print(found.oldest, found.at_ms)
        print("\nmost delivered" if found.most_delivered else "\nno message was delivered more than once")
        if found.most_delivered:
            _print(found.most_delivered, found.at_ms)


def id_of(one: MessageState) -> str:
    """Returns the id of a message, as ``cursorq message`` takes it."""
    return f"{one.topic}/{one.partition}/{one.offset}"


def _print(messages: Iterable[MessageState], at_ms: int | None) -> None:
    messages = tuple(messages)
    ordered = any(one.key_order for one in messages)
    print_table(
        (*COLUMNS, "order of the key") if ordered else COLUMNS,
        [
            (
                id_of(one),
                one.subscription,
                one.state,
                one.delivery_count,
                _between(one.first_delivery_ms, at_ms),
                _between(at_ms, one.until_ms),
                one.host or (one.run or "-")[:8],
                one.reason,
                *([one.key_order or "-"] if ordered else ()),
            )
            for one in messages
        ],
    )


def _between(start_ms: int | None, end_ms: int | None) -> str:
    return "-" if start_ms is None or end_ms is None else age(end_ms - start_ms)
