"""Settles the rows of a task with V2 or V1 markers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from spark_cursor_source.consumer.settlement import Settlement
from spark_cursor_source.interop.settlement import SettlementV1
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.options.marker_format import MarkerVersion


def settlement_of(options: AckOptions) -> Settlement | SettlementV1:
    """Returns an empty settlement for the marker version of the options."""
    return SettlementV1(options) if options.marker_version is MarkerVersion.V1 else Settlement(options)


def settle(
    batches: Iterable[pa.RecordBatch], options: AckOptions, markers_partitions: int
) -> Iterator[pa.RecordBatch]:
    """Settles all rows of a task. Yields one row with their number."""
    settlement = settlement_of(options)
    for batch in batches:
        settlement.add(batch)
    settlement.send(markers_partitions)
    yield pa.RecordBatch.from_pydict({"settled": pa.array([settlement.settled], pa.int64())})
