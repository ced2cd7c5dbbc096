"""Reader of partitions of the markers topic from given positions on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spark_cursor_source.core.marker import Marker
from spark_cursor_source.errors import InvalidMarker, TransactionStaysOpen
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.kafka.reading import offset_of
from spark_cursor_source.wire.marker import MarkerV1, decode


class MarkerFollower:
    """Reads what has been appended to partitions of the markers topic since the last read. Not thread-safe.

    ``positions`` are the offsets where the first read of each partition begins.
    """

    def __init__(self, config: Mapping[str, Any], topic: str, positions: Mapping[int, int]) -> None:
        self._config, self._topic = dict(config), topic
        self._topics = ClusterAdmin(self._config, timeout_ms=PATIENCE_MS)
        self._reader: RangeReader | None = None
        self._next = dict(positions)

    def begin_at(self, number: int, position: int) -> None:
        """Reads a partition from this position, or from an earlier one where it is read already."""
        self._next[number] = min(position, self._next.get(number, position))

    def read(
        self, numbers: Iterable[int], *, until: Deadline | None = None
    ) -> Iterator[tuple[Marker | MarkerV1, int]]:
        """Yields the markers in these partitions up to their present ends, with their offsets.

        An open transaction hides the markers behind it. With ``until``, the call waits for transactions that
        are open now. Records that are no markers are skipped: the tracker quarantines them.

        Raises:
            TransactionStaysOpen: a transaction is still open at the deadline.
            NotAuthorized, TopicNotFound
        """
        places = [(self._topic, number) for number in sorted(set(numbers))]
        if until is None:
            ends = self._topics.end_offsets(places, committed=True)
        else:
            ends, settled = self._topics.settled_ends(places, until)
            if not settled:
                raise TransactionStaysOpen(f"read markers topic '{self._topic}'", until.spent_ms)
        ranges = {
            number: (self._next[number], end) for (_, number), end in ends.items() if end > self._next[number]
        }
        if not ranges:
            return
        if self._reader is None:
            self._reader = RangeReader(self._config, committed=True)
        for record in self._reader.read(self._topic, ranges):
            try:
                marker = decode(record.key(), record.value())
            except InvalidMarker:
                continue
            yield marker, offset_of(record)
        self._next |= {number: end for number, (_, end) in ranges.items()}

    def close(self) -> None:
        """Closes the consumer. The next read opens another one."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
