"""State that a tracker resumes from: the cursors and lease tables in the cursors topic."""

from __future__ import annotations

from collections.abc import Iterator

from spark_cursor_source.interop.lease_tables import LeaseTables
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.tracker.rows import FoldedRow, cursor_row, held_row, lease_table_row


def cursors_of(options: TrackerOptions) -> CursorTable:
    """Returns a reader of the cursors of this tracker's markers topic. The caller closes it."""
    config = client_config(options.kafka, "consumer")
    return CursorTable(
        config, options.cursors_topic, timeout_ms=PATIENCE_MS, markers_topic=options.markers_topic
    )


def resume_rows(options: TrackerOptions, cursors: CursorTable, partitions: int) -> Iterator[FoldedRow]:
    """Yields the rows of all markers partitions, as of the last refresh of ``cursors``.

    ``partitions`` is the partition count of the markers topic. A cell whose cursor cannot be read is held.

    Raises:
        LaterCursorVersion: a newer version of the library wrote a cursor.
    """
    for cursor in cursors.changes().values():
        if cursor is not None:
            yield cursor_row(cursor)
    for cell in cursors.torn:
        yield held_row(cell.control_partition(partitions), cell)
    if options.reappend is not None:
        tables = LeaseTables(cursors, options.reappend.queue_topic, options.markers_topic)
        for partition, value in tables.values().items():
            yield lease_table_row(partition, value)
