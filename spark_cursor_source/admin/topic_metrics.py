"""Metrics that the topics tell: of all subscriptions, of the tracker and of the control topics."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping

from spark_cursor_source.admin.stats import stats_of
from spark_cursor_source.consumer.session import TrackerAddress
from spark_cursor_source.consumer.tracker_watch import TrackerWatch
from spark_cursor_source.core.closing import ClosedAtExit
from spark_cursor_source.core.names import (
    DEFAULT_CURSORS_TOPIC,
    DEFAULT_MARKERS_TOPIC,
    DEFAULT_REDELIVERIES_TOPIC,
)
from spark_cursor_source.core.stats import Stats
from spark_cursor_source.core.subscription_type import DEFAULT_GROUP_ID_PREFIX
from spark_cursor_source.errors import CursorqError, NotAuthorized
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Pace
from spark_cursor_source.metrics import table
from spark_cursor_source.metrics.counts import Counts
from spark_cursor_source.metrics.snapshot import samples_of
from spark_cursor_source.metrics.table import Sample
from spark_cursor_source.topics.cursors import CursorTable

log = logging.getLogger(__name__)

_SETTINGS_MS = 60_000  # interval of the check for changed settings of queue topics


class TopicMetrics(ClosedAtExit):
    """Metrics of what the topics contain, for ``serve_metrics``. The command ``cursorq metrics`` shows them.

    A read changes nothing. It costs new records of the cursors topic, the ends of the logs, one message of
    each partition and the members of each group. ``kafka`` contains options of the Kafka clients. The tracker
    counts as down after ``tracker_timeout_ms`` in which it read no marker although markers wait. Threads may
    share an object; their reads wait for each other.

    Example::

        from spark_cursor_source.admin import TopicMetrics
        from spark_cursor_source.metrics import openmetrics

        with TopicMetrics({"bootstrap.servers": "broker:9092"}) as topics:
            print(openmetrics(topics.metrics()))
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        *,
        subscription: str | None = None,
        topic: str | None = None,
        markers_topic: str = DEFAULT_MARKERS_TOPIC,
        redeliveries_topic: str = DEFAULT_REDELIVERIES_TOPIC,
        cursors_topic: str = DEFAULT_CURSORS_TOPIC,
        group_id_prefix: str = DEFAULT_GROUP_ID_PREFIX,
        tracker_timeout_ms: int = 60_000,
    ) -> None:
        self._kafka = dict(kafka)
        self._subscription, self._topic = subscription, topic
        self._markers_topic, self._cursors_topic = markers_topic, cursors_topic
        self._control_topics = (markers_topic, redeliveries_topic, cursors_topic)
        self._group_id_prefix = group_id_prefix
        self._admin = ClusterAdmin(client_config(kafka, "admin"))
        address = TrackerAddress(
            markers_topic=markers_topic, cursors_topic=cursors_topic, timeout_ms=tracker_timeout_ms
        )
        self._watch = TrackerWatch(self._admin, address)
        self._lock = threading.Lock()
        self._table: CursorTable | None = None
        self._counts = Counts()
        self._settings = Pace(_SETTINGS_MS)
        self._retention_ms: dict[str, int | None] = {}
        self._is_failing = False

    def metrics(self) -> list[Sample]:
        """Returns the metrics as of now. While the topics cannot be read, ``cursorq_exporter_up`` is 0.

        The error is logged when it begins. See :meth:`read` for a read that raises.
        """
        with self._lock:
            try:
                found = self._read()
            except CursorqError as why:
                self._drop()
                if not self._is_failing:
                    log.warning("The topics cannot be read. event=metrics_unreadable why=%s", why)
                self._is_failing = True
                found = []
            else:
                self._is_failing = False
            return [Sample(table.EXPORTER_UP, (), not self._is_failing), *found, *self._counts.samples()]

    def read(self) -> list[Sample]:
        """Returns the metrics as of now.

        Raises:
            TopicNotFound: the cursors topic or the markers topic does not exist.
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        with self._lock:
            return [Sample(table.EXPORTER_UP, (), True), *self._read(), *self._counts.samples()]

    def close(self) -> None:
        """Closes the Kafka clients. Another close has no effect."""
        with self._lock:
            self._drop()

    def _read(self) -> list[Sample]:
        began = time.monotonic()
        stats = self._stats()
        found = [
            *samples_of(stats, control_topics=self._control_topics, retention_ms=self._retention(stats)),
            *(() if stats.markers_unread is None else self._tracker()),
        ]
        self._counts.observe(table.READ_SECONDS, seconds=time.monotonic() - began)
        return found

    def _stats(self) -> Stats:
        if self._table is None:
            self._admin.meet()
            self._table = CursorTable(client_config(self._kafka, "consumer"), self._cursors_topic)
        began = time.monotonic()
        self._table.refresh()
        self._counts.observe(table.CURSOR_FETCH, seconds=time.monotonic() - began)
        return stats_of(
            self._table.of(subscription=self._subscription, topic=self._topic),
            self._kafka,
            markers_topic=self._markers_topic,
            group_id_prefix=self._group_id_prefix,
            control_topics=self._control_topics,
        )

    def _tracker(self) -> Iterator[Sample]:
        self._watch.look()
        silent_ms = self._watch.silent_ms
        yield Sample(table.TRACKER_UP, (), silent_ms is None)
        yield Sample(table.TRACKER_SILENT, (), (silent_ms or 0) / 1000)

    def _retention(self, stats: Stats) -> dict[str, int]:
        """Returns the retention by time in ms of the topics that delete their oldest messages."""
        if self._settings.is_time():
            self._retention_ms.clear()
        for topic in {one.topic for one in stats.subscriptions if one.backlog is not None}:
            if topic not in self._retention_ms:
                self._retention_ms[topic] = self._retention_of(topic)
        return {topic: ms for topic, ms in self._retention_ms.items() if ms is not None}

    def _retention_of(self, topic: str) -> int | None:
        try:
            settings = self._admin.settings(topic)
        except NotAuthorized:
            return None  # the metric is absent then
        retention_ms = int(settings.get("retention.ms") or -1)
        deletes = "delete" in (settings.get("cleanup.policy") or "")
        return retention_ms if deletes and retention_ms >= 0 else None

    def _drop(self) -> None:
        if self._table is not None:
            self._table.close()
            self._table = None
