"""KafkaSink on real brokers: each output is there once, whatever dies, stands still and comes again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_cursor_source.kafka.admin import ClusterAdmin
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


def test_a_task_that_stands_still_cannot_write_what_another_has_written(
    control: Control, target: Target, tmp_path: Path
) -> None:
    # first:  looks    planner stands still                       writes, commits, and is refused; looks again
    # second:          looks, writes    planner stands still      commits, and is refused; looks again
    # third:                                     writes all, acks
    apps = Apps("tests.e2e.kafka_sink_app", control, tmp_path, subscription_type="shared", target=target.name)
    rivals = {"stands": "looked"}, {"stands": "written"}
    with apps.overtaken(*rivals, go=tmp_path / "go") as came_again:
        assert target.values() == EACH_ONCE
    assert target.values() == EACH_ONCE
    assert came_again > 0
