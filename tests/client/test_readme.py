"""The client's examples of the README, run as they stand but for the brokers' address and the topics."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable

import pytest

from tests.client.conftest import Rig
from tests.conftest import ROOT

pytestmark = pytest.mark.broker


def test_the_examples_of_the_client_run(
    make_rig: Callable[..., Rig], capsys: pytest.CaptureFixture[str]
) -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## The client\n")[2]
    of_client, of_queue = re.findall(r"```python\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    rig = make_rig(1)
    rig.tracker()
    of_client = of_client.replace('"orders"', f'"orders-{uuid.uuid4().hex[:8]}"')
    of_client = of_client.replace('"}) as', f'", "cursorsTopic": "{rig.control.cursors}"}}) as')
    topics = (
        f'message_topic="{rig.topic}", marker_topic="{rig.control.markers}",'
        f' redeliveries_topic="{rig.control.redeliveries}", cursors_topic="{rig.control.cursors}"'
    )
    of_queue = of_queue.replace('message_topic="jobs"', topics)
    for code in (of_client, of_queue):
        code = code.replace("broker:9092", rig.control.config["bootstrap.servers"])
        exec(compile(code, "README.md", "exec"), {})
    assert "b'to: you' 1" in capsys.readouterr().out
