"""Statistics of subscriptions, like pulsar-admin's ``topics stats``."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.counted import counted
from spark_cursor_source.core.cursor import CursorSnapshot, Totals
from spark_cursor_source.core.durability import WeakTopic
from spark_cursor_source.core.limits import Limits, strictest


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStats:
    """Statistics of one partition of a subscription, in messages except for positions and times."""

    cell: Cell
    mark_delete: int  #: every offset up to this one, inclusive, is acknowledged; -1: none is
    read_position: int  #: the first offset that was never leased
    log_end: int | None  #: offset after the last readable one; None: deleted topic, or end_trouble
    outstanding: int  #: delivered and not acknowledged: leased + available + blocked + held
    leased: int  #: outstanding messages under a lease
    available: int  #: outstanding messages to redeliver, now or after a delay
    delayed: int  #: available messages whose delay is not over
    blocked: int  #: messages that wait behind an earlier message of their key
    blocking: int  #: messages that others wait for
    held: int  #: dead letters that wait for the breaker to close or for a retry
    breaker_open: bool  #: the breaker holds dead letters back
    trouble: str | None  #: error of dead letters that could not be written; None: no error
    next_try_ms: int | None  #: broker time of the next retry of these dead letters
    ack_holes: int  #: number of acknowledged ranges above the mark-delete position
    cursor_bytes: int  #: size of the stored cursor; 0: unknown
    #: timestamp of the first outstanding or unread message; None: all messages are acknowledged
    oldest_unacked_ms: int | None
    owner: str | None  #: run that receives redeliveries
    owner_seen_ms: int | None  #: broker time of the owner's last marker; an idle owner writes none
    totals: Totals
    paused_ms: int | None = None  #: broker time of the operator's pause; None: not paused
    rate_limit: float | None = None  #: the operator's limit, in messages per second; None: no limit
    max_outstanding: int | None = None  #: the operator's limit of outstanding messages; None: no limit
    #: why the end of the log cannot be read for now; None: it can. ``log_end`` is the last known one, if any
    end_trouble: str | None = None
    #: why the first outstanding or unread message cannot be read for now; None: it can
    oldest_trouble: str | None = None

    @classmethod
    def of(
        cls,
        cursor: CursorSnapshot,
        *,
        log_end: int | None,
        oldest_ms: int | None,
        cursor_bytes: int = 0,
        end_trouble: str | None = None,
        oldest_trouble: str | None = None,
    ) -> PartitionStats:
        """Returns the statistics of a cursor, completed with values of the log."""
        leased, available = len(cursor.leased), len(cursor.waiting)
        held = sum(len(offsets) for _, offsets in cursor.held)
        blocked = len(cursor.blocked.offsets)
        return cls(
            cell=cursor.cell,
            mark_delete=cursor.mark_delete,
            read_position=cursor.read_position,
            log_end=log_end,
            outstanding=leased + available + blocked + held,
            leased=leased,
            available=available,
            delayed=sum(len(offsets) for _, offsets in cursor.delayed),
            blocked=blocked,
            blocking=len(cursor.blocked.blockers()) if blocked else 0,
            held=held,
            breaker_open=cursor.breaker.is_open,
            trouble=cursor.trouble,
            next_try_ms=cursor.next_try_ms,
            ack_holes=cursor.ack_holes.count_ranges(),
            cursor_bytes=cursor_bytes,
            oldest_unacked_ms=oldest_ms,
            owner=cursor.owner,
            owner_seen_ms=cursor.owner_seen_ms or None,
            totals=cursor.totals,
            paused_ms=cursor.paused_ms,
            rate_limit=cursor.limits.rate,
            max_outstanding=cursor.limits.max_outstanding,
            end_trouble=end_trouble,
            oldest_trouble=oldest_trouble,
        )

    @property
    def backlog(self) -> int | None:
        """Outstanding and unread messages; unread log gaps count too; None: the log has no known end."""
        if self.log_end is None:
            return None
        return self.outstanding + max(0, self.log_end - self.read_position)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStats:
    """Member of the subscription's group, seen by the broker within its session timeout."""

    client_id: str
    query_id: str | None  #: None: not a consumer of this library
    type: str | None  #: subscription type that the member requested
    host: str  #: host name, or the address if the name is unknown
    since: str | None  #: start time by the clock of the host, ISO 8601
    partitions: tuple[int, ...]  #: partitions of this topic currently assigned to the member
    last_seen_ms: int | None  #: broker time of the member's last marker for these partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStats:
    """Statistics of one subscription of one topic."""

    topic: str
    subscription: str
    partitions: tuple[PartitionStats, ...]
    consumers: tuple[ConsumerStats, ...]
    #: latest known broker timestamp, of a marker or of a message of the topic
    newest_ms: int | None

    def total(self, count: str) -> int:
        """Returns the sum over the partitions of a count such as ``leased``, or of one of the totals."""
        of_totals = count in _TOTALS
        return sum(getattr(one.totals if of_totals else one, count) for one in self.partitions)

    @property
    def trouble(self) -> str | None:
        """Error of dead letters that could not be written, from the first such partition; None: no error."""
        return next((one.trouble for one in self.partitions if one.trouble is not None), None)

    @property
    def end_trouble(self) -> str | None:
        """Why the end of a log cannot be read, from the first such partition; None: all can."""
        return next((one.end_trouble for one in self.partitions if one.end_trouble is not None), None)

    @property
    def oldest_trouble(self) -> str | None:
        """Why the oldest message of a partition cannot be read, from the first such one; None: all can."""
        return next((one.oldest_trouble for one in self.partitions if one.oldest_trouble is not None), None)

    @property
    def is_deleted(self) -> bool:
        """True if the topic was deleted. It may exist if its ends cannot be read."""
        return self.backlog is None and self.end_trouble is None

    @property
    def backlog(self) -> int | None:
        """Unacknowledged messages, including unread ones; None: no end of a log is known."""
        parts = [one.backlog for one in self.partitions if one.backlog is not None]
        return sum(parts) if parts else None

    @property
    def paused_ms(self) -> int | None:
        """Broker time of the operator's pause; None: no partition is paused."""
        return min((one.paused_ms for one in self.partitions if one.paused_ms is not None), default=None)

    @property
    def limits(self) -> Limits:
        """Limits that an operator has set: the strictest of all partitions."""
        return strictest(
            Limits(rate=one.rate_limit, max_outstanding=one.max_outstanding) for one in self.partitions
        )

    @property
    def oldest_unacked_ms(self) -> int | None:
        """Timestamp of the oldest unacknowledged message; None: all messages are acknowledged."""
        times = (one.oldest_unacked_ms for one in self.partitions)
        return min((time for time in times if time is not None), default=None)

    @property
    def oldest_unacked_age_ms(self) -> int | None:
        """Age of the oldest unacknowledged message at the latest broker timestamp; no local clock is used."""
        if self.oldest_unacked_ms is None or self.newest_ms is None:
            return None
        return max(0, self.newest_ms - self.oldest_unacked_ms)


