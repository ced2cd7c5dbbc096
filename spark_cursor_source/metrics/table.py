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
_SUBSCRIPTION = ("topic", "subscription")
_PARTITION = ("topic", "subscription", "partition")
_CLIENT = ("topic", "subscription", "queue")
_GAUGE, _COUNTER, _HISTOGRAM = MetricType.GAUGE, MetricType.COUNTER, MetricType.HISTOGRAM
_EXPORTER, _TRACKER, _CLIENT_, _QUERY = Origin.EXPORTER, Origin.TRACKER, Origin.CLIENT, Origin.QUERY


def _metric(name: str, type: MetricType, labels: tuple[str, ...], help: str, *origins: Origin) -> Metric:
    metric = Metric(name=f"cursorq_{name}", type=type, labels=labels, help=help, origins=origins)
    assert metric.name not in _METRICS
    _METRICS[metric.name] = metric
    return metric


# -- subscriptions, from the topics ----------------------------------------------------------------------

BACKLOG = _metric(
    "backlog_messages",
    _GAUGE,
    _SUBSCRIPTION,
    "Messages that are not acked: outstanding and never read",
    _EXPORTER,
)
IN_FLIGHT = _metric(
    "in_flight_messages", _GAUGE, _SUBSCRIPTION, "Messages that are delivered and under a lease", _EXPORTER
)
OUTSTANDING = _metric(
    "outstanding_messages",
    _GAUGE,
    _SUBSCRIPTION,
    "Messages that are delivered and not acked: in flight, available, blocked and held",
    _EXPORTER,
)
AVAILABLE = _metric(
    "available_messages",
    _GAUGE,
    _SUBSCRIPTION,
    "Outstanding messages that wait for redelivery, delayed ones included",
    _EXPORTER,
)
DELAYED = _metric(
    "delayed_messages", _GAUGE, _SUBSCRIPTION, "Available messages whose delay is not over", _EXPORTER
)
BLOCKED_MESSAGES = _metric(
    "blocked_messages",
    _GAUGE,
    _SUBSCRIPTION,
    "Messages that wait behind an earlier message of their key",
    _EXPORTER,
)
BLOCKING_MESSAGES = _metric(
    "blocking_messages",
    _GAUGE,
    _SUBSCRIPTION,
    "Messages that later messages of their key wait for",
    _EXPORTER,
)
HELD = _metric(
    "held_messages",
    _GAUGE,
    _SUBSCRIPTION,
    "Dead letters that wait for the breaker to close or for another write",
    _EXPORTER,
)
OLDEST_AGE = _metric(
    "oldest_unacked_age_seconds",
    _GAUGE,
    _SUBSCRIPTION,
    "Age of the oldest message that is not acked, by the clock of the brokers; 0 without one",
    _EXPORTER,
)
HEADROOM = _metric(
    "retention_headroom_seconds",
    _GAUGE,
    _SUBSCRIPTION,
    "Time until retention.ms lets Kafka delete the oldest message that is not acked; absent if it never does",
    _EXPORTER,
)
DELIVERED = _metric(
    "messages_delivered_total",
    _COUNTER,
    _SUBSCRIPTION,
    "Messages delivered, each delivery counted",
    _EXPORTER,
)
ACKS = _metric(
    "acks_total",
    _COUNTER,
    (*_SUBSCRIPTION, "action"),
    "Messages settled, by action: ack, release (also by a planner for a run that died) and reject",
    _EXPORTER,
)
LEASE_TIMEOUTS = _metric(
    "lease_timeouts_total", _COUNTER, _SUBSCRIPTION, "Messages whose lease expired", _EXPORTER
)
REDELIVERIES = _metric(
    "redeliveries_total", _COUNTER, _SUBSCRIPTION, "Messages announced for another delivery", _EXPORTER
)
DEAD_LETTERS = _metric(
    "dead_letters_total", _COUNTER, _SUBSCRIPTION, "Messages given up as dead letters", _EXPORTER
)
EXPIRED = _metric("expired_total", _COUNTER, _SUBSCRIPTION, "Messages older than the TTL", _EXPORTER)
UNKNOWN_ACKS = _metric(
    "unknown_acks_total",
    _COUNTER,
    _SUBSCRIPTION,
    "Acks of messages that were not outstanding: duplicates, or too late",
    _EXPORTER,
)
UNKNOWN_SETTLEMENTS = _metric(
    "unknown_settlements_total",
    _COUNTER,
    _SUBSCRIPTION,
    "Messages released, rejected or extended for a delivery that had no lease",
    _EXPORTER,
)
OVERLAPPED = _metric(
    "overlapped_total",
    _COUNTER,
    _SUBSCRIPTION,
    "Messages delivered or ended by a run that did not own the partition",
    _EXPORTER,
)
GAPS = _metric("gaps_total", _COUNTER, _SUBSCRIPTION, "Offsets that were read and hold no message", _EXPORTER)
BREAKER_OPEN = _metric(
    "breaker_open", _GAUGE, _SUBSCRIPTION, "1 if the breaker of dead letters is open, else 0", _EXPORTER
)
BLOCKED = _metric(
    "blocked",
    _GAUGE,
    (*_SUBSCRIPTION, "reason"),
    "1 if this reason holds messages back, else 0; reasons: breaker, dead_letters_unwritten",
    _EXPORTER,
)
ACK_HOLES = _metric(
    "ack_hole_ranges",
    _GAUGE,
    _SUBSCRIPTION,
    "Ranges of acked offsets above the mark-delete positions",
    _EXPORTER,
)
CURSOR_BYTES = _metric(
    "cursor_bytes", _GAUGE, _SUBSCRIPTION, "Size of the stored cursors of all partitions", _EXPORTER
)
CONSUMERS = _metric(
    "subscription_consumers", _GAUGE, _SUBSCRIPTION, "Consumers that read the topic or stand by", _EXPORTER
)
MARK_DELETE = _metric(
    "mark_delete_offset",
    _GAUGE,
    _PARTITION,
    "Last offset up to which every message is acked; -1 if none is",
    _EXPORTER,
)
READ_OFFSET = _metric("read_offset", _GAUGE, _PARTITION, "First offset that was never delivered", _EXPORTER)
LOG_END = _metric(
    "log_end_offset",
    _GAUGE,
    ("topic", "partition"),
    "Offset after the last readable message of a queue topic",
    _EXPORTER,
)
END_UNKNOWN = _metric(
    "end_unknown_partitions",
    _GAUGE,
    _SUBSCRIPTION,
    "Partitions whose log end cannot be read: no leader, or no right; their backlog is the last known one",
    _EXPORTER,
)

