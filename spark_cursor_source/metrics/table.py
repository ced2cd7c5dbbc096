"""Table of all metrics: name, type, labels, unit and meaning. The reference page is made from it.

Names follow the practice of Prometheus: one prefix, base units, ``_total`` on counters. No label has an
unlimited number of values: no offset, key or token. ``partition`` is a label of positions only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

#: upper bounds in seconds of the buckets of histograms
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class MetricType(StrEnum):
    """Types of Prometheus that metrics here have."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Origin(StrEnum):
    """Processes that show a metric."""

    EXPORTER = "exporter"  #: ``cursorq metrics``
    TRACKER = "tracker"  #: a tracker without Spark
    CLIENT = "client"  #: a plain client
    QUERY = "query"  #: the driver of a Spark query


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """Declaration of one metric.

    >>> BACKLOG.name, str(BACKLOG.type), BACKLOG.labels
    ('cursorq_backlog_messages', 'gauge', ('topic', 'subscription'))
    """

    name: str  #: as Prometheus stores it; of a counter with ``_total``
    type: MetricType
    labels: tuple[str, ...]
    help: str  #: one sentence without a full stop
    origins: tuple[Origin, ...]

    @property
    def unit(self) -> str:
        """Base unit in the name, or an empty text for plain counts."""
        stem = self.name.removesuffix("_total")
        return next((unit for unit in ("seconds", "bytes") if stem.endswith(f"_{unit}")), "")


class Histogram(NamedTuple):
    """Observed values of a histogram."""

    buckets: tuple[int, ...]  #: observations in each bucket of ``BUCKETS``, then those above all of them
    sum: float


class Sample(NamedTuple):
    """One value of a metric, with the values of its labels in the order of ``Metric.labels``."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Histogram

    def to_json(self) -> dict[str, Any]:
        """Returns name, labels by name, and value, for ``json.dumps``.

        >>> Sample(BACKLOG, ("orders", "billing"), 12).to_json()["labels"]
        {'topic': 'orders', 'subscription': 'billing'}
        """
        value = self.value._asdict() if isinstance(self.value, Histogram) else self.value
        labels = dict(zip(self.metric.labels, self.labels, strict=True))
        return {"name": self.metric.name, "labels": labels, "value": value}


_METRICS: dict[str, Metric] = {}


class _Family(NamedTuple):
    """Metrics of the same processes. All have the family's labels, and some have more."""

    origins: tuple[Origin, ...]
    labels: tuple[str, ...] = ()

    def gauge(self, name: str, help: str, *labels: str) -> Metric:
        return self._declare(MetricType.GAUGE, name, help, labels)

    def counter(self, name: str, help: str, *labels: str) -> Metric:
        return self._declare(MetricType.COUNTER, name, help, labels)

    def histogram(self, name: str, help: str, *labels: str) -> Metric:
        return self._declare(MetricType.HISTOGRAM, name, help, labels)

    def _declare(self, type: MetricType, name: str, help: str, more: tuple[str, ...]) -> Metric:
        metric = Metric(
            name=f"cursorq_{name}", type=type, labels=self.labels + more, help=help, origins=self.origins
        )
        assert metric.name not in _METRICS
        _METRICS[metric.name] = metric
        return metric


_EXPORTER, _TRACKER = _Family((Origin.EXPORTER,)), _Family((Origin.TRACKER,))
_BOTH, _ALL = _Family((Origin.EXPORTER, Origin.TRACKER)), _Family(tuple(Origin))
_SUBSCRIPTION = _Family((Origin.EXPORTER,), ("topic", "subscription"))
_CLIENT = _Family((Origin.CLIENT,), ("topic", "subscription", "queue"))
_QUERY = _Family((Origin.QUERY,), ("subscription",))


# -- subscriptions, from the topics ----------------------------------------------------------------------

