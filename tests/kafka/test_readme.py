"""The operator's example of the README, run as it stands but for the brokers' address and the topics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka.admin import ClusterAdmin
from tests.conftest import ROOT
from tests.kafka.control_plane import new_control
from tests.kafka.tracker_thread import running_tracker

pytestmark = pytest.mark.broker


def test_the_example_of_an_operator_runs(broker: EmbeddedKafka, tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n### Subscriptions: creating")[2]
    example = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert example is not None
    control = new_control({"bootstrap.servers": broker.bootstrap_servers})
    ClusterAdmin(control.config).create({control.queue: (1, {})})
    code = (
        example[1].replace("broker:9092", broker.bootstrap_servers).replace('"orders"', f'"{control.queue}"')
    )
    own = f'markers_topic="{control.markers}", cursors_topic="{control.cursors}"'
    with running_tracker(control, tmp_path / "tracker"):
        exec(compile(code.replace('"}) as', f'"}}, {own}) as'), "README.md", "exec"), {})