# -- tracker and control topics --------------------------------------------------------------------------

MARKER_LAG = _metric("marker_lag_messages", _GAUGE, (), "Markers that no tracker has read yet", _EXPORTER)
CONTROL_FIT = _metric(
    "control_topic_fit",
    _GAUGE,
    ("topic",),
    "1 if a control topic has as many replicas as the cluster allows, else 0",
    _EXPORTER,
)
TRACKER_UP = _metric(
    "tracker_up",
    _GAUGE,
    (),
    "1 if a tracker reads the markers, else 0; a tracker shows 1 while it runs, also as a standby",
    _EXPORTER,
    _TRACKER,
)
TRACKER_SILENT = _metric(
    "tracker_silent_seconds",
    _GAUGE,
    (),
    "Time since a tracker last read a marker although markers wait; 0 while one reads",
    _EXPORTER,
)
TRACKER_PARTITIONS = _metric(
    "tracker_partitions", _GAUGE, (), "Partitions of the markers topic that this tracker has", _TRACKER
)
TRACKER_LAG = _metric(
    "tracker_lag_seconds",
    _GAUGE,
    (),
    "Age of the oldest marker of the last batch when the batch was committed; 0 without new markers",
    _TRACKER,
)
TRACKER_TRIGGER = _metric(
    "tracker_trigger_seconds", _HISTOGRAM, (), "Time of one batch of the tracker, commit included", _TRACKER
)
LATENESS = _metric(
    "redelivery_lateness_seconds",
    _HISTOGRAM,
    (),
    "Time from the earliest due event of a markers partition, such as a lease's end, to its decision",
    _TRACKER,
)
MARKERS = _metric("markers_total", _COUNTER, ("type",), "Markers read, by type", _TRACKER)
QUARANTINED = _metric(
    "markers_quarantined_total", _COUNTER, (), "Records of the markers topic that are no markers", _TRACKER
)
CURSOR_UPDATES = _metric("cursor_updates_total", _COUNTER, (), "Cursors written", _TRACKER)
TRACKER_DEAD_LETTERS = _metric(
    "tracker_dead_letters_total",
    _COUNTER,
    ("topic", "subscription", "reason"),
    "Messages that this tracker decided to give up; reasons: max-deliveries, rejected, expired",
    _TRACKER,
)
RESCUED = _metric(
    "rescued_messages_total", _COUNTER, ("topic",), "Unacked messages copied to the rescue topic", _TRACKER
)
RESCUE_BYTES = _metric(
    "rescue_bytes", _GAUGE, (), "Size of the copies in the rescue topic that this tracker manages", _TRACKER
)
RESCUE_UNSAVED = _metric(
    "rescue_unsaved_messages",
    _GAUGE,
    ("topic",),
    "Messages that retention deletes soon and that have no copy: over the limit or too large",
    _TRACKER,
)
RESCUE_HEADROOM = _metric(
    "rescue_headroom_seconds",
    _GAUGE,
    ("topic",),
    "Time until retention can delete an unacked message that has no copy; about rescueBefore if all is well",
    _TRACKER,
)

