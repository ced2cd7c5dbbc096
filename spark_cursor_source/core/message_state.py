"""State of one message of a subscription, as its cursor tells it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Literal

from spark_cursor_source.core.cursor import Available, CursorSnapshot, Delayed, HeldLetters, Lease
from spark_cursor_source.core.offsets import OffsetSet

#: settled: acknowledged, dead-lettered, expired or skipped; unread: not yet delivered
State = Literal["leased", "available", "delayed", "held", "settled", "unread"]
Order = Literal["oldest", "most_delivered"]

_Group = Lease | Delayed | Available | HeldLetters


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageState:
    """State of one message of a subscription. Times are broker times in ms since 1970."""

    subscription: str
    topic: str
    partition: int
    offset: int
    state: State
    delivery_count: int = 0
    first_delivery_ms: int | None = None  #: None: unknown, or never delivered
    since_ms: int | None = None  #: start of the lease, or of the last delivery of a held message
    #: end of the lease or of the delay, or next retry of an unwritten dead letter; None: no end
    until_ms: int | None = None
    run: str | None = None  #: run that holds the lease
    host: str | None = None  #: host of that run; None: not leased, or the run is no member of its group now
    #: of a settled message, as far as its markers tell: acked, skipped, or dead letter or expired
    outcome: str | None = None
    reason: str | None = None  #: of a held message: why it is a dead letter, and why it is held

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name, for ``json.dumps``."""
        return asdict(self)


def state_of(cursor: CursorSnapshot, offset: int) -> MessageState:
    """Returns the state of the message at an offset.

    >>> from spark_cursor_source.core.cell import Cell
    >>> lease = Lease(60_000, 2, "run", started_ms=30_000)
    >>> cursor = CursorSnapshot(
    ...     cell=Cell(subscription="s", topic="t", partition=0), read_position=9, next_marker=0,
    ...     leases=((lease, OffsetSet.of((4, 6))),))
    >>> [state_of(cursor, offset).state for offset in (3, 4, 9)]
    ['settled', 'leased', 'unread']
    >>> state_of(cursor, 5).until_ms, state_of(cursor, 5).delivery_count
    (60000, 2)
    """
    for group, offsets in _groups(cursor):
        if offset in offsets:
            return _state(cursor, offset, group)
    return _state(cursor, offset, None)


def outstanding_of(cursor: CursorSnapshot, order: Order, limit: int) -> list[MessageState]:
    """Returns ``limit`` outstanding messages of a cursor: with the lowest offsets or the most deliveries."""
    if order == "oldest":
        return [state_of(cursor, offset) for offset in islice(cursor.outstanding, limit)]
    found: list[MessageState] = []
    for group, offsets in sorted(
        _groups(cursor), key=lambda one: (-one[0].delivery_count, one[1].first or 0)
    ):
        if len(found) >= limit and group.delivery_count < found[-1].delivery_count:
            break
        found += [_state(cursor, offset, group) for offset in islice(offsets, limit)]
    return heapq.nsmallest(limit, found, key=lambda one: (-one.delivery_count, one.offset))


def rank(one: MessageState, order: Order) -> tuple[float, ...]:
    """Returns the key that sorts messages of several cursors; an unknown first delivery counts as old."""
    oldest = (one.first_delivery_ms or 0, one.offset)
    return oldest if order == "oldest" else (-one.delivery_count, *oldest)


def _groups(cursor: CursorSnapshot) -> Iterator[tuple[_Group, OffsetSet]]:
    yield from cursor.leases
    yield from cursor.delayed
    yield from cursor.available
    yield from cursor.held


def _state(cursor: CursorSnapshot, offset: int, group: _Group | None) -> MessageState:
    told: dict[str, Any]
    match group:
        case None:
            told = {"state": "settled" if offset < cursor.read_position else "unread"}
        case Lease():
            told = {
                "state": "leased",
                "since_ms": group.started_ms or None,
                "until_ms": group.deadline_ms,
                "run": group.run_id or None,
            }
        case Delayed():
            told = {"state": "delayed", "until_ms": group.due_ms}
        case Available():
            told = {"state": "available"}
        case HeldLetters():
            told = {
                "state": "held",
                "since_ms": group.last_delivery_ms or None,
                "until_ms": group.retry_ms or None,
                "reason": ": ".join(filter(None, (group.reason, group.error, group.trouble))),
            }
    if group is not None:
        told["delivery_count"] = group.delivery_count
        told["first_delivery_ms"] = cursor.first_deliveries.at(offset)
    cell = cursor.cell
    return MessageState(
        subscription=cell.subscription, topic=cell.topic, partition=cell.partition, offset=offset, **told
    )
