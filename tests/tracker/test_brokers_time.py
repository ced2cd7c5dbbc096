"""The rescue knows the time of the brokers, whatever the clock of its machine says."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.errors import MarkersNotDurable
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.tracker import brokers_time
from spark_cursor_source.tracker.brokers_time import BrokersTime
from tests.kafka.control_plane import PARTITIONS, Control, cell_of, read_all
from tests.kafka.tracker_thread import options_of

pytestmark = pytest.mark.broker


def clock_of(control: Control, path: Path, cells: list[Cell]) -> BrokersTime:
    options = TrackerOptions.parse_standalone(options_of(control, path, rescueBefore="1h"))
    return BrokersTime(options, ClusterAdmin(control.config), PARTITIONS, lambda: cells, timeout_ms=10_000)


def test_the_time_is_asked_with_one_marker_for_each_leader_and_then_goes_on(
    control: Control, tmp_path: Path
) -> None:
    clock = clock_of(control, tmp_path, [cell_of(f"q{number}") for number in range(20)])
    before_ms = int(time.time() * 1000)
    first_ms = clock.now_ms()
    assert before_ms - 5 <= first_ms <= int(time.time() * 1000) + 5  # the broker runs on this machine
    assert first_ms <= clock.now_ms()
    assert len(read_all(control.config, control.markers)) == 1  # the one broker leads every partition


def test_a_known_time_goes_on_while_the_brokers_confirm_no_marker(
    control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers_time, "_ASK_EVERY_MS", 0)
    clock = clock_of(control, tmp_path, [cell_of("q")])
    known_ms = clock.now_ms()

    def refuse(*_: object) -> None:
        raise MarkersNotDurable(control.markers, 1, "no leader")

    monkeypatch.setattr(MarkerSender, "flush", refuse)
    assert known_ms <= clock.now_ms() <= known_ms + 60_000
    with pytest.raises(MarkersNotDurable, match="no leader"):
        clock_of(control, tmp_path, [cell_of("q")]).now_ms()
