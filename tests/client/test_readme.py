"""The client's example of the README, run as it stands but for the brokers' address."""

from __future__ import annotations

import re
import uuid

import pytest

from spark_cursor_source.embedded import EmbeddedKafka
from tests.conftest import ROOT

pytestmark = pytest.mark.broker


def test_the_example_of_the_client_runs(broker: EmbeddedKafka) -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## The client\n")[2]
    example = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert example is not None
    code = example[1].replace("broker:9092", broker.bootstrap_servers)
    code = code.replace('"orders"', f'"orders-{uuid.uuid4().hex[:8]}"')
    own = f'"cursorsTopic": "cursors-{uuid.uuid4().hex[:8]}"'
    exec(compile(code.replace('"}) as', f'", {own}}}) as'), "README.md", "exec"), {})
