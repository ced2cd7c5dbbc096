"""Spark's micro-batches without Spark: the same questions to a source in the same order, the same two logs.

A query that is only to be killed at a certain moment needs no JVM for it: planner, reads and sinks are ours,
and Spark's part is what ``MicroBatchExecution`` does between them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader

Tasks = list[Iterator[pa.RecordBatch]]

# A query that has had nothing to do so many times asks less often: several of them wait beside each test.
_SOON_IDLE = 20
_IDLE_FACTOR = 4


class MicroBatches:
    """One query: a source, a checkpoint, and what is done with the tasks of a batch.

    An entry of a log is written once, as in Spark: where two queries share a checkpoint, the second to write
    an entry fails with ``FileExistsError``.
    """

    def __init__(
        self,
        reader: DataSourceStreamReader,
        checkpoint: Path,
        work: Callable[[Tasks, int], None],
        *,
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._reader = reader
        self._work = work
        self._step = step
        self._offsets, self._commits = checkpoint / "offsets", checkpoint / "commits"
        for directory in (self._offsets, self._commits):
            directory.mkdir(parents=True, exist_ok=True)

    def run(self, pause_s: float, *, until: Callable[[], bool] = lambda: False) -> None:
        """Batch after batch: first the one that was begun and not committed."""
        if self._last(self._offsets) > self._last(self._commits):
            self._carry_out(self._last(self._offsets))
        idle = 0
        while not until():
            if self._trigger():
                idle = 0
                continue
            idle += 1
            time.sleep(pause_s if idle < _SOON_IDLE else _IDLE_FACTOR * pause_s)

    def _trigger(self) -> bool:
        last = self._last(self._offsets)
        start = self._start(last + 1)
        end = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
        if end == start:
            return False
        self._step("log offsets")
        self._write(self._offsets, last + 1, end)
        if last >= 0:
            self._reader.commit(start)
        self._carry_out(last + 1)
        return True

    def _carry_out(self, batch_id: int) -> None:
        tasks = self._reader.partitions(self._start(batch_id), self._read(self._offsets, batch_id))
        self._work([self._reader.read(task) for task in tasks], batch_id)
        self._step("log the commit")
        self._write(self._commits, batch_id, {})

    def _start(self, batch_id: int) -> Any:
        return self._read(self._offsets, batch_id - 1) if batch_id else self._reader.initialOffset()

    @staticmethod
    def _last(log: Path) -> int:
        return max((int(entry.name) for entry in log.iterdir() if entry.name.isdigit()), default=-1)

    @staticmethod
    def _read(log: Path, batch_id: int) -> Any:
        return json.loads((log / str(batch_id)).read_text())

    @staticmethod
    def _write(log: Path, batch_id: int, entry: Any) -> None:
        draft = log / f".{batch_id}.{os.getpid()}"
        draft.write_text(json.dumps(entry))
        os.link(draft, log / str(batch_id))
        draft.unlink()
