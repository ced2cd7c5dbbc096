"""Present time of the brokers, asked with markers without effect."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.errors import CursorqError, MarkersNotDurable
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.tracker.marker_clocks import monotonic_ms
from spark_cursor_source.tracker.watch import without_effect

_ASK_EVERY_MS = 600_000  # in ten minutes, the clocks of two computers drift apart by less than 60 ms


class BrokersTime:
    """Clock of the brokers for decisions about retention, which each broker makes by its own clock.

    The time is the append time of a marker, advanced by the monotonic clock of this process. The wall clock
    of this machine has no part in it. One marker goes to each broker that leads a markers partition with a
    cell, and the latest answer counts. If the brokers' clocks differ, a message is copied early rather than
    late.
    """

    def __init__(
        self,
        options: TrackerOptions,
        topics: ClusterAdmin,
        markers_partitions: int,
        cells: Callable[[], Iterable[Cell]],
        *,
        timeout_ms: int,
    ) -> None:
        """``cells`` returns the cells that can have a marker. It is called when the time is asked."""
        self._options, self._topics, self._partitions = options, topics, markers_partitions
        self._cells = cells
        self._timeout_ms = timeout_ms
        self._ahead_ms: int | None = None  # brokers' time less the monotonic time
        self._next_ask = Deadline.after_ms(0)

    def now_ms(self) -> int:
        """Returns the brokers' time in ms. Every ten minutes, appends markers without effect.

        If a later marker fails, the known time advances, and the next call asks again.

        Raises:
            MarkersNotDurable: the time is not known yet, and the brokers do not confirm a marker.
            MarkersPartitionsChanged, KafkaUnavailable, TopicNotFound, NotAuthorized, KafkaRefused
        """
        if self._next_ask.over:
            try:
                self._ahead_ms = self._ask()
                self._next_ask = Deadline.after_ms(_ASK_EVERY_MS)
            except CursorqError:
                if self._ahead_ms is None:
                    raise
        assert self._ahead_ms is not None
        return self._ahead_ms + monotonic_ms()

    def _ask(self) -> int:
        topic, timeout_s = self._options.markers_topic, self._timeout_ms / 1000
        of_partition = {cell.control_partition(self._partitions): cell for cell in self._cells()}
        leaders = {number: leader for number, (leader, _, _) in self._topics.placements(topic).items()}
        of_leader = {leaders[number]: number for number in of_partition if leaders.get(number) is not None}
        sender = MarkerSender(client_config(self._options.kafka, "producer"), topic, self._partitions)
        try:
            unconfirmed = sender.begin()
            for number in of_leader.values():
                key, value = without_effect(of_partition[number], self._options.reappend)
                sender.produce(unconfirmed, key, value, number)
            appended_ms = sender.flush(timeout_s)
        finally:
            sender.close()
        if appended_ms is None:
            raise MarkersNotDurable(topic, len(of_leader), "the brokers have not told the append time")
        return appended_ms - monotonic_ms()
