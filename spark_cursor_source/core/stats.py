"""Where subscriptions stand, as one value: what pulsar-admin's ``topics stats`` tells of a topic."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, Totals
from spark_cursor_source.core.durability import WeakTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStats:
    """One partition of a subscription; numbers of messages, but for positions and times."""

    cell: Cell
    mark_delete: int  #: everything up to it, itself included, is acknowledged; -1: nothing is
    read_position: int  #: the first offset that was never leased
    log_end: int | None  #: the offset after the last that can be read; None: the topic is gone
    outstanding: int  #: delivered and not acknowledged: leased + available + held
    leased: int  #: of these, under a lease
    available: int  #: of these, to be delivered again, now or after a delay
    delayed: int  #: of the available ones, those whose delay is not over
    held: int  #: dead letters that wait for the breaker to close, or could not be written
    trouble: str | None  #: why dead letters could not be written; None: all could
    next_try_ms: int | None  #: when, in broker time, they are tried again
    ack_holes: int  #: ranges of acknowledged offsets above the mark-delete position
    oldest_unacked_ms: (
        int | None
    )  #: timestamp of the first message outstanding or unread; None: there is none
    owner: str | None  #: the run that redeliveries go to
    owner_seen_ms: int | None  #: broker time of its last marker; one that has nothing to do writes none
    totals: Totals

    @classmethod
    def of(cls, cursor: CursorSnapshot, *, log_end: int | None, oldest_ms: int | None) -> PartitionStats:
        """Of a cursor, and what the log says."""
        leased, available = len(cursor.leased), len(cursor.waiting)
        held = sum(len(offsets) for _, offsets in cursor.held)
        return cls(
            cell=cursor.cell,
            mark_delete=cursor.mark_delete,
            read_position=cursor.read_position,
            log_end=log_end,
            outstanding=leased + available + held,
            leased=leased,
            available=available,
            delayed=sum(len(offsets) for _, offsets in cursor.delayed),
            held=held,
            trouble=cursor.trouble,
            next_try_ms=cursor.next_try_ms,
            ack_holes=cursor.ack_holes.count_ranges(),
            oldest_unacked_ms=oldest_ms,
            owner=cursor.owner,
            owner_seen_ms=cursor.owner_seen_ms or None,
            totals=cursor.totals,
        )

    @property
    def backlog(self) -> int | None:
        """Outstanding and never read, gaps of the log among the latter; None: the topic is gone."""
        if self.log_end is None:
            return None
        return self.outstanding + max(0, self.log_end - self.read_position)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStats:
    """A member of the subscription's group: the broker heard of it within its session timeout."""

    client_id: str
    query_id: str | None  #: None: a consumer that is not ours
    type: str | None  #: of the subscription, as it asked for it
    host: str  #: its name, or its address where it tells none
    since: str | None  #: by the clock of its host, ISO 8601
    partitions: tuple[int, ...]  #: of this topic, that are its own now
    last_seen_ms: int | None  #: broker time of its last marker about these


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStats:
    """One subscription of one topic."""

    topic: str
    subscription: str
    partitions: tuple[PartitionStats, ...]
    consumers: tuple[ConsumerStats, ...]
    newest_ms: (
        int | None
    )  #: the latest instant the brokers have told: of a marker, or of a message of the topic

    def total(self, count: str) -> int:
        """The sum over the partitions, of a count such as ``leased``, or of one of the totals."""
        of_totals = count in {field.name for field in fields(Totals)}
        return sum(getattr(one.totals if of_totals else one, count) for one in self.partitions)

    @property
    def trouble(self) -> str | None:
        """Why dead letters could not be written, of the first partition where it is so; None: all could."""
        return next((one.trouble for one in self.partitions if one.trouble is not None), None)

    @property
    def backlog(self) -> int | None:
        """Messages that are not acknowledged, the unread ones included; None: the topic is gone."""
        parts = [one.backlog for one in self.partitions if one.backlog is not None]
        return sum(parts) if parts else None

    @property
    def oldest_unacked_ms(self) -> int | None:
        """The timestamp of the oldest message that is not acknowledged; None: there is none."""
        times = (one.oldest_unacked_ms for one in self.partitions)
        return min((time for time in times if time is not None), default=None)

    @property
    def oldest_unacked_age_ms(self) -> int | None:
        """How old that one was at the latest instant that the brokers told; no clock of ours is asked."""
        if self.oldest_unacked_ms is None or self.newest_ms is None:
            return None
        return max(0, self.newest_ms - self.oldest_unacked_ms)


