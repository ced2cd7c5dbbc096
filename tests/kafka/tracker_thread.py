"""A tracker beside a test, in a thread and without a JVM: all is real but Spark's engine."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.spark.tracker_source import MarkerStreamReader
from tests.e2e.micro_batches import MicroBatches, Tasks
from tests.e2e.plain_app import TrackerBatches
from tests.kafka.control_plane import Control

PAUSE_S = 0.03  #: before it looks again, where it has found nothing to do


class PlainTracker:
    """A tracker that runs from ``with`` to its end; what went wrong in between is raised there.

    ``options`` are those of the tracker. Without ``checkpointLocation`` its checkpoint is gone with it.
    """

    def __init__(self, options: Mapping[str, object]) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="cursorq-tracker-")
        self._options = TrackerOptions.parse({"checkpointLocation": self._scratch.name, **options})
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
        self._scratch.cleanup()
        self.check()

    def check(self) -> None:
        """Raise what has ended it, if anything has."""
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        checkpoint = Path(self._options.checkpoint_location)
        try:
            MicroBatches(self._reader, checkpoint, self._batch).run(PAUSE_S, until=self._stopping.is_set)
        except BaseException as failure:  # noqa: BLE001 - raised where the tracker is ended
            self.failure = failure

    def _batch(self, tasks: Tasks, batch_id: int) -> None:
        pace = Deadline.after_ms(self._options.trigger_ms)
        self._work(tasks, batch_id)
        self._stopping.wait(pace.left_s())


def options_of(control: Control, checkpoint: Path, **options: object) -> dict[str, object]:
    """The options of a tracker of these control topics."""
    return {
        **{f"kafka.{name}": value for name, value in control.config.items()},
        "checkpointLocation": str(checkpoint),
        "trigger": "20ms",
        "markersTopic": control.markers,
        "redeliveriesTopic": control.redeliveries,
        "cursorsTopic": control.cursors,
        **options,
    }


@contextmanager
def running_tracker(control: Control, checkpoint: Path, **options: object) -> Iterator[None]:
    """A tracker of the control topics while the block runs; it goes on from its checkpoint."""
    with PlainTracker(options_of(control, checkpoint, **options)):
        yield