BACKLOG = _SUBSCRIPTION.gauge("backlog_messages", "Messages that are not acked: outstanding and never read")
IN_FLIGHT = _SUBSCRIPTION.gauge("in_flight_messages", "Messages that are delivered and under a lease")
OUTSTANDING = _SUBSCRIPTION.gauge(
    "outstanding_messages",
    "Messages that are delivered and not acked: in flight, available, blocked and held",
)
AVAILABLE = _SUBSCRIPTION.gauge(
    "available_messages", "Outstanding messages that wait for redelivery, delayed ones included"
)
DELAYED = _SUBSCRIPTION.gauge("delayed_messages", "Available messages whose delay is not over")
BLOCKED_MESSAGES = _SUBSCRIPTION.gauge(
    "blocked_messages", "Messages that wait behind an earlier message of their key"
)
BLOCKING_MESSAGES = _SUBSCRIPTION.gauge(
    "blocking_messages", "Messages that later messages of their key wait for"
)
HELD = _SUBSCRIPTION.gauge(
    "held_messages", "Dead letters that wait for the breaker to close or for another write"
)
OLDEST_AGE = _SUBSCRIPTION.gauge(
    "oldest_unacked_age_seconds",
    "Age of the oldest message that is not acked, by the clock of the brokers; 0 without one, and absent "
    "if it cannot be read",
)
HEADROOM = _SUBSCRIPTION.gauge(
    "retention_headroom_seconds",
    "Time until retention.ms lets Kafka delete the oldest message that is not acked; absent "
    "if it never does or the topic's settings may not be read",
)
DELIVERED = _SUBSCRIPTION.counter("messages_delivered_total", "Messages delivered, each delivery counted")
ACKS = _SUBSCRIPTION.counter(
    "acks_total",
    "Messages settled, by action: ack, release (also by a planner for a run that died) and reject",
    "action",
)
LEASE_TIMEOUTS = _SUBSCRIPTION.counter("lease_timeouts_total", "Messages whose lease expired")
REDELIVERIES = _SUBSCRIPTION.counter("redeliveries_total", "Messages announced for another delivery")
DEAD_LETTERS = _SUBSCRIPTION.counter("dead_letters_total", "Messages given up as dead letters")
EXPIRED = _SUBSCRIPTION.counter("expired_total", "Messages older than the TTL")
UNKNOWN_ACKS = _SUBSCRIPTION.counter(
    "unknown_acks_total", "Acks of messages that were not outstanding: duplicates, or too late"
)
UNKNOWN_SETTLEMENTS = _SUBSCRIPTION.counter(
    "unknown_settlements_total", "Messages released, rejected or extended for a delivery that had no lease"
)
OVERLAPPED = _SUBSCRIPTION.counter(
    "overlapped_total", "Messages delivered or ended by a run that did not own the partition"
)
GAPS = _SUBSCRIPTION.counter("gaps_total", "Offsets that were read and hold no message")
BREAKER_OPEN = _SUBSCRIPTION.gauge("breaker_open", "1 if the breaker of dead letters is open, else 0")
BLOCKED = _SUBSCRIPTION.gauge(
    "blocked",
    "1 if this reason holds messages back, else 0; reasons: breaker, dead_letters_unwritten",
    "reason",
)
ACK_HOLES = _SUBSCRIPTION.gauge("ack_hole_ranges", "Ranges of acked offsets above the mark-delete positions")
CURSOR_BYTES = _SUBSCRIPTION.gauge("cursor_bytes", "Size of the stored cursors of all partitions")
CONSUMERS = _SUBSCRIPTION.gauge("subscription_consumers", "Consumers that read the topic or stand by")
MARK_DELETE = _SUBSCRIPTION.gauge(
    "mark_delete_offset", "Last offset up to which every message is acked; -1 if none is", "partition"
)
READ_OFFSET = _SUBSCRIPTION.gauge("read_offset", "First offset that was never delivered", "partition")
LOG_END = _EXPORTER.gauge(
    "log_end_offset", "Offset after the last readable message of a queue topic", "topic", "partition"
)
END_UNKNOWN = _SUBSCRIPTION.gauge(
    "end_unknown_partitions",
    "Partitions whose log end cannot be read: no leader, or no right; their backlog is the last known one",
)

# -- tracker and control topics --------------------------------------------------------------------------

