"""Operator commands to the tracker, and the cursors that confirm them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import Marker
from spark_cursor_source.errors import CursorqError, NoTracker
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.topics.cursors import CursorTable, tracked_here
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.topics.tracker_progress import reads_all_about


class TrackerChannel:
    """Writes commands as markers, which take effect when a tracker reads them. Not thread-safe."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        topics: ClusterAdmin,
        *,
        markers_topic: str,
        cursors_topic: str,
        timeout_ms: int,
    ) -> None:
        self._topics = topics
        self._markers_topic, self._cursors_topic = markers_topic, cursors_topic
        self._timeout_ms = timeout_ms
        partitions = topics.describe([markers_topic])[markers_topic].partitions
        self._sender = MarkerSender(client_config(kafka, "producer"), markers_topic, partitions)
        self._cursors = CursorTable(client_config(kafka, "consumer"), cursors_topic)

    def find(self, subscription: str, topic: str | None = None) -> dict[Cell, CursorSnapshot]:
        """Returns the present cursors of a subscription, of one topic or of all; may be empty.

        Raises:
            TrackedElsewhere: the tracker of another markers topic has the cursors.
        """
        self._cursors.refresh_until(lambda: self._cursors.of(subscription=subscription, topic=topic))
        return tracked_here(self._cursors.of(subscription=subscription, topic=topic), self._markers_topic)

    def unknown(self, subscription: str, topic: str | None = None) -> CursorqError:
        """Returns the error for a subscription without a cursor."""
        return self._cursors.unknown(subscription=subscription, topic=topic)

    def tell(self, markers: Sequence[Marker]) -> dict[Cell, CursorSnapshot | None]:
        """Writes markers and waits for the cursors that include their effect. Returns these cursors by cell.

        Raises:
            NoTracker: no tracker has read the markers in time; they take effect when a tracker runs.
            MarkersNotDurable: the markers are not confirmed, so the tracker may not receive them.
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        self._sender.send(markers)
        self._sender.flush()
        cells = list(dict.fromkeys(marker.cell for marker in markers))
        topic = self._markers_topic
        if not reads_all_about(self._topics, topic, cells, timeout_ms=self._timeout_ms):
            raise NoTracker(len(cells), self._timeout_ms, topic, self._cursors_topic)
        return self._answers(cells)

    def close(self) -> None:
        """Closes the clients."""
        self._sender.close()
        self._cursors.close()

    def _answers(self, cells: Sequence[Cell]) -> dict[Cell, CursorSnapshot | None]:
        homes = {self._cursors.home(cell.key)[0] for cell in cells}
        # The offsets of a transaction can become visible before its records are readable.
        self._cursors.catch_up(homes, Deadline.after_ms(self._timeout_ms))
        return {cell: self._cursors.get(cell) for cell in cells}
