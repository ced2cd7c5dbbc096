"""Metrics that the topics tell: of all subscriptions, of the tracker and of the control topics."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping

from spark_cursor_source.admin.live_stats import LiveStats
from spark_cursor_source.consumer.session import TrackerAddress
from spark_cursor_source.consumer.tracker_watch import TrackerWatch
from spark_cursor_source.core.closing import ClosedAtExit
from spark_cursor_source.core.control_names import AllNames
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
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.metrics import table
from spark_cursor_source.metrics.counts import Counts
from spark_cursor_source.metrics.snapshot import samples_of
from spark_cursor_source.metrics.table import Sample

log = logging.getLogger(__name__)

_SETTINGS_MS = 60_000  # interval of the check for changed settings of queue topics
_BUDGET_MS = 150  # of each of three kinds of requests whose number grows with the subscriptions
_TIMEOUT_MS = 30_000


class TopicMetrics(ClosedAtExit):
    """Metrics of what the topics contain, for ``serve_metrics``. The command ``cursorq metrics`` shows them.

    A read changes nothing. The first read costs the whole cursors topic, one message of each partition and
    the settings of each topic. Later reads cost what has changed: new records of the cursors topic, the ends
    of the logs, messages that became the oldest ones, and the members of the groups. If more has changed than
    half a second is enough for, the age of some oldest messages and some consumers are those of an earlier
    read. ``kafka`` contains options of the Kafka clients. The tracker counts as down after
    ``tracker_timeout_ms`` in which it read no marker although markers wait. Threads may share an object;
    their reads wait for each other.

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
        self._names: AllNames = {
            "markers_topic": markers_topic,
            "redeliveries_topic": redeliveries_topic,
            "cursors_topic": cursors_topic,
            "group_id_prefix": group_id_prefix,
        }
        self._control_topics = (markers_topic, redeliveries_topic, cursors_topic)
        self._admin = ClusterAdmin(client_config(kafka, "admin"))
        address = TrackerAddress(
            markers_topic=markers_topic, cursors_topic=cursors_topic, timeout_ms=tracker_timeout_ms
        )
        self._watch = TrackerWatch(self._admin, address)
        self._lock = threading.Lock()
        self._live: LiveStats | None = None
        self._counts = Counts()
        self._retention_ms: dict[str, int | None] = {}
        self._fresh: dict[str, Deadline] = {}  # until when the retention of a topic is good enough
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
        is_first = self._live is None
        stats = self._stats()
        retention_ms = self._retention(stats, None if is_first else Deadline.after_ms(_BUDGET_MS))
        found = [
            *samples_of(stats, control_topics=self._control_topics, retention_ms=retention_ms),
            *(() if stats.markers_unread is None else self._tracker()),
        ]
        self._counts.observe(table.READ_SECONDS, seconds=time.monotonic() - began)
        return found

    def _stats(self) -> Stats:
        budget_ms: int | None = _BUDGET_MS
        if self._live is None:
            self._admin.meet()
            budget_ms = None  # the first read is complete
            self._live = LiveStats(
                self._kafka,
                **self._names,
                timeout_ms=_TIMEOUT_MS,
                subscription=self._subscription,
                topic=self._topic,
                sizes=True,
            )
        view = self._live.refresh(budget_ms=budget_ms)
        self._counts.observe(table.CURSOR_FETCH, seconds=view.fetch_s)
        return view.stats

    def _tracker(self) -> Iterator[Sample]:
        self._watch.look()
        silent_ms = self._watch.silent_ms
        yield Sample(table.TRACKER_UP, (), silent_ms is None)
        yield Sample(table.TRACKER_SILENT, (), (silent_ms or 0) / 1000)

    def _retention(self, stats: Stats, deadline: Deadline | None) -> dict[str, int]:
        """Returns the retention by time in ms of the topics that delete their oldest messages."""
        topics = {one.topic for one in stats.subscriptions if one.backlog is not None}
        for gone in self._fresh.keys() - topics:
            del self._fresh[gone], self._retention_ms[gone]
        turn = [topic for topic in topics if topic not in self._fresh]
        turn += [topic for topic, fresh in self._fresh.items() if fresh.over]
        for topic in turn:
            self._fresh.pop(topic, None)
            self._retention_ms[topic] = self._retention_of(topic)
            self._fresh[topic] = Deadline.after_ms(_SETTINGS_MS)
            if deadline is not None and deadline.over:
                break
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
        if self._live is not None:
            self._live.close()
            self._live = None
