"""The tracker as a Spark query in a thread without a JVM: all is real but Spark's engine."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.spark.tracker_source import MarkerStreamReader
from tests.e2e.micro_batches import MicroBatches, Tasks
from tests.e2e.plain_app import TrackerBatches

PAUSE_S = 0.03  #: before it looks again, where it has found nothing to do


class SparkTwin:
    """A tracker of Spark's kind that runs from ``with`` to its end, with the options of one."""

    def __init__(self, options: Mapping[str, object]) -> None:
        self._options = TrackerOptions.parse(options)
        self._reader = MarkerStreamReader(self._options)
        self._work = TrackerBatches(self._options, bug=False).work
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)
        self._reader.stop()

    def _run(self) -> None:
        checkpoint = Path(self._options.checkpoint_location)
        try:
            MicroBatches(self._reader, checkpoint, self._batch).run(PAUSE_S, until=self._stopping.is_set)
        except BaseException as failure:  # noqa: BLE001 - the test asks what has ended it
            self.failure = failure

    def _batch(self, tasks: Tasks, batch_id: int) -> None:
        pace = Deadline.after_ms(self._options.trigger_ms)
        self._work(tasks, batch_id)
        self._stopping.wait(pace.left_s())