SUMMED = ("outstanding", "leased", "available", "delayed", "blocked", "blocking", "held", "ack_holes")
_UNKNOWN = ("unknown_ends", "unknown_settlements")  # a text line shows these only if not zero
TOTALS = tuple(field.name for field in fields(Totals))
_TOTALS = frozenset(TOTALS)  # a scrape asks for tens of thousands of sums


@dataclass(frozen=True, slots=True, kw_only=True)
class ReappendTrouble:
    """Messages that could not be appended to their queue topic again; the tracker retries."""

    topic: str  #: the queue topic
    messages: int
    trouble: str  #: error of the last attempt

    def __str__(self) -> str:
        messages = counted(self.messages, "message")
        return f"{self.topic}: {messages} could not be appended again, because {self.trouble}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Snapshot of the statistics of subscriptions, by topic and name."""

    subscriptions: tuple[SubscriptionStats, ...]
    weak_topics: tuple[WeakTopic, ...] = ()  #: control topics with fewer replicas than the cluster allows
    markers_unread: int | None = None  #: markers that no tracker has read yet; None: not authorized
    reappend_troubles: tuple[ReappendTrouble, ...] = ()

    def to_json(self, *, indent: int | None = None) -> str:
        """Returns JSON ``{"topics": {topic: {"subscriptions": {name: …}}}}``, nested as in Pulsar.

        ``weak_control_topics`` lists the control topics that have too few replicas, each with its cure.
        ``markers_unread`` is the number of markers that no tracker has read yet. ``reappend_troubles`` is
        present if messages could not be appended again.
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
        """Returns a line for each subscription, each warning, each trouble, and the unread markers."""
        lines = [*map(_line, self.subscriptions), *(f"warning: {one}" for one in self.weak_topics)]
        lines += [f"trouble: {one}" for one in self.reappend_troubles]
        if self.markers_unread:
            lines.append(
                f"tracker: {counted(self.markers_unread, 'marker')} unread; it runs if this number falls"
            )
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
    troubles = {
        "trouble": one.trouble,
        "end_trouble": one.end_trouble,
        "oldest_trouble": one.oldest_trouble,
    }
    trouble = "".join(f" {name}={json.dumps(why)}" for name, why in troubles.items() if why is not None)
    paused = "" if one.paused_ms is None else " paused"
    limits = "".join(f" {name}={limit:.12g}" for name, limit in _limits(one).items() if limit is not None)
    return f"{one.topic} {one.subscription} {counts}{unknown}{paused}{limits}{trouble}"


def _limits(one: SubscriptionStats) -> dict[str, float | None]:
    return {"rate_limit": one.limits.rate, "max_outstanding": one.limits.max_outstanding}


def _told(one: SubscriptionStats) -> dict[str, Any]:
    return {
        "backlog": one.backlog,
        **{count: one.total(count) for count in SUMMED},
        "trouble": one.trouble,
        "end_trouble": one.end_trouble,
        "oldest_trouble": one.oldest_trouble,
        "paused_ms": one.paused_ms,
        **_limits(one),
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
