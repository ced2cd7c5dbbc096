"""Reports of tasks to their planner, by way of the redeliveries topic."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.read_report import ReadReport, ReportTo
from spark_cursor_source.errors import (
    MarkersNotDurable,
    MarkersPartitionsChanged,
    NotAuthorized,
    TopicNotFound,
)
from spark_cursor_source.kafka.confirmed_producer import ConfirmedProducer, cached
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.wire import read_report as wire

log = logging.getLogger(__name__)

_SEND_S = 5.0  # the planner can do without the report


class ReportSender(ConfirmedProducer):
    """Sends reports to a redeliveries topic."""

    def send(self, cell: Cell, to: ReportTo) -> None:
        """Hand a report to the producer; raises as :meth:`ConfirmedSender.begin` and ``produce`` do."""
        value = wire.encode(ReadReport(cell=cell, batch=to.batch, task=to.task))
        self.produce(self.begin(), cell.key, value, to.partition)


def report_read(config: Mapping[str, Any], topic: str, cell: Cell, to: ReportTo) -> None:
    """Write that a task has read its messages to the end; where that fails, the planner reads them too."""
    sender = cached(ReportSender, config, topic, to.partitions)
    try:
        sender.send(cell, to)
        sender.flush(_SEND_S)
    except (MarkersNotDurable, MarkersPartitionsChanged, NotAuthorized, TopicNotFound) as why:
        log.warning("read_not_reported topic=%s batch=%s task=%d error=%s", topic, to.batch, to.task, why)


class ReportReader:
    """Finds reports in a redeliveries topic; one thread's."""

    def __init__(self, config: Mapping[str, Any], topic: str) -> None:
        self._topic = topic
        # Not held up by open transactions of trackers: reports are in none.
        self._reader = RangeReader(config, committed=False)

    def tasks_of(self, batch: str, partition: int, start: int, stop: int) -> frozenset[int]:
        """The tasks that have reported in ``[start, stop)`` of a partition that they have read the batch.

        Raises:
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        if start >= stop:
            return frozenset()
        reports = [
            wire.decode(one.value()) for one in self._reader.read(self._topic, {partition: (start, stop)})
        ]
        return frozenset(one.task for one in reports if one is not None and one.batch == batch)

    def close(self) -> None:
        """End the consumer."""
        self._reader.close()
