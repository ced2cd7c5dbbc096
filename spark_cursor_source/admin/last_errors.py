"""Errors of the last failed deliveries of outstanding messages, from the end of the markers topic."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from spark_cursor_source.admin.marker_log import scan_markers
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import Reject, Release
from spark_cursor_source.core.message_state import MessageState
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.kafka.admin import ClusterAdmin

MOST_MARKERS = 100_000  #: markers that are read in each partition of the markers topic, at most
_MOST_ERRORS = 5_000  # markers with an error that are kept of one cell; the latest ones stay


@dataclass(slots=True)
class _Known:
    """Errors of one cell, from its markers below ``read_to``."""

    read_to: int = 0
    #: messages with an error, the latest error last
    errors: deque[tuple[OffsetSet, str]] = field(default_factory=lambda: deque(maxlen=_MOST_ERRORS))

    def keep(self, outstanding: OffsetSet) -> None:
        """Forgets the messages that are not outstanding any more."""
        kept = [(left, text) for offsets, text in self.errors if (left := offsets & outstanding)]
        self.errors.clear()
        self.errors.extend(kept)

    def of(self, offset: int) -> str | None:
        return next((text for offsets, text in reversed(self.errors) if offset in offsets), None)


class LastErrors:
    """Last errors of the messages of a few cells. A repeated :meth:`read` reads only new markers.

    A cell that was not read before is read from the last 100,000 markers of its partition of the markers
    topic. Not thread-safe.
    """

    def __init__(self, kafka: Mapping[str, str], topics: ClusterAdmin, markers_topic: str) -> None:
        self._kafka, self._topics, self._markers_topic = kafka, topics, markers_topic
        self._known: dict[Cell, _Known] = {}

    def read(self, messages: Iterable[MessageState], outstanding: Mapping[Cell, OffsetSet]) -> None:
        """Reads the errors of the cells of these messages, and forgets all other cells.

        Errors of messages that are not in ``outstanding`` are not kept. Cells whose messages cannot have an
        error are not read.

        Raises:
            TopicNotFound: the markers topic does not exist.
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        wanted = {cell_of(one) for one in messages if may_have_failed(one)} & outstanding.keys()
        self._known = {cell: self._known.get(cell) or _Known() for cell in wanted}
        if not wanted:
            return
        count = len(self._topics.partitions_of(self._markers_topic))
        homes = {cell: cell.control_partition(count) for cell in wanted}
        tps = [(self._markers_topic, number) for number in sorted(set(homes.values()))]
        bounds = self._topics.bounds(tps)
        starts: dict[int, int] = {}
        for cell, number in homes.items():
            begin, end = bounds[self._markers_topic, number]
            start = max(self._known[cell].read_to, begin, end - MOST_MARKERS)
            starts[number] = min(starts.get(number, start), start)
        for cell, known in self._known.items():
            known.keep(outstanding[cell])
        stops = {number: end for (_, number), (_, end) in bounds.items()}
        self._scan(starts, stops, outstanding)
        for cell, known in self._known.items():
            known.read_to = stops[homes[cell]]

    def _scan(
        self, starts: Mapping[int, int], stops: Mapping[int, int], outstanding: Mapping[Cell, OffsetSet]
    ) -> None:
        keys = {cell.key for cell in self._known}
        records = scan_markers(
            self._kafka,
            self._topics,
            self._markers_topic,
            starts,
            stops=stops,
            only=lambda key: key in keys,
        )
        for record in records:
            marker = record.marker
            if not isinstance(marker, (Release, Reject)) or not marker.reason:
                continue
            known = self._known[marker.cell]
            left = marker.offsets & outstanding[marker.cell]
            if left and record.offset >= known.read_to:
                known.errors.append((left, marker.reason))

    def of(self, one: MessageState) -> str | None:
        """Returns the last error of a message; None: it has none, or its cell was not read."""
        known = self._known.get(cell_of(one))
        return None if known is None else known.of(one.offset)

    def tell(self, messages: Iterable[MessageState]) -> tuple[MessageState, ...]:
        """Returns the messages with their last errors. A reason that a message has already stays."""
        return tuple(replace(one, reason=one.reason or self.of(one)) for one in messages)


def may_have_failed(one: MessageState) -> bool:
    """True if an earlier delivery of the message may have ended with an error that its cursor lacks."""
    ended = one.delivery_count - (one.state == "leased")  # deliveries that are over
    return one.reason is None and ended > 0


def cell_of(one: MessageState) -> Cell:
    """Returns the cell of a message."""
    return Cell(subscription=one.subscription, topic=one.topic, partition=one.partition)
