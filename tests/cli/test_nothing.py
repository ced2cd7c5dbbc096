"""Verbs that have nothing to show, and their JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from spark_cursor_source.cli import main
from spark_cursor_source.kafka.admin import ClusterAdmin
from tests.kafka.control_plane import Control

pytestmark = pytest.mark.broker

Run = Callable[..., str]


@pytest.fixture
def run(control: Control, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a verb on the control topics; returns what it prints."""
    monkeypatch.setenv("CURSORQ_BOOTSTRAP_SERVERS", control.config["bootstrap.servers"])
    monkeypatch.setenv("CURSORQ_MARKERS_TOPIC", control.markers)
    monkeypatch.setenv("CURSORQ_REDELIVERIES_TOPIC", control.redeliveries)
    monkeypatch.setenv("CURSORQ_CURSORS_TOPIC", control.cursors)
    monkeypatch.setenv("CURSORQ_GROUP_ID_PREFIX", control.group_prefix)

    def run(*arguments: str) -> str:
        assert main(list(arguments)) == 0
        return capsys.readouterr().out

    return run


def test_verbs_without_anything_to_show_say_so_and_print_empty_json(control: Control, run: Run) -> None:
    letters = f"{control.queue}-billing-DLQ"
    ClusterAdmin(control.config).create({letters: (1, {})})
    for verb, expected in (
        (["due"], "there are no subscriptions"),
        (["doctor"], "nothing is wrong"),
        (["audit"], "no operator has acted in the time that the markers topic keeps"),
        (["dead", "list", letters], f"no dead letters of {letters} wait"),
        (["dead", "list", letters, "--groups"], f"{letters} has no dead letters"),
    ):
        assert run(*verb) == f"{expected}\n"
        assert json.loads(run(*verb, "--json")) == []
    delete = ["dead", "delete", letters, "--everything", "--dry-run"]
    assert run(*delete) == "0 dead letters to delete, 0 passed over\n"
    assert json.loads(run(*delete, "--json")) == {"deleted": 0, "passed": 0, "removed": 0, "dry_run": True}
