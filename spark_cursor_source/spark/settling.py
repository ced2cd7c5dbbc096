"""The choice between V2 and V1 markers for the acks of a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from spark_cursor_source.consumer.settlement import Settlement
from spark_cursor_source.interop.settlement import SettlementV1
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.options.marker_format import MarkerVersion


def settlement_of(options: AckOptions) -> Settlement | SettlementV1:
    """An empty settlement, in the markers that the options ask for."""
    return SettlementV1(options) if options.marker_version is MarkerVersion.V1 else Settlement(options)


def settle(
    batches: Iterable[pa.RecordBatch], options: AckOptions, markers_partitions: int
) -> Iterator[pa.RecordBatch]:
    """The body of a task that settles all its rows: one row with their number comes out."""
    settlement = settlement_of(options)
    for batch in batches:
        settlement.add(batch)
    settlement.send(markers_partitions)
    yield pa.RecordBatch.from_pydict({"settled": pa.array([settlement.settled], pa.int64())})
