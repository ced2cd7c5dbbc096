"""A tracker beside a test, in a thread and without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark_cursor_source.tracker import Tracker
from tests.kafka.control_plane import Control


def options_of(control: Control, checkpoint: Path, **options: object) -> dict[str, object]:
    """The options of a tracker of these control topics."""
    return control.options(checkpointLocation=str(checkpoint), trigger="50ms", **options)


@contextmanager
def running_tracker(control: Control, checkpoint: Path, **options: object) -> Iterator[None]:
    """A tracker of the control topics while the block runs; it goes on from its checkpoint."""
    with Tracker(options_of(control, checkpoint, **options)):
        yield
