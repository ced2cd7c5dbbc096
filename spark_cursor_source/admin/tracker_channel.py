"""Something said to the tracker by an operator, and the cursors that answer."""

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
    """One thread's. What is told is in the markers topic, and done as soon as a tracker has read it."""

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
        """The cursors of a subscription as they are now, of one topic or of all; none, maybe.

        Raises:
            TrackedElsewhere: another markers topic's tracker has them.
        """
        self._cursors.refresh_until(lambda: self._cursors.of(subscription=subscription, topic=topic))
        return tracked_here(self._cursors.of(subscription=subscription, topic=topic), self._markers_topic)

    def unknown(self, subscription: str, topic: str | None = None) -> CursorqError:
        """The error that there is no such cursor."""
        return self._cursors.unknown(subscription=subscription, topic=topic)

    def tell(self, markers: Sequence[Marker]) -> dict[Cell, CursorSnapshot | None]:
        """Write markers, and wait for the cursors of their cells that hold their effect.

        Raises:
            NoTracker: none has read them in time; they stand, and take effect when one does.
            MarkersNotDurable: the tracker may not have been told.
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
        """End the clients."""
        self._sender.close()
        self._cursors.close()

    def _answers(self, cells: Sequence[Cell]) -> dict[Cell, CursorSnapshot | None]:
        homes = {self._cursors.home(cell.key)[0] for cell in cells}
        # Offsets of a transaction can be seen before its records may be read.
        self._cursors.catch_up(homes, Deadline.after_ms(self._timeout_ms))
        return {cell: self._cursors.get(cell) for cell in cells}
