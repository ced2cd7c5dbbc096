"""Monitoring of the tracker: its unread markers, and the time since it last read one."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from spark_cursor_source.consumer.session import TrackerAddress
from spark_cursor_source.errors import KafkaUnavailable, NotAuthorized, TopicNotFound, TrackerSilent
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import Deadline, Pace
from spark_cursor_source.topics.tracker_progress import read_progress

log = logging.getLogger(__name__)
_ANSWER_MS = 3_000  # limit for one check: a slow broker must not hold up a query
_DENIED_MS = 5_000  # of the first check: a missing right is told only after it has been denied for a while


def unread_markers(topics: ClusterAdmin, markers_topic: str) -> tuple[int, Mapping[int, int]]:
    """Returns the number of markers that the tracker has not read, and its positions by partition.

    Markers behind an open transaction do not count, because the tracker cannot read them yet.

    Raises:
        NotAuthorized: the client may not describe the tracker's consumer group.
        TopicNotFound, KafkaUnavailable
    """
    positions = read_progress(topics, markers_topic, stable=False).next_markers
    bounds = topics.bounds(topics.partitions_of(markers_topic))
    unread = sum(max(0, end - positions.get(tp[1], begin)) for tp, (begin, end) in bounds.items())
    return unread, positions


class TrackerWatch:
    """Warns once if the tracker reads no marker for ``trackerTimeout`` although markers wait.

    After ``fail_ms`` without a read marker, :meth:`look` raises. ``answers_first`` is True if the tracker has
    to answer before the first look. That look then takes place an interval later. Not thread-safe.
    """

    def __init__(
        self,
        topics: ClusterAdmin,
        tracker: TrackerAddress,
        *,
        fail_ms: int | None = None,
        answers_first: bool = False,
    ) -> None:
        self._topics = topics
        self._tracker = tracker
        self._fail_ms = fail_ms
        every_ms = max(min(tracker.timeout_ms, fail_ms or tracker.timeout_ms) // 10, 100)
        self._look = Pace(every_ms, first_after_ms=every_ms if answers_first else 0)
        self._positions: Mapping[int, int] = {}
        self._silent: Deadline | None = None  # started when the tracker stopped reading although markers wait
        self._may_ask = True
        self._has_answer = False  # True after the first answer: the rights were there
        self.silent_ms: int | None = None  #: ms without a read marker, if above the timeout; otherwise None

    def look(self) -> None:
        """Checks the tracker's progress, at intervals.

        Raises:
            TrackerSilent: the tracker has read no marker for ``fail_ms``.
            NotAuthorized: the tracker's progress may not be read, and ``fail_ms`` is set.
        """
        if not self._may_ask or not self._look.is_time():
            return
        answer_ms = _ANSWER_MS if self._has_answer else _DENIED_MS
        topics = self._topics.within(Deadline.after_ms(answer_ms))
        try:
            unread, positions = unread_markers(topics, self._tracker.markers_topic)
        except NotAuthorized as denied:
            if self._fail_ms is not None:
                raise
            self._may_ask = False
            log.info(
                "The query cannot see whether a tracker runs. Grant Describe on the markers topic and "
                "on the tracker group. event=tracker_not_watched why=%s",
                denied,
            )
            return
        except (KafkaUnavailable, TopicNotFound):
            # Callers that need the brokers or the topic raise their own errors. The tracker could not read
            # while the brokers were unavailable either.
            if self._silent is not None:
                self._silent = Deadline.after_ms(self._tracker.timeout_ms)
            return
        self._has_answer = True
        if not unread or self._silent is None or positions != self._positions:
            self._positions = positions
            self._silent = Deadline.after_ms(self._tracker.timeout_ms) if unread else None
            self._is_back(unread)
        elif self._silent.over:
            self._is_silent(unread, self._silent.spent_ms)
        if self._silent is not None and self._fail_ms is not None and self._silent.spent_ms >= self._fail_ms:
            tracker = self._tracker
            raise TrackerSilent(self._silent.spent_ms, tracker.markers_topic, tracker.cursors_topic)

    def _is_back(self, unread: int) -> None:
        if self.silent_ms is not None:
            log.info(
                "A tracker reads markers again. event=tracker_resumed markers_topic=%s unread=%d",
                self._tracker.markers_topic,
                unread,
            )
        self.silent_ms = None

    def _is_silent(self, unread: int, silent_ms: int) -> None:
        if self.silent_ms is None:
            log.warning(
                "No tracker has read markers lately, so unacknowledged messages are not redelivered. "
                "Check that the tracker runs, or start it (cursorq tracker, Tracker of "
                "spark_cursor_source.tracker, or with Spark and its checkpointLocation jobs/tracker.py). "
                "event=tracker_silent markers_topic=%s "
                "unread=%d silent_s=%.0f",
                self._tracker.markers_topic,
                unread,
                silent_ms / 1000,
            )
        self.silent_ms = silent_ms
