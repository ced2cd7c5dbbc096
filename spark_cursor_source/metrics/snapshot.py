"""Metrics of the statistics of subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from spark_cursor_source.core.stats import Stats, SubscriptionStats
from spark_cursor_source.metrics import table
from spark_cursor_source.metrics.table import Metric, Sample

_GAUGES: Mapping[Metric, str] = {
    table.IN_FLIGHT: "leased",
    table.OUTSTANDING: "outstanding",
    table.AVAILABLE: "available",
    table.DELAYED: "delayed",
    table.BLOCKED_MESSAGES: "blocked",
    table.BLOCKING_MESSAGES: "blocking",
    table.HELD: "held",
    table.ACK_HOLES: "ack_holes",
    table.CURSOR_BYTES: "cursor_bytes",
}
#: total of each action of the metric of acks
_ACTIONS = {"ack": "acked", "release": "released", "reject": "rejected"}
_COUNTERS: Mapping[Metric, str] = {
    table.DELIVERED: "delivered",
    table.LEASE_TIMEOUTS: "lease_timeouts",
    table.REDELIVERIES: "redelivered",
    table.DEAD_LETTERS: "dead_lettered",
    table.EXPIRED: "expired",
    table.UNKNOWN_ACKS: "unknown_ends",
    table.UNKNOWN_SETTLEMENTS: "unknown_settlements",
    table.OVERLAPPED: "overlapped",
    table.GAPS: "gaps",
}


def samples_of(
    stats: Stats, *, control_topics: Iterable[str] = (), retention_ms: Mapping[str, int] | None = None
) -> Iterator[Sample]:
    """Yields the metrics of a snapshot.

    ``control_topics`` are those that the snapshot has judged. ``retention_ms`` has the retention of each
    queue topic that deletes by time.
    """
    weak = {one.topic for one in stats.weak_topics}
    for topic in control_topics:
        yield Sample(table.CONTROL_FIT, (topic,), topic not in weak)
    if stats.markers_unread is not None:
        yield Sample(table.MARKER_LAG, (), stats.markers_unread)
    for one in stats.subscriptions:
        yield from _of_subscription(one, (retention_ms or {}).get(one.topic))
    yield from _log_ends(stats)


def _of_subscription(one: SubscriptionStats, retention_ms: int | None) -> Iterator[Sample]:
    labels = (one.topic, one.subscription)
    if one.backlog is not None:
        yield Sample(table.BACKLOG, labels, one.backlog)
    for metric, count in (*_GAUGES.items(), *_COUNTERS.items()):
        yield Sample(metric, labels, one.total(count))
    for action, count in _ACTIONS.items():
        yield Sample(table.ACKS, (*labels, action), one.total(count))
    age_ms = one.oldest_unacked_age_ms
    unknown = sum(part.end_trouble is not None for part in one.partitions)
    yield Sample(table.END_UNKNOWN, labels, unknown)
    if age_ms is not None or not (unknown or one.oldest_trouble):
        yield Sample(table.OLDEST_AGE, labels, (age_ms or 0) / 1000)
    if retention_ms is not None and age_ms is not None:
        yield Sample(table.HEADROOM, labels, (retention_ms - age_ms) / 1000)
    is_open = any(part.breaker_open for part in one.partitions)
    yield Sample(table.BREAKER_OPEN, labels, is_open)
    yield Sample(table.BLOCKED, (*labels, "breaker"), is_open)
    yield Sample(table.BLOCKED, (*labels, "dead_letters_unwritten"), one.trouble is not None)
    yield Sample(table.CONSUMERS, labels, len(one.consumers))
    for part in one.partitions:
        place = (*labels, str(part.cell.partition))
        yield Sample(table.MARK_DELETE, place, part.mark_delete)
        yield Sample(table.READ_OFFSET, place, part.read_position)


def _log_ends(stats: Stats) -> Iterator[Sample]:
    ends = {
        (part.cell.topic, str(part.cell.partition)): part.log_end
        for one in stats.subscriptions
        for part in one.partitions
        if part.log_end is not None
    }
    for place, end in ends.items():
        yield Sample(table.LOG_END, place, end)