# -- plain client ----------------------------------------------------------------------------------------

CLIENT_DELIVERIES = _metric(
    "client_deliveries_total", _COUNTER, _CLIENT, "Messages put into the receive buffer", _CLIENT_
)
CLIENT_REDELIVERIES = _metric(
    "client_redeliveries_total",
    _COUNTER,
    _CLIENT,
    "Deliveries of messages that were delivered before",
    _CLIENT_,
)
CLIENT_SETTLEMENTS = _metric(
    "client_settlements_total",
    _COUNTER,
    (*_CLIENT, "action"),
    "Messages whose settlement the brokers have stored; actions: ack, release, reject",
    _CLIENT_,
)
LEASE_EXTENSIONS = _metric(
    "lease_extensions_total", _COUNTER, _CLIENT, "Leases extended, one for each message and time", _CLIENT_
)
CLIENT_IN_FLIGHT = _metric(
    "client_in_flight_messages",
    _GAUGE,
    _CLIENT,
    "Messages that this process holds under a lease: buffered and received",
    _CLIENT_,
)
CLIENT_BUFFERED = _metric(
    "client_buffered_messages", _GAUGE, _CLIENT, "Messages in the receive buffer", _CLIENT_
)
PROCESSING = _metric(
    "processing_seconds",
    _HISTOGRAM,
    _CLIENT,
    "Time from the start of a lease to the stored settlement, buffering included",
    _CLIENT_,
)

# -- query -----------------------------------------------------------------------------------------------

SOURCE_ROWS = _metric(
    "source_read_rows_total", _COUNTER, ("subscription",), "Rows that a query has read", _QUERY
)
SOURCE_BATCH = _metric(
    "source_batch_seconds", _HISTOGRAM, ("subscription",), "Time of one micro-batch of a query", _QUERY
)
SOURCE_BEHIND = _metric(
    "source_behind_messages",
    _GAUGE,
    ("subscription",),
    "Offsets between the positions of the queries and the ends of their partitions",
    _QUERY,
)
SOURCE_OUTSTANDING = _metric(
    "source_outstanding_messages",
    _GAUGE,
    ("subscription",),
    "Outstanding messages of the partitions of the queries, as these know them",
    _QUERY,
)
MAX_OUTSTANDING = _metric(
    "max_outstanding_messages",
    _GAUGE,
    ("subscription",),
    "Sum of the limits of outstanding messages of the queries; absent if one has none",
    _QUERY,
)
SOURCE_OLDEST_AGE = _metric(
    "source_oldest_outstanding_age_seconds",
    _GAUGE,
    ("subscription",),
    "Time since the first delivery of the oldest outstanding message of the queries; 0 without one",
    _QUERY,
)
SOURCE_TRACKER_SILENT = _metric(
    "source_tracker_silent_seconds",
    _GAUGE,
    ("subscription",),
    "Time since a tracker last read a marker, if above trackerTimeout; else 0",
    _QUERY,
)
HANDLER = _metric(
    "handler_seconds",
    _HISTOGRAM,
    ("subscription", "outcome"),
    "Time of one call of a per_row handler; outcomes: ack, release, reject, leave",
    _QUERY,
)

# -- each process ----------------------------------------------------------------------------------------

BUILD_INFO = _metric("build_info", _GAUGE, ("version",), "1, with the version of this library", *Origin)
EXPORTER_UP = _metric(
    "exporter_up", _GAUGE, (), "1 if the last read of the topics succeeded, else 0", _EXPORTER
)
CURSOR_FETCH = _metric(
    "cursor_fetch_seconds", _HISTOGRAM, (), "Time to read new records of the cursors topic", _EXPORTER
)
READ_SECONDS = _metric(
    "exporter_read_seconds", _HISTOGRAM, (), "Time to read everything that one scrape shows", _EXPORTER
)

METRICS: Mapping[str, Metric] = dict(_METRICS)  #: all metrics by name
