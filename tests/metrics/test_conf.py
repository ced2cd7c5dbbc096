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


#: fields of Grafana's classic dashboard model that the file uses, by the part that has them
FIELDS = {
    "dashboard": {
        "title",
        "uid",
        "tags",
        "schemaVersion",
        "version",
        "editable",
        "refresh",
        "time",
        "timezone",
    }
    | {"templating", "annotations", "links", "panels"},
    "panel": {"id", "type", "title", "description", "datasource", "gridPos", "targets", "fieldConfig"}
    | {"options", "transformations"},
    "row": {"id", "type", "title", "gridPos", "collapsed", "panels"},
    "target": {"refId", "datasource", "expr", "legendFormat", "instant", "format"},
    "variable": {"name", "type", "label", "datasource", "query", "definition", "includeAll", "multi"}
    | {"allValue", "current", "refresh", "sort"},
}
PANELS = {"row", "stat", "timeseries", "table"}  #: kinds of panels that each Grafana has
UNITS = {"short", "bytes", "cps", "s"}


def test_the_dashboard_has_the_fields_and_types_of_grafanas_model() -> None:
    assert DASHBOARD.keys() <= FIELDS["dashboard"]
    assert re.fullmatch(r"[\w-]{1,40}", DASHBOARD["uid"])
    assert isinstance(DASHBOARD["schemaVersion"], int)
    assert DASHBOARD["schemaVersion"] >= 36, "later than all migrations of panels that the file does not need"
    assert DASHBOARD["time"].keys() == {"from", "to"}
    assert re.fullmatch(r"\d+[smhd]", DASHBOARD["refresh"])
    for panel in DASHBOARD["panels"]:
        of_row = panel["type"] == "row"
        assert panel["type"] in PANELS
        assert panel.keys() <= FIELDS["row" if of_row else "panel"], panel["title"]
        assert panel["title"]
        place = panel["gridPos"]
        assert place.keys() == {"h", "w", "x", "y"}
        assert min(place["h"], place["w"]) > 0 <= min(place["x"], place["y"])
        assert place["x"] + place["w"] <= 24
        if of_row:
            assert (panel["collapsed"], panel["panels"]) == (False, []), "its panels follow it"
        else:
            check_data_panel(panel)


def check_data_panel(panel: dict[str, Any]) -> None:
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    references = [target["refId"] for target in panel["targets"]]
    assert references
    assert len(references) == len(set(references)), panel["title"]
    for target in panel["targets"]:
        assert target.keys() <= FIELDS["target"], panel["title"]
        assert target["datasource"] == panel["datasource"]
    config = panel["fieldConfig"]
    assert config.keys() == {"defaults", "overrides"}
    assert config["defaults"].get("unit", "short") in UNITS
    for override in config["overrides"]:
        assert override.keys() == {"matcher", "properties"}
        assert all("id" in one for one in (override["matcher"], *override["properties"]))
    for one in panel.get("transformations", ()):
        assert one.keys() == {"id", "options"}


def test_the_dashboard_uses_the_variables_that_it_has_and_no_others() -> None:
    variables = DASHBOARD["templating"]["list"]
    names = [one["name"] for one in variables]
    assert len(names) == len(set(names))
    of_grafana = {"__rate_interval", "__all", "__range", "__interval"}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD)))
    assert used - of_grafana == set(names)
    for at, one in enumerate(variables):
        assert one.keys() <= FIELDS["variable"]
        assert one["type"] in {"query", "datasource"}
        needed = set(re.findall(r"\$\{?(\w+)", json.dumps(one))) - of_grafana
        assert needed <= set(names[:at]), "a variable uses earlier ones only"


@promtool
def test_promtool_takes_the_rules_and_each_fires_when_it_should() -> None:
    for command in (
        ["check", "rules", str(CONF / "alerts.yml")],
        ["test", "rules", str(HERE / "alerts_test.yml")],
    ):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
