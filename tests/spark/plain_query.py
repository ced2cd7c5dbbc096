"""A query without Spark's engine, for tests in which Spark is not under test: the real source and sink."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_cursor_source.consumer.action_columns import MESSAGE_ID
from spark_cursor_source.consumer.planner import Planner
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.spark.actions import markers_of
from spark_cursor_source.spark.handler_calls import Handling
from spark_cursor_source.spark.handling import handle, handle_and_settle
from spark_cursor_source.spark.reader import CursorqStreamReader
from tests.e2e.micro_batches import MicroBatches, Tasks

PAUSE_S = 0.05


class PlainQuery:
    """Runs until it is stopped, in a thread; ``fn`` says of each row what a handler of rows may say.

    ``batches`` are the rows of each batch that had any. :meth:`stop` and :meth:`exception` are those of
    Spark's queries.
    """

    def __init__(self, options: Mapping[str, str], checkpoint: Path, fn: Callable[[Any], Any] | None) -> None:
        self.batches: list[list[Any]] = []
        self._fn = fn
        self._options = dict(options)
        self._reader = CursorqStreamReader(SourceOptions.parse(self._options))
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=[checkpoint], daemon=True)
        self._thread.start()

    @property
    def rows(self) -> list[Any]:
        return [row for rows in self.batches for row in rows]

    @property
    def paused(self) -> Collection[tuple[str, int]]:
        """The partitions that it knows to be paused."""
        planner = self._reader._planner
        assert isinstance(planner, Planner)
        return planner._parts.queue.paused

    def ids(self, delivery_count: int | None = None) -> list[tuple[int, int]]:
        """(partition, offset) of each row, of one delivery count or of all, sorted."""
        return sorted(
            (row.partition, row.offset) for row in self.rows if delivery_count in (None, row.delivery_count)
        )

    def exception(self) -> Exception | None:
        """What has ended it, with its type in its text."""
        return self._failure

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)

    def _run(self, checkpoint: Path) -> None:
        failure = None
        try:
            batches = MicroBatches(self._reader, checkpoint, self._work)
            batches.run(PAUSE_S, until=self._stopping.is_set)
        except Exception as problem:  # noqa: BLE001 - the test asks for it
            failure = RuntimeError(f"{type(problem).__name__}: {problem}")
        self._reader.stop()  # as Spark does, however the query ends
        self._failure = failure

    def _work(self, tasks: Tasks, batch_id: int) -> None:
        seen: list[Any] = []

        def one(row: Any) -> Any:
            if not seen:
                self.batches.append(seen)
            seen.append(row)
            return self._fn(row) if self._fn is not None else None

        ordered = self._options.get("ordering") == "key"
        handling = Handling(fn=one, by_key=ordered, in_order=ordered)
        for rows in tasks:
            if "ackMode" in self._options:
                done = handle(rows, handling, MESSAGE_ID)
            else:
                # As an AckSink whose rows say that they are their source's: nobody asks for the cursors.
                acks = replace(AckOptions.parse(self._options), cursors_topic=None)
                done = handle_and_settle(rows, handling, markers_of(acks))
            for _ in done:
                pass
