"""Settlement rows as V1 markers: one for each message, for kafka-mq-go's tracker."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spark_cursor_source.consumer.action_columns import LEAVE, MESSAGE_ID_V1, require_values
from spark_cursor_source.core.outcome import check_delay_ms
from spark_cursor_source.errors import RejectRefused, UnknownAction
from spark_cursor_source.interop.sender import MarkerSenderV1, one_for_each
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.options.ack import AckAction, AckOptions
from spark_cursor_source.topics.marker_producer import borrowed_producer
from spark_cursor_source.wire.marker import MarkerType, MarkerV1


class SettlementV1:
    """Acks, releases and extensions of one task.

    Rows have the columns ``key``, ``topic``, ``partition`` and ``offset``, and optionally ``action`` and
    ``delay_ms``, see :class:`~spark_cursor_source.consumer.settlement.Settlement`. A release becomes a lease
    that expires after its delay. A release without a delay leaves the lease unchanged.
    """

    def __init__(self, options: AckOptions) -> None:
        self._options = options
        self._rows: list[pa.Table] = []
        self.settled = 0

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Adds rows. Other columns are ignored.

        Raises:
            NullMessageId: a row has a null in its message id.
            RejectRefused, UnknownAction: the column ``action`` contains a word without a V1 marker.
            InvalidDuration, InvalidOption: a delay is negative or above 12 h.
        """
        if rows.num_rows == 0:
            return
        names = rows.schema.names
        details = [name for name in ("action", "delay_ms") if name in names]
        table = pa.table({name: rows.column(name) for name in (*MESSAGE_ID_V1, *details)})
        require_values(table, MESSAGE_ID_V1, (self._options.action or AckAction.ACK).value)
        if "action" in details:
            for word in table.column("action").unique().to_pylist():
                _check(word)
        if "delay_ms" in details:
            for delay_ms in table.column("delay_ms").unique().drop_null().to_pylist():
                check_delay_ms(delay_ms)
        self._rows.append(table)
        self.settled += table.num_rows

    def markers(self) -> Iterator[MarkerV1]:
        """Yields the markers of the added rows, in row order."""
        default = (self._options.action or AckAction.ACK).value
        for table in self._rows:
            for batch in table.to_batches():
                columns = batch.to_pydict()
                rows = zip(
                    columns["key"],
                    columns["partition"],
                    columns["offset"],
                    columns.get("action") or [default] * batch.num_rows,
                    columns.get("delay_ms") or [None] * batch.num_rows,
                    strict=True,
                )
                for key, partition, offset, word, delay_ms in rows:
                    lease_ms = self._options.lease_ms if word == AckAction.EXTEND else delay_ms
                    if word == AckAction.ACK:
                        yield from one_for_each([offset], MarkerType.END, key, partition)
                    elif word != LEAVE and lease_ms is not None:
                        yield from one_for_each([offset], MarkerType.KEEP_ALIVE, key, partition, lease_ms)

    def send(self, markers_partitions: int) -> None:
        """Writes the markers. Returns after the broker has confirmed them.

        Raises:
            MarkersNotDurable: the markers are not confirmed; the messages keep their leases.
            InvalidMarker: a key is empty, so the message has no queue id.
        """
        config = client_config(self._options.kafka, "producer")
        topic = self._options.markers_topic
        with borrowed_producer(MarkerSenderV1, config, topic, markers_partitions) as sender:
            sender.write(self.markers())
        self._rows.clear()


def _check(word: str | None) -> None:
    if word == AckAction.REJECT:
        raise RejectRefused
    if word is None or word not in (LEAVE, *AckAction):
        raise UnknownAction("null" if word is None else word)