MARKER_LAG = _EXPORTER.gauge("marker_lag_messages", "Markers that no tracker has read yet")
CONTROL_FIT = _EXPORTER.gauge(
    "control_topic_fit", "1 if a control topic has as many replicas as the cluster allows, else 0", "topic"
)
TRACKER_UP = _BOTH.gauge(
    "tracker_up",
    "1 if a tracker reads the markers, else 0; a tracker shows 1 while it runs, also as a standby",
)
TRACKER_SILENT = _EXPORTER.gauge(
    "tracker_silent_seconds",
    "Time since a tracker last read a marker although markers wait; 0 while one reads",
)
TRACKER_PARTITIONS = _TRACKER.gauge(
    "tracker_partitions", "Partitions of the markers topic that this tracker has"
)
TRACKER_LAG = _TRACKER.gauge(
    "tracker_lag_seconds",
    "Age of the oldest marker of the last batch when the batch was committed; 0 without new markers",
)
TRACKER_TRIGGER = _TRACKER.histogram(
    "tracker_trigger_seconds", "Time of one batch of the tracker, commit included"
)
LATENESS = _TRACKER.histogram(
    "redelivery_lateness_seconds",
    "Time from the earliest due event of a markers partition, such as a lease's end, to its decision",
)
MARKERS = _TRACKER.counter("markers_total", "Markers read, by type", "type")
QUARANTINED = _TRACKER.counter(
    "markers_quarantined_total", "Records of the markers topic that are no markers"
)
CURSOR_UPDATES = _TRACKER.counter("cursor_updates_total", "Cursors written")
TRACKER_DEAD_LETTERS = _TRACKER.counter(
    "tracker_dead_letters_total",
    "Messages that this tracker decided to give up; reasons: max-deliveries, rejected, expired",
    "topic",
    "subscription",
    "reason",
)
RESCUED = _TRACKER.counter("rescued_messages_total", "Unacked messages copied to the rescue topic", "topic")
RESCUE_BYTES = _TRACKER.gauge(
    "rescue_bytes", "Size of the copies in the rescue topic that this tracker manages"
)
RESCUE_UNSAVED = _TRACKER.gauge(
    "rescue_unsaved_messages",
    "Messages that retention deletes soon and that have no copy: over the limit or too large",
    "topic",
)
RESCUE_HEADROOM = _TRACKER.gauge(
    "rescue_headroom_seconds",
    "Time until retention can delete an unacked message that has no copy; about rescueBefore if all is well",
    "topic",
)

# -- plain client ----------------------------------------------------------------------------------------

CLIENT_DELIVERIES = _CLIENT.counter("client_deliveries_total", "Messages put into the receive buffer")
CLIENT_REDELIVERIES = _CLIENT.counter(
    "client_redeliveries_total", "Deliveries of messages that were delivered before"
)
CLIENT_SETTLEMENTS = _CLIENT.counter(
    "client_settlements_total",
    "Messages whose settlement the brokers have stored; actions: ack, release, reject",
    "action",
)
LEASE_EXTENSIONS = _CLIENT.counter("lease_extensions_total", "Leases extended, one for each message and time")
CLIENT_IN_FLIGHT = _CLIENT.gauge(
    "client_in_flight_messages", "Messages that this process holds under a lease: buffered and received"
)
CLIENT_BUFFERED = _CLIENT.gauge("client_buffered_messages", "Messages in the receive buffer")
PROCESSING = _CLIENT.histogram(
    "processing_seconds", "Time from the start of a lease to the stored settlement, buffering included"
)

# -- query -----------------------------------------------------------------------------------------------

SOURCE_ROWS = _QUERY.counter("source_read_rows_total", "Rows that a query has read")
SOURCE_BATCH = _QUERY.histogram("source_batch_seconds", "Time of one micro-batch of a query")
SOURCE_BEHIND = _QUERY.gauge(
    "source_behind_messages", "Offsets between the positions of the queries and the ends of their partitions"
)
SOURCE_OUTSTANDING = _QUERY.gauge(
    "source_outstanding_messages", "Outstanding messages of the partitions of the queries, as these know them"
)
MAX_OUTSTANDING = _QUERY.gauge(
    "max_outstanding_messages",
    "Sum of the limits of outstanding messages of the queries; absent if one has none",
)
SOURCE_OLDEST_AGE = _QUERY.gauge(
    "source_oldest_outstanding_age_seconds",
    "Time since the first delivery of the oldest outstanding message of the queries; 0 without one",
)
SOURCE_TRACKER_SILENT = _QUERY.gauge(
    "source_tracker_silent_seconds",
    "Time since a tracker last read a marker, if above trackerTimeout; else 0",
)
HANDLER = _QUERY.histogram(
    "handler_seconds",
    "Time of one call of a per_row handler; outcomes: ack, release, reject, leave",
    "outcome",
)

# -- each process ----------------------------------------------------------------------------------------

BUILD_INFO = _ALL.gauge("build_info", "1, with the version of this library", "version")
EXPORTER_UP = _EXPORTER.gauge("exporter_up", "1 if the last read of the topics succeeded, else 0")
CURSOR_FETCH = _EXPORTER.histogram("cursor_fetch_seconds", "Time to read new records of the cursors topic")
READ_SECONDS = _EXPORTER.histogram("exporter_read_seconds", "Time to read everything that one scrape shows")

METRICS: Mapping[str, Metric] = dict(_METRICS)  #: all metrics by name
