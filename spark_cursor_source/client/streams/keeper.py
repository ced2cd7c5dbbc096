"""Background thread of a client that follows the streams topic and completes publishing."""

from __future__ import annotations

import logging
import threading

from spark_cursor_source.core.stream_state import StreamPartition
from spark_cursor_source.errors import ClientClosed, CursorqError
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.topics.streams import StreamStates

log = logging.getLogger(__name__)

FOLLOW_S = 0.5  #: poll interval of the streams topic in seconds: the maximum age of a client's pause state


class StreamKeeper:
    """Follows the streams topic from :meth:`start` to :meth:`close`. Threads may share a keeper.

    Each round ends pauses that this client learned of only after it published to the partition. Each round
    trims the streams with a ``retention_messages`` limit. A failed round is logged and retried in the next.
    """

    def __init__(self, states: StreamStates, topics: ClusterAdmin) -> None:
        self._states, self._topics = states, topics
        self._lock = threading.Lock()
        self._published: dict[StreamPartition, int | None] = {}  # -> the offset after it, if known
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, deadline: Deadline) -> None:
        """Reads the streams topic and starts to follow the topic. Another start has no effect.

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
        """Records that a message was appended to a partition, with its offset if known."""
        with self._lock:
            self._published[place] = self._published.get(place) if offset is None else offset + 1

    def forget(self, stream: str) -> None:
        """Drops the recorded messages of a stream that is deleted or about to be paused."""
        with self._lock:
            for place in [place for place in self._published if place[0] == stream]:
                del self._published[place]

    def close(self) -> None:
        """Runs a last round and ends the thread."""
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
                log.warning(
                    "The streams topic cannot be read and is retried. event=streams_topic_unreadable why=%s",
                    why,
                )
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
