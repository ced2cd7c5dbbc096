"""A tracker beside a test, in a thread and without a JVM."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark_cursor_source.core.tracker_options import TrackerOptions
from spark_cursor_source.spark.marker_source import MarkerStreamReader
from tests.e2e.micro_batches import MicroBatches
from tests.e2e.plain_app import TrackerBatches
from tests.kafka.control_plane import Control


@contextmanager
def running_tracker(control: Control, checkpoint: Path, **options: object) -> Iterator[None]:
    """A tracker of the control topics while the block runs; it goes on from its checkpoint."""
    parsed = TrackerOptions.parse(
        {
            **{f"kafka.{name}": value for name, value in control.config.items()},
            "checkpointLocation": str(checkpoint),
            "markersTopic": control.markers,
            "redeliveriesTopic": control.redeliveries,
            "cursorsTopic": control.cursors,
            **options,
        }
    )
    reader = MarkerStreamReader(parsed)
    batches = TrackerBatches(parsed, bug=False)
    stopped = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            MicroBatches(reader, checkpoint, batches.work).run(0.02, until=stopped.is_set)
        except Exception as failed:  # noqa: BLE001 - the test is told
            failures.append(failed)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(30)
        reader.stop()
    assert not failures, failures