SUMMED = ("outstanding", "leased", "available", "delayed", "held", "ack_holes")
_UNKNOWN = ("unknown_ends", "unknown_settlements")  # shown in a line where there are some
TOTALS = tuple(field.name for field in fields(Totals))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReappendTrouble:
    """Messages that could not be appended to their queue topic again; the tracker tries on."""

    topic: str  #: the queue topic
    messages: int
    trouble: str  #: why they could not

    def __str__(self) -> str:
        return f"{self.topic}: {self.messages} messages are not appended again, because {self.trouble}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """A snapshot of subscriptions, by topic and name."""

    subscriptions: tuple[SubscriptionStats, ...]
    weak_topics: tuple[WeakTopic, ...] = ()  #: control topics with fewer replicas than their cluster allows
    markers_unread: int | None = None  #: markers that no tracker has read yet; None: it may not be asked
    reappend_troubles: tuple[ReappendTrouble, ...] = ()

    def to_json(self, *, indent: int | None = None) -> str:
        """As ``{"topics": {topic: {"subscriptions": {name: …}}}}``, the way Pulsar nests them.

        ``weak_control_topics`` lists the control topics that have too few replicas, each with its cure.
        ``markers_unread`` is how many markers no tracker has read yet. ``reappend_troubles`` is there where
        messages could not be appended again.
        """
        topics: dict[str, dict[str, dict[str, Any]]] = {}
        for one in self.subscriptions:
            topics.setdefault(one.topic, {"subscriptions": {}})["subscriptions"][one.subscription] = _told(
                one
            )
        weak = [_plain(one) for one in self.weak_topics]
        told: dict[str, Any] = {"topics": topics, "weak_control_topics": weak}
        if self.markers_unread is not None:
            told["markers_unread"] = self.markers_unread
        if self.reappend_troubles:
            told["reappend_troubles"] = [_plain(one) for one in self.reappend_troubles]
        return json.dumps(told, indent=indent)

    def to_text(self) -> str:
        """A line for each subscription, each control topic that has too few replicas, and unread markers."""
        lines = [*map(_line, self.subscriptions), *(f"warning: {one}" for one in self.weak_topics)]
        lines += [f"trouble: {one}" for one in self.reappend_troubles]
        if self.markers_unread:
            lines.append(f"tracker: {self.markers_unread} markers unread; it runs if this number falls")
        return "\n".join(lines)


def _line(one: SubscriptionStats) -> str:
    known = {
        "backlog": one.backlog,
        **{count: one.total(count) for count in (*SUMMED, "acked", "dead_lettered")},
        "oldest_s": None if one.oldest_unacked_age_ms is None else one.oldest_unacked_age_ms // 1000,
        "consumers": len(one.consumers),
    }
    counts = " ".join(f"{name}={'-' if count is None else count}" for name, count in known.items())
    unknown = "".join(f" {count}={total}" for count in _UNKNOWN if (total := one.total(count)))
    trouble = "" if one.trouble is None else f" trouble={json.dumps(one.trouble)}"
    return f"{one.topic} {one.subscription} {counts}{unknown}{trouble}"


def _told(one: SubscriptionStats) -> dict[str, Any]:
    return {
        "backlog": one.backlog,
        **{count: one.total(count) for count in SUMMED},
        "trouble": one.trouble,
        "oldest_unacked_ms": one.oldest_unacked_ms,
        "oldest_unacked_age_ms": one.oldest_unacked_age_ms,
        "totals": {count: one.total(count) for count in TOTALS},
        "consumers": [_plain(consumer) for consumer in one.consumers],
        "partitions": {str(part.cell.partition): _told_of_partition(part) for part in one.partitions},
    }


def _told_of_partition(part: PartitionStats) -> dict[str, Any]:
    told = _plain(part)
    del told["cell"]
    return {"backlog": part.backlog} | told | {"totals": _plain(part.totals)}


def _plain(value: PartitionStats | ConsumerStats | ReappendTrouble | Totals | WeakTopic) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
