"""The alert rules and the Grafana dashboard in ``conf/``: each names metrics and labels that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_cursor_source.metrics import METRICS, MetricType

CONF = Path(__file__).resolve().parents[2] / "conf"
HERE = Path(__file__).resolve().parent
ALERTS = (CONF / "alerts.yml").read_text(encoding="utf-8")
DASHBOARD: dict[str, Any] = json.loads((CONF / "grafana-dashboard.json").read_text(encoding="utf-8"))
_NAME = re.compile(r"\bcursorq_\w+")
_SELECTOR = re.compile(r"\b(cursorq_\w+)\{([^}]*)\}")
promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def expressions() -> Iterator[str]:
    """Everything in the two files that is sent to Prometheus or shown beside its answers."""
    yield from re.findall(r"expr: (.+?)\n(?=        \w+:)", ALERTS, re.DOTALL)
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (one["query"]["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query")


def declared(name: str) -> Any:
    for suffix in ("", "_bucket", "_sum", "_count"):
        found = METRICS.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
        if found is not None and (suffix == "") == (found.type is not MetricType.HISTOGRAM):
            return found
    return None


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_an_expression_uses_metrics_and_labels_that_exist(expression: str) -> None:
    names = _NAME.findall(expression)
    assert names
    assert [name for name in names if declared(name) is None] == []
    for name, selector in _SELECTOR.findall(expression):
        labels = set(re.findall(r"(\w+)=", selector))
        assert labels <= set(declared(name).labels), name


def test_an_alert_says_what_happened_and_how_bad_it_is() -> None:
    alerts = ALERTS.split("- alert: ")[1:]
    assert len(alerts) >= 12
    for alert in alerts:
        assert re.search(r"severity: (page|ticket)", alert), alert
        assert "summary: " in alert
        assert "description: " in alert


def test_each_panel_of_the_dashboard_has_a_place_of_its_own() -> None:
    cells = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


@promtool
def test_promtool_takes_the_rules_and_each_fires_when_it_should() -> None:
    for command in (
        ["check", "rules", str(CONF / "alerts.yml")],
        ["test", "rules", str(HERE / "alerts_test.yml")],
    ):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
