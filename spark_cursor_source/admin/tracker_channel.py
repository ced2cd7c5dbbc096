"""Operator commands to the tracker, and the cursors that confirm them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import Marker
from spark_cursor_source.errors import CommandWaits, CursorqError, KafkaUnavailable, TrackerBehind
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.rights import DESCRIBE, WRITE
from spark_cursor_source.options.arguments import check_text
from spark_cursor_source.topics.authors import author_of, new_action
from spark_cursor_source.topics.cursors import CursorTable, tracked_here
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.topics.tracker_progress import reads_all_about, unread_partitions

TRACKER_TIMEOUT_MS = 60_000


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
        author: str | None = None,
    ) -> None:
        """``author`` is who acts; it is written with the markers of a named action."""
        self._topics = topics
        self._markers_topic, self._cursors_topic = markers_topic, cursors_topic
        self._timeout_ms, self._author = timeout_ms, author
        partitions = topics.describe([markers_topic])[markers_topic].partitions
        self._sender = MarkerSender(client_config(kafka, "producer"), markers_topic, partitions)
        self._cursors = CursorTable(client_config(kafka, "consumer"), cursors_topic)

    def find(self, subscription: str, topic: str | None = None) -> dict[Cell, CursorSnapshot]:
        """Returns the present cursors of a subscription, of one topic or of all; may be empty.

        Raises:
            InvalidArgument: ``subscription`` is not a text with UTF-8 bytes. None would select all.
            TrackedElsewhere: the tracker of another markers topic has the cursors.
        """
        check_text("subscription", subscription)
        if topic is not None:
            check_text("topic", topic)
        self._cursors.refresh_until(lambda: self._cursors.of(subscription=subscription, topic=topic))
        return tracked_here(self._cursors.of(subscription=subscription, topic=topic), self._markers_topic)

    def known(self, subscription: str, topic: str | None = None) -> dict[Cell, CursorSnapshot]:
        """Returns the present cursors of a subscription, of one topic or of all.

        Raises:
            InvalidArgument: as :meth:`find`.
            UnknownSubscription: there are none.
            TrackedElsewhere: the tracker of another markers topic has the cursors.
        """
        found = self.find(subscription, topic)
        if not found:
            raise self.unknown(subscription, topic)
        return found

    def unknown(self, subscription: str, topic: str | None = None) -> CursorqError:
        """Returns the error for a subscription without a cursor."""
        return self._cursors.unknown(subscription=subscription, topic=topic)

    def latest_marker_ms(self) -> int | None:
        """Returns the time of the newest marker by the brokers' clock; None: there is no marker."""
        topic = self._markers_topic
        return self._topics.newest_ms(self._topics.partitions_of(topic)).get(topic)

    def unread_partitions(self) -> frozenset[int]:
        """Returns the markers partitions in which commands may wait: the tracker has not read all."""
        return unread_partitions(self._topics, self._markers_topic)

    def catch_up(self, cells: Collection[Cell] | None = None) -> None:
        """Waits for the cursors that include all markers stored now, of these cells; None: of all.

        A command that depends on the cursors calls it first, because an earlier command may still wait.

        Raises:
            TrackerBehind: no tracker has read the markers in time.
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        topic = self._markers_topic
        if not reads_all_about(self._topics, topic, cells, timeout_ms=self._timeout_ms):
            raise TrackerBehind(self._timeout_ms, topic, self._cursors_topic)
        if cells is None:
            self._cursors.refresh_all(Deadline.after_ms(self._timeout_ms))
        else:
            self._answers(cells)

    def check_rights(self) -> None:
        """Checks the right to write markers, before an action changes anything.

        Without it, the brokers' answer to a write only says that idempotent writes are not allowed.

        Raises:
            NotAuthorized
        """
        self._topics.check_rights({self._markers_topic: (DESCRIBE, WRITE)})

    def send(self, markers: Sequence[Marker], *, what: str = "") -> None:
        """Writes markers. ``what`` names the operator's action in words.

        Raises:
            MarkersNotDurable: the markers are not confirmed, so the tracker may not receive them.
            NotAuthorized: the markers may not be written.
        """
        self.check_rights()
        action = new_action(self._author, what).headers() if self._author and what else None
        self._sender.write(markers, action)

    def tell(self, markers: Sequence[Marker], *, what: str = "") -> dict[Cell, CursorSnapshot | None]:
        """Writes markers and waits for the cursors that include their effect. Returns these cursors by cell.

        Raises:
            CommandWaits: no tracker has read the markers in time, or the brokers do not say so; they take
                effect when a tracker runs.
            MarkersNotDurable: the markers are not confirmed, so the tracker may not receive them.
            NotAuthorized, KafkaRefused
            KafkaUnavailable: the markers are not written.
        """
        cells = list(dict.fromkeys(marker.cell for marker in markers))
        topic, stored = self._markers_topic, "may be"
        try:
            self.send(markers, what=what)
            stored, waiting = "is", Deadline.after_ms(self._timeout_ms)
            cause: KafkaUnavailable | None = None
            try:
                if reads_all_about(self._topics, topic, cells, timeout_ms=self._timeout_ms):
                    return self._answers(cells)
            except KafkaUnavailable as why:
                cause = why
            raise CommandWaits(len(cells), waiting.spent_ms, topic, self._cursors_topic) from cause
        except KeyboardInterrupt as interrupted:
            interrupted.add_note(
                f"The command {stored} stored in markers topic '{topic}', and takes effect when a tracker "
                "runs, so do not repeat it. 'cursorq audit' lists the stored commands."
            )
            raise

    def close(self) -> None:
        """Closes the clients."""
        self._sender.close()
        self._cursors.close()

    def _answers(self, cells: Collection[Cell]) -> dict[Cell, CursorSnapshot | None]:
        homes = {self._cursors.home(cell.key)[0] for cell in cells}
        # The offsets of a transaction can become visible before its records are readable.
        self._cursors.catch_up(homes, Deadline.after_ms(self._timeout_ms))
        return {cell: self._cursors.get(cell) for cell in cells}


def open_channel(
    kafka: Mapping[str, str],
    *,
    markers_topic: str,
    cursors_topic: str,
    timeout_ms: int = TRACKER_TIMEOUT_MS,
    author: str | None = None,
) -> TrackerChannel:
    """Returns a channel for the actions of an operator; without ``author``, of this user and host.

    Raises:
        TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    config = client_config(kafka, "admin")
    return TrackerChannel(
        kafka,
        ClusterAdmin(config).meet(),
        markers_topic=markers_topic,
        cursors_topic=cursors_topic,
        timeout_ms=timeout_ms,
        author=author_of(config, author),
    )
