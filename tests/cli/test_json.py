"""Every verb prints JSON if asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from spark_cursor_source.cli import main
from spark_cursor_source.cli.app import command_of
from spark_cursor_source.devkit.demo.history import Reason
from spark_cursor_source.devkit.demo.verdict import Check, Verdict
from spark_cursor_source.metrics.table import BACKLOG, READ_SECONDS, Histogram, Sample


def verbs(command: Any, name: str = "cursorq") -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word, one in inner.items():
        yield from verbs(one, f"{name} {word}")


def test_every_verb_has_the_option_json() -> None:
    found = dict(verbs(command_of()))
    assert len(found) > 25
    assert [name for name, one in found.items() if not any("--json" in p.opts for p in one.params)] == []


def test_the_tracker_without_typer_has_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    from spark_cursor_source.tracker.__main__ import main as run_tracker

    with pytest.raises(SystemExit):
        run_tracker(["--help"])
    assert "--json" in capsys.readouterr().out


def test_a_verdict_is_told_by_name() -> None:
    verdict = Verdict(checks=(Check(passed=False, text="lost"),), again={Reason.FAILED: 2}, deliveries=9)
    told = json.loads(json.dumps(verdict.to_json()))
    assert told == {
        "passed": False,
        "checks": [{"passed": False, "text": "lost"}],
        "deliveries": 9,
        "redeliveries": {"failed": 2},
    }


def test_a_sample_is_told_with_the_names_of_its_labels() -> None:
    told = Sample(BACKLOG, ("orders", "billing"), 12).to_json()
    labels = {"topic": "orders", "subscription": "billing"}
    assert told == {"name": "cursorq_backlog_messages", "labels": labels, "value": 12}
    times = Sample(READ_SECONDS, tuple("x" for _ in READ_SECONDS.labels), Histogram((1, 2), 0.5))
    assert times.to_json()["value"] == {"buckets": (1, 2), "sum": 0.5}


@pytest.mark.parametrize("given", [[], ["--before", "2026-11-20T00:00:00Z", "--older-than", "2d"]])
def test_an_expiry_needs_one_time(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["subscription", "expire", "--subscription", "billing", "--topic", "orders", *given])
    assert ended.value.code == 2
    assert "one of --before and --older-than" in capsys.readouterr().err
