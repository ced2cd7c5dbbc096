"""A thread that follows the streams topic, and does what publishing has left to be done."""

from __future__ import annotations

import logging
import threading

from spark_cursor_source.core.stream_state import StreamPartition
from spark_cursor_source.errors import ClientClosed, CursorqError
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.topics.streams import StreamStates

log = logging.getLogger(__name__)

FOLLOW_S = 0.5  #: how often; so old can be what a client knows of pauses


class StreamKeeper:
    """It works from :meth:`start` to :meth:`close`; threads may share it.

    Each round ends the pauses of partitions that were published to before the pause was known here, and
    trims the streams that keep a number of messages. What fails is logged, and tried again in the next round.
    """

    def __init__(self, states: StreamStates, topics: ClusterAdmin) -> None:
        self._states, self._topics = states, topics
        self._lock = threading.Lock()
        self._published: dict[StreamPartition, int | None] = {}  # -> the position behind, where it is known
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, deadline: Deadline) -> None:
        """Read the streams topic, and follow it from now on; to start again does nothing.

        Raises:
            ClientClosed, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        if self._thread is not None and not self._closed.is_set():
            return
        self._states.refresh(deadline)
        with self._lock:
            if self._closed.is_set():
                raise ClientClosed
            if self._thread is None:
                self._thread = threading.Thread(target=self._follow, daemon=True, name="cursorq-streams")
                self._thread.start()

    def published(self, place: StreamPartition, offset: int | None) -> None:
        """A message was added to a partition; its offset, where it is known."""
        with self._lock:
            self._published[place] = self._published.get(place) if offset is None else offset + 1

    def forget(self, stream: str) -> None:
        """What was published to a stream is of no more concern: it was deleted, or is to be paused."""
        with self._lock:
            for place in [place for place in self._published if place[0] == stream]:
                del self._published[place]

    def close(self) -> None:
        """A last round, and the end of the thread."""
        with self._lock:
            self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _follow(self) -> None:
        over = False
        while not over:
            over = self._closed.wait(FOLLOW_S)
            with self._lock:
                published, self._published = self._published, {}
            if over and not published:
                return
            try:
                self._states.refresh()
                self._states.published(published)
                self._trim(published)
            except CursorqError as why:
                log.warning("streams are not followed for now: %s", why)
                with self._lock:
                    self._published = published | self._published

    def _trim(self, published: dict[StreamPartition, int | None]) -> None:
        below: dict[StreamPartition, int] = {}
        for place, position in published.items():
            kept = self._states.view.of(place[0]).kept_offsets
            if kept is not None and position is not None:
                below[place] = position - kept
        below = {place: position for place, position in below.items() if position > 0}
        if below:
            self._topics.delete_records(below)
