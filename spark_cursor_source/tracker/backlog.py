"""Backlog of single-message markers, read by the native reader."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, suppress

import pyarrow as pa

from spark_cursor_source.errors import NotAuthorized, ReadError
from spark_cursor_source.kafka.consumers import AnyConsumer, borrowed_fastest_consumer
from spark_cursor_source.kafka.native import NativeConsumer
from spark_cursor_source.kafka.range_consumer import read_columns

LEAST = 50_000  #: offsets; a smaller backlog is read sooner than a consumer is opened
_STALL_MS = 2_000  # then the caller reads on, who waits for the brokers


class MarkerBacklog:
    """Markers up to an offset of each partition, as columns, one partition after another.

    Where the native reader cannot be used, or after an error, a backlog ends early. The caller reads the rest
    without it, and so finds the error too. Not thread-safe.
    """

    def __init__(self, config: Mapping[str, str], topic: str) -> None:
        self._config, self._topic = config, topic
        self._spans: dict[int, tuple[int, int]] = {}
        self._open = ExitStack()
        self._batches: Generator[pa.RecordBatch] | None = None

    def begin(self, spans: Mapping[int, tuple[int, int]]) -> None:
        """Reads large backlogs. ``spans`` has the position and the end of each partition."""
        self._spans = {number: span for number, span in spans.items() if span[1] - span[0] >= LEAST}

    @property
    def partitions(self) -> frozenset[int]:
        """Partitions whose backlog has not ended."""
        return frozenset(self._spans)

    def read(self) -> tuple[int, pa.RecordBatch | None]:
        """Returns a partition and its next records. None: its backlog has ended.

        Raises:
            NativeReaderUnavailable: CURSORQ_NATIVE=1, and the native reader cannot be used.
        """
        number = min(self._spans)
        if self._batches is None:
            consumer = self._open.enter_context(borrowed_fastest_consumer(self._config))
            self._batches = self._records(consumer, number)
        try:
            batch = next(self._batches, None)
        except (NotAuthorized, ReadError) as why:
            batch = None
            with suppress(ReadError):  # the pool closes a consumer whose block ends with an error
                self._open.__exit__(type(why), why, why.__traceback__)
        if batch is None:
            del self._spans[number]
            self.close()
        return number, batch

    def close(self) -> None:
        """Gives the consumer back."""
        if self._batches is not None:
            self._batches.close()
            self._batches = None
        self._open.close()

    def _records(self, consumer: AnyConsumer, number: int) -> Generator[pa.RecordBatch]:
        if isinstance(consumer, NativeConsumer):
            start, stop = self._spans[number]
            yield from read_columns(
                consumer, self._topic, number, start, stop, headers=False, stall_timeout_ms=_STALL_MS
            )
