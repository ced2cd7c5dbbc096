"""Check before acks are written: the acked messages must exist."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.settling import Settling
from spark_cursor_source.errors import (
    InvalidControlRecord,
    LaterCursorVersion,
    NoSuchMessages,
    NotAuthorized,
    NotOfSubscription,
    TopicGone,
    TopicNotFound,
    UnknownSubscription,
)
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import PATIENCE_MS
from spark_cursor_source.kafka.pool import ClientPool
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.tracker_progress import reads_all_about

log = logging.getLogger(__name__)
_NO_END = 2**63 - 1
_KEPT = 4
_TRACKER_MS = 10_000  # normal tracker lag is about a second; acks must not block on a tracker that is down


class AckCheck:
    """Caches known offsets per cell, so that the brokers are only queried for new cells and later offsets.

    A cell has a cursor after the tracker has read the Hello of its query. The first messages of a new
    subscription can be delivered before that, so the check waits for the tracker. An offset must be below the
    end of the queue topic. It may be at or above the read position of the cursor, because the tracker may
    lag.
    """

    def __init__(self, config: Mapping[str, Any], cursors_topic: str, markers_topic: str) -> None:
        self._config, self._cursors_topic, self._markers_topic = dict(config), cursors_topic, markers_topic
        self._topics = ClusterAdmin(config, timeout_ms=PATIENCE_MS)
        # for each cell, an offset below which every offset exists or existed
        self._known: dict[Cell, int] = {}

    def check(self, acked: Mapping[Cell, OffsetSet]) -> None:
        """Rejects acks of messages that cannot exist. An empty offset set checks the cell only.

        Raises:
            UnknownSubscription, NotOfSubscription: the subscription does not exist, or not for that
                partition.
            NoSuchMessages: offsets are beyond the end of the queue topic.
            KafkaUnavailable
        """
        unknown = [cell for cell in acked if cell not in self._known]
        if unknown:
            self._look_for(unknown)
        later = [cell for cell, offsets in acked.items() if (offsets.last or 0) >= self._known[cell]]
        if later:
            self._look_at_ends(later)
        for cell in later:
            beyond = acked[cell].starting_at(self._known[cell])
            if beyond:
                raise NoSuchMessages(cell.topic, cell.partition, _shown(beyond), self._known[cell])

    def _look_for(self, cells: Sequence[Cell]) -> None:
        try:
            with closing(CursorTable(self._config, self._cursors_topic, timeout_ms=PATIENCE_MS)) as cursors:
                cursors.refresh()
                missing = [cell for cell in cells if not self._is_there(cursors, cell)]
                if not missing or (
                    self._tracker_knows(missing)
                    and cursors.refresh_until(lambda: all(self._is_there(cursors, cell) for cell in missing))
                ):
                    for cell in cells:
                        self._known[cell] = self._position(cursors, cell)
                else:
                    self._known |= dict.fromkeys(cells, _NO_END)
        except TopicNotFound as missing:
            raise UnknownSubscription(cells[0].subscription, None, self._cursors_topic, ()) from missing
        except NotAuthorized as denied:
            log.warning(
                "Acks are written without a check that their messages exist. event=acks_not_checked "
                "cursors_topic=%s why=%s",
                self._cursors_topic,
                denied,
            )
            self._known |= dict.fromkeys(cells, _NO_END)

    def _tracker_knows(self, cells: Sequence[Cell]) -> bool:
        """Waits until the tracker has read all markers of the cells. Returns False after a timeout."""
        if reads_all_about(self._topics, self._markers_topic, cells, timeout_ms=_TRACKER_MS):
            return True
        why = f"no tracker has read all of it in {_TRACKER_MS} ms"
        log.warning(
            "Acks are written without a check that their messages exist. event=acks_not_checked "
            "markers_topic=%s why=%s",
            self._markers_topic,
            why,
        )
        return False

    @staticmethod
    def _is_there(cursors: CursorTable, cell: Cell) -> bool:
        try:
            return cursors.get(cell) is not None
        except (LaterCursorVersion, InvalidControlRecord):
            return True

    def _position(self, cursors: CursorTable, cell: Cell) -> int:
        try:
            cursor = cursors.get(cell)
        except (LaterCursorVersion, InvalidControlRecord):
            return 0  # the cursor exists, which is sufficient here
        if cursor is not None:
            return cursor.read_position
        known = cursors.all()
        partitions = [
            other for other in known if (other.subscription, other.topic) == (cell.subscription, cell.topic)
        ]
        if partitions:
            numbers = ", ".join(map(str, sorted(other.partition for other in partitions)))
            what = f"partition {cell.partition} of topic '{cell.topic}'"
            raise NotOfSubscription(cell.subscription, what, f"partitions {numbers}")
        topics = sorted({other.topic for other in known if other.subscription == cell.subscription})
        if topics:
            raise NotOfSubscription(cell.subscription, f"topic '{cell.topic}'", ", ".join(topics))
        names = tuple(sorted({other.subscription for other in known}))
        raise UnknownSubscription(cell.subscription, None, self._cursors_topic, names)

    def _look_at_ends(self, cells: Sequence[Cell]) -> None:
        partitions = {cell.topic_partition: cell for cell in cells}
        try:
            ends = self._topics.end_offsets(list(partitions), committed=False)
        except (TopicNotFound, TopicGone, NotAuthorized) as why:
            # A deleted topic still has a cursor, and acks of its messages are harmless.
            log.debug("The ends of the queue topics are unknown. event=ends_not_known why=%s", why)
            ends = dict.fromkeys(partitions, _NO_END)
        for tp, cell in partitions.items():
            self._known[cell] = max(self._known[cell], ends[tp])


def check_acks(
    config: Mapping[str, Any], cursors_topic: str, markers_topic: str, markers: Iterable[Settling]
) -> None:
    """Runs :meth:`AckCheck.check` for the messages of markers, with the cache of this process."""
    acked: dict[Cell, OffsetSet] = {}
    for marker in markers:
        acked[marker.cell] = acked.get(marker.cell, EMPTY) | marker.offsets
    check_cells(config, cursors_topic, markers_topic, acked)


def check_cells(
    config: Mapping[str, Any], cursors_topic: str, markers_topic: str, acked: Mapping[Cell, OffsetSet]
) -> None:
    """Runs :meth:`AckCheck.check` for offset sets by cell, with the cache of this process."""
    if not acked:
        return
    key = frozenset(config.items()), cursors_topic, markers_topic
    with _idle.lend(key, lambda: AckCheck(config, cursors_topic, markers_topic)) as check:
        check.check(acked)


def _shown(offsets: OffsetSet) -> str:
    first = [str(offset) for offset, _ in zip(offsets, range(4), strict=False)]
    if len(first) == len(offsets):
        return ", ".join(first)
    return f"{', '.join(first[:3])} and {len(offsets) - 3} more"


_idle: ClientPool[AckCheck] = ClientPool(lambda check: None, kept=_KEPT)
