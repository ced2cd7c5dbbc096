"""State of one message of a subscription, as its cursor tells it."""

from __future__ import annotations

import heapq
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple

from spark_cursor_source.core.cursor import Available, CursorSnapshot, Delayed, HeldLetters, Lease
from spark_cursor_source.core.offsets import OffsetSet

#: settled: acknowledged, dead-lettered, expired or skipped; unread: not yet delivered
State = Literal["leased", "available", "delayed", "blocked", "held", "settled", "unread"]
Order = Literal["oldest", "most_delivered"]


class _Wait(NamedTuple):
    """Attributes of a blocked message."""

    behind: int
    delivery_count: int


_Group = Lease | Delayed | Available | HeldLetters | _Wait


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
    behind: int | None = None  #: of a blocked message: offset of the message that it waits for
    blocks: int = 0  #: number of messages that wait for this one

    @property
    def key_order(self) -> str:
        """Words about the order of its key: what it waits for, and how many wait for it; empty: neither."""
        told = [] if self.behind is None else [f"waits for offset {self.behind:,}"]
        if self.blocks:
            told.append(f"blocks {self.blocks:,} message{'' if self.blocks == 1 else 's'}")
        return ", ".join(told)

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
    blocks = {offset: cursor.blocked.waiting_for(offset)}
    return _state(cursor, offset, _group_of(cursor, offset), blocks)


def outstanding_of(cursor: CursorSnapshot, order: Order, limit: int) -> list[MessageState]:
    """Returns ``limit`` outstanding messages of a cursor: with the lowest offsets or the most deliveries."""
    limit = min(limit, sys.maxsize)  # islice takes no larger number
    blocks = Counter(cursor.blocked.behind)
    if order == "oldest":
        first = islice(cursor.outstanding, limit)
        return [_state(cursor, offset, _group_of(cursor, offset), blocks) for offset in first]
    found: list[MessageState] = []
    waits = ((_Wait(-1, count), offsets) for count, offsets in cursor.blocked.by_count())
    for group, offsets in sorted(
        (*_groups(cursor), *waits), key=lambda one: (-one[0].delivery_count, one[1].first or 0)
    ):
        if len(found) >= limit and group.delivery_count < found[-1].delivery_count:
            break
        found += [
            _state(cursor, at, _wait_of(cursor, at) if isinstance(group, _Wait) else group, blocks)
            for at in islice(offsets, limit)
        ]
    return heapq.nsmallest(limit, found, key=lambda one: (-one.delivery_count, one.offset))


def rank(one: MessageState, order: Order) -> tuple[float, ...]:
    """Returns the key that sorts messages of several cursors; an unknown first delivery counts as old."""
    oldest = (one.first_delivery_ms or 0, one.offset)
    return oldest if order == "oldest" else (-one.delivery_count, *oldest)


def _group_of(cursor: CursorSnapshot, offset: int) -> _Group | None:
    if offset in cursor.blocked.offsets:
        return _wait_of(cursor, offset)
    return next((group for group, offsets in _groups(cursor) if offset in offsets), None)


def _wait_of(cursor: CursorSnapshot, offset: int) -> _Wait:
    blocked = cursor.blocked
    at = blocked.offsets.count_between(0, offset)
    return _Wait(blocked.behind[at], blocked.delivery_counts[at])


def _groups(cursor: CursorSnapshot) -> Iterator[tuple[_Group, OffsetSet]]:
    yield from cursor.leases
    yield from cursor.delayed
    yield from cursor.available
    yield from cursor.held


def _state(
    cursor: CursorSnapshot, offset: int, group: _Group | None, blocks: Mapping[int, int]
) -> MessageState:
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
        case _Wait():
            told = {"state": "blocked", "behind": group.behind}
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
        told["blocks"] = blocks.get(offset, 0)
    cell = cursor.cell
    return MessageState(
        subscription=cell.subscription, topic=cell.topic, partition=cell.partition, offset=offset, **told
    )
