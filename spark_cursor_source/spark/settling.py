"""Settles the rows of a task with V2 or V1 markers."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from spark_cursor_source.consumer.action_columns import ActionColumns
from spark_cursor_source.consumer.settlement import Settlement
from spark_cursor_source.interop.settlement import SettlementV1
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.options.marker_format import MarkerVersion


def settlement_of(options: AckOptions) -> Settlement | SettlementV1:
    """Returns an empty settlement for the marker version of the options."""
    return SettlementV1(options) if options.marker_version is MarkerVersion.V1 else Settlement(options)


def settle(
    batches: Iterable[pa.RecordBatch], columns: ActionColumns, options: AckOptions, markers_partitions: int
) -> int:
    """Settles all rows of a task. Returns their number. The markers are stored on return.

    Raises:
        UnfitColumn, NullMessageId, UnknownAction: a row has no valid message id or action.
        MarkersNotDurable: the brokers did not store the markers. The leases continue.
    """
    settlement = settlement_of(options)
    for batch in batches:
        settlement.add(columns.read(batch))
    if settlement.settled:
        settlement.send(markers_partitions)
    return settlement.settled
