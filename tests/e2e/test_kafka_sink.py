"""KafkaSink on real brokers: each output is there once, whatever dies, stands still and comes again."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_cursor_source.kafka.admin import ClusterAdmin
from tests.e2e.harness import wait_until
from tests.e2e.processes import Part, pids_of, signal_all
from tests.e2e.sink_apps import EACH_ONCE, Apps, queue_with_tracker
from tests.kafka.control_plane import Control
from tests.kafka.topic_records import TopicRecords

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]


class Target:
    """The topic that the sink writes to."""

    def __init__(self, control: Control) -> None:
        self.name = f"{control.queue}-out"
        topics = ClusterAdmin(control.config)
        topics.create({self.name: (2, {})})
        self._records = TopicRecords(control.config, topics)

    def values(self) -> Counter[str]:
        """How often each value was written, for readers of committed messages."""
        return Counter((message.value() or b"").decode() for message in self._records.of(self.name))

    def close(self) -> None:
        self._records.close()


@pytest.fixture
def control(config: dict[str, str], tmp_path: Path) -> Iterator[Control]:
    with queue_with_tracker(config, tmp_path) as made:
        yield made


@pytest.fixture
def target(control: Control) -> Iterator[Target]:
    made = Target(control)
    yield made
    made.close()


def test_each_output_is_written_once_whatever_step_its_process_dies_at(
    control: Control, target: Target, tmp_path: Path
) -> None:
    apps = Apps("tests.e2e.kafka_sink_app", control, tmp_path, target=target.name)
    for step in ("amid", "committed", "acked"):
        apps.die(step)
    with apps.running() as process:
        came_again = apps.until_acked(process)
    assert target.values() == EACH_ONCE
    assert came_again > 0


@pytest.mark.parametrize("stands", ["looked", "written"])
def test_a_task_that_stands_still_cannot_write_what_another_has_written(
    control: Control, target: Target, tmp_path: Path, stands: str
) -> None:
    # first:  looks (writes)  planner stands still                        commits, and is refused; looks again
    # second:                                        writes all, acks
    go = tmp_path / "go"
    app, own = "tests.e2e.kafka_sink_app", {"target": target.name, "stands": stands}
    apps = Apps(app, control, tmp_path, subscription_type="shared", **own)
    with apps.running(rival=str(go)):
        wait_until(lambda: "a task stands still" in apps.log(), "a task stands still")
        log_of_first, planner = apps.log_file, pids_of(apps.tag, Part.PLANNER)
        written = apps.log().count("is written")
        signal_all(planner, signal.SIGSTOP)  # a planner that lives extends the leases of its batch
        with apps.running() as second:
            came_again = apps.until_acked(second)
            assert target.values() == EACH_ONCE
            go.touch()
            signal_all(planner, signal.SIGCONT)
            wait_until(lambda: log_of_first.read_text().count("is written") > written, "the first goes on")
    assert target.values() == EACH_ONCE
    assert came_again > 0
