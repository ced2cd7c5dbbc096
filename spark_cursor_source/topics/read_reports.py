"""Reports of tasks to their planner, sent through the redeliveries topic."""

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
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.topics.marker_producer import MarkerProducer, borrowed_producer
from spark_cursor_source.wire import read_report as wire

log = logging.getLogger(__name__)

_SEND_S = 5.0  # short, because the planner can work without the report


class ReportSender(MarkerProducer):
    """Sends reports to a redeliveries topic."""

    def send(self, cell: Cell, to: ReportTo) -> None:
        """Send a report.

        Raises the errors of :meth:`MarkerProducer.begin` and :meth:`MarkerProducer.produce`.
        """
        value = wire.encode(ReadReport(cell=cell, batch=to.batch, task=to.task))
        self.produce(self.begin(), cell.key, value, to.partition)


def report_read(config: Mapping[str, Any], topic: str, cell: Cell, to: ReportTo) -> None:
    """Report that a task has read all its messages.

    If the report fails, the planner reads the messages too.
    """
    try:
        with borrowed_producer(ReportSender, config, topic, to.partitions) as sender:
            sender.send(cell, to)
            sender.flush(_SEND_S)
    except (MarkersNotDurable, MarkersPartitionsChanged, NotAuthorized, TopicNotFound) as why:
        log.warning(
            "A task could not report the messages that it read. event=read_not_reported topic=%s "
            "batch=%s task=%d error=%s",
            topic,
            to.batch,
            to.task,
            why,
        )


class ReportReader:
    """Finds reports in a redeliveries topic. Not thread-safe."""

    def __init__(self, config: Mapping[str, Any], topic: str) -> None:
        self._topic = topic
        # Reports are in no transaction. Read uncommitted, so that open tracker transactions cause no delay.
        self._reader = RangeReader(config, committed=False)

    def tasks_of(self, batch: str, partition: int, start: int, stop: int) -> frozenset[int]:
        """Return the tasks that have reported a complete read of the batch.

        Reports outside of ``[start, stop)`` of the partition are ignored.

        Raises:
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        if start >= stop:
            return frozenset()
        records = self._reader.read(self._topic, {partition: (start, stop)})
        reports = [wire.decode(record.value()) for record in records]
        return frozenset(report.task for report in reports if report is not None and report.batch == batch)

    def close(self) -> None:
        """Close the consumer."""
        self._reader.close()
