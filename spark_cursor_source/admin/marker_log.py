"""Reader of the markers topic for operators: decoded markers, and records in quarantine with their reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nlargest
from typing import Any

from spark_cursor_source.admin.log_follower import last_positions, positions_since, read_log
from spark_cursor_source.core.marker import KINDS, Marker
from spark_cursor_source.core.names import DEFAULT_MARKERS_TOPIC
from spark_cursor_source.errors import InvalidMarker
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.reading import offset_of
from spark_cursor_source.wire import marker as wire

_WHY = ("trouble", "reason", "trip")  # the first of these attributes of a marker is its reason
_FIELDS = ("delivery_count", "lease_ms", "delay_ms", "due_ms", "run_id", "position", "behind")


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerRecord:
    """One record of the markers topic."""

    partition: int  #: of the markers topic
    offset: int
    at_ms: int  #: broker time of the marker, in ms since 1970
    marker: Marker | None  #: None: a marker of kafka-mq-go, or no marker
    of_one_message: wire.MarkerV1 | None = None  #: marker of kafka-mq-go
    error: str | None = None  #: why the record is in quarantine; None: it is a marker

    @property
    def kind(self) -> str:
        """Name of the marker: START, END, KEEPALIVE, …, or QUARANTINED."""
        if self.of_one_message is not None:
            return self.of_one_message.type.name.replace("_", "")
        return "QUARANTINED" if self.marker is None else KINDS[type(self.marker)]

    def to_json(self) -> dict[str, Any]:
        """Returns the known fields by name, for ``json.dumps``; offsets are half-open ranges."""
        told: dict[str, Any]
        told = {"partition": self.partition, "offset": self.offset, "at_ms": self.at_ms, "kind": self.kind}
        if self.error is not None:
            return told | {"error": self.error}
        if (one := self.of_one_message) is not None:
            queue, at = one.queue_id.decode(errors="replace"), (one.offset, one.offset + 1)
            return told | {"queue": queue, "message_partition": one.partition, "offsets": [at]}
        marker: Any = self.marker
        cell, offsets = marker.cell, getattr(marker, "offsets", None)
        told |= {
            "subscription": cell.subscription,
            "topic": cell.topic,
            "message_partition": cell.partition,
            "messages": None if offsets is None else len(offsets),
            "offsets": None if offsets is None else list(offsets.iter_ranges()),
            "reason": reason_of(marker),
        }
        told |= {name: getattr(marker, name, None) for name in _FIELDS}
        return {name: value for name, value in told.items() if value not in (None, "")}


def reason_of(marker: Marker) -> str | None:
    """Returns the reason that a marker gives; None: it has none."""
    return next((why for name in _WHY if (why := getattr(marker, name, None))), None)


def read_markers(
    kafka: Mapping[str, str],
    *,
    markers_topic: str = DEFAULT_MARKERS_TOPIC,
    subscription: str | None = None,
    topic: str | None = None,
    quarantined: bool = False,
    since_ms: int | None = None,
    last: int | None = None,
    follow: bool = False,
) -> Iterator[MarkerRecord]:
    """Yields decoded markers, oldest first within a partition of the markers topic.

    Without ``since_ms`` and ``last``, all retained markers are read. ``last`` begins so many records before
    the end of each partition. ``subscription`` and ``topic`` select markers; with ``quarantined``, only
    records that are no valid markers are yielded. With ``follow``, the iterator goes on with new records
    until it is closed. Nothing is changed.

    Example::

        from spark_cursor_source.admin import read_markers

        for one in read_markers({"bootstrap.servers": "broker:9092"}, quarantined=True):
            print(one.partition, one.offset, one.error)

    Raises:
        TopicNotFound: the markers topic does not exist.
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """

    def wanted(record: MarkerRecord) -> bool:
        if quarantined or record.marker is None:
            return record.error is not None or not quarantined
        cell = record.marker.cell
        return subscription in (None, cell.subscription) and topic in (None, cell.topic)

    topics = ClusterAdmin(client_config(kafka, "admin")).meet()
    if since_ms is None:
        positions = last_positions(topics, markers_topic, last)
    else:
        positions = positions_since(topics, topics.partitions_of(markers_topic), since_ms)
    for record in scan_markers(kafka, topics, markers_topic, positions, follow=follow):
        if wanted(record):
            yield record


def read_quarantine(
    kafka: Mapping[str, str],
    *,
    markers_topic: str = DEFAULT_MARKERS_TOPIC,
    last: int | None = None,
    limit: int = 200,
) -> tuple[MarkerRecord, ...]:
    """Returns the latest ``limit`` records that are no valid markers, the latest first.

    ``last`` records of each partition are searched; None: all. Nothing is changed.

    Raises:
        TopicNotFound: the markers topic does not exist.
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    found = read_markers(kafka, markers_topic=markers_topic, quarantined=True, last=last)
    latest = nlargest(limit, found, key=lambda one: (one.at_ms, one.partition, one.offset))
    return tuple(latest)


def scan_markers(
    kafka: Mapping[str, str],
    topics: ClusterAdmin,
    markers_topic: str,
    positions: Mapping[int, int],
    *,
    stops: Mapping[int, int] | None = None,
    follow: bool = False,
    only: Callable[[bytes | None], bool] = lambda key: True,
) -> Iterator[MarkerRecord]:
    """Yields the records from the given positions by partition, up to the ends or to ``stops``.

    Records with other keys are not decoded.
    """
    for message in read_log(kafka, topics, markers_topic, positions, stops=stops, follow=follow):
        if only(message.key()):
            at_ms, number = message.timestamp()[1], int(message.partition() or 0)
            yield decoded(number, offset_of(message), at_ms, message.key(), message.value())


def decoded(partition: int, offset: int, at_ms: int, key: bytes | None, value: bytes | None) -> MarkerRecord:
    """Returns a record of the markers topic with its marker, or with the reason of its quarantine."""
    place: dict[str, Any] = {"partition": partition, "offset": offset, "at_ms": at_ms}
    try:
        marker = wire.decode(key, value)
    except InvalidMarker as why:
        return MarkerRecord(**place, marker=None, error=str(why))
    if isinstance(marker, wire.MarkerV1):
        return MarkerRecord(**place, marker=None, of_one_message=marker)
    return MarkerRecord(**place, marker=marker)
