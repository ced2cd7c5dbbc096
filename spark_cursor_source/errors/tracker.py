"""A tracker that is not there, or is one too many."""

from __future__ import annotations

from spark_cursor_source.errors.kafka import KafkaFailure
from spark_cursor_source.errors.source import SourceError


class TrackerOwnedByAnother(KafkaFailure):
    """What a tracker of another checkpoint has done is newer than this checkpoint."""

    def __init__(self, markers_topic: str, owner: str, stale: bool = False) -> None:
        super().__init__(markers_topic, owner, stale)
        self.markers_topic, self.owner, self.stale = markers_topic, owner, stale

    def __str__(self) -> str:
        owned = f"markers topic '{self.markers_topic}' belongs to the tracker {self.owner}"
        if self.stale:
            return (
                f"{owned}, which has gone on where this checkpoint stopped; use the checkpointLocation of "
                "that tracker, or a new one with takeOver=true: it begins with the cursors, and loses nothing"
            )
        return (
            f"{owned}, of another checkpoint; use the checkpointLocation of that tracker, or, if it is lost, "
            "set takeOver=true once"
        )


class TrackerFenced(KafkaFailure):
    """Another tracker for the same topics was started later; this one ends."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(transactional_id)
        self.transactional_id = transactional_id

    def __str__(self) -> str:
        return (
            f"another tracker was started later with the id '{self.transactional_id}' and has taken over; "
            "run one tracker for these topics, and see which of the two is not wanted"
        )


class NoTracker(SourceError):
    """No tracker answered, so nothing that is not acked would ever come back."""

    def __init__(self, cells: int, waited_ms: int, markers_topic: str, cursors_topic: str) -> None:
        super().__init__(cells, waited_ms, markers_topic, cursors_topic)
        self.cells, self.waited_ms = cells, waited_ms
        self.markers_topic, self.cursors_topic = markers_topic, cursors_topic

    def __str__(self) -> str:
        return (
            f"no tracker answered for {self.cells} queue partitions in {self.waited_ms / 1000:.0f} s: start"
            " one (spark-submit jobs/tracker.py, or cursorq.start_tracker) that reads markers topic"
            f" '{self.markers_topic}' and writes cursors topic '{self.cursors_topic}', or raise"
            " trackerTimeout"
        )


class TrackerSilent(NoTracker):
    """No tracker has read a marker for as long as ``failWithoutTracker`` says."""

    def __init__(self, waited_ms: int, markers_topic: str, cursors_topic: str) -> None:
        super().__init__(0, waited_ms, markers_topic, cursors_topic)
        self.args = (waited_ms, markers_topic, cursors_topic)

    def __str__(self) -> str:
        return (
            f"no tracker has read a marker for {self.waited_ms / 1000:.0f} s (option failWithoutTracker), and"
            " what is not acked does not come back meanwhile: start one with its checkpointLocation"
            " (spark-submit jobs/tracker.py, or cursorq.start_tracker) that reads markers topic"
            f" '{self.markers_topic}' and writes cursors topic '{self.cursors_topic}', then start this query"
            " again with its checkpoint"
        )
