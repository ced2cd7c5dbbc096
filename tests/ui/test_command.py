"""`cursorq ui` as a process, and who it lets in."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from spark_cursor_source import ui
from spark_cursor_source.cli import main
from spark_cursor_source.ui import UiSettings
from tests.conftest import ROOT, as_in_a_terminal

COMMAND = [sys.executable, "-m", "spark_cursor_source.cli", "ui", "--port", "0"]


def test_the_command_prints_its_address_and_ends_cleanly_when_told() -> None:
    # No broker listens there: the page answers nevertheless, and says so.
    arguments = ["--bootstrap-servers", "127.0.0.1:1"]
    with subprocess.Popen(
        [*COMMAND, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, preexec_fn=as_in_a_terminal
    ) as command:
        assert command.stdout is not None
        word, address = command.stdout.readline().split()
        assert (word, address.startswith("http://127.0.0.1:")) == ("open", True)
        with urllib.request.urlopen(address + "healthz", timeout=30) as answer:
            assert answer.status == 200
        command.send_signal(signal.SIGTERM)
        assert command.wait(timeout=60) == 0


def test_the_printed_address_lets_in_whatever_its_token_contains(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a+b/c&d=e#f%20g h\n", encoding="utf-8")
    arguments = ["--bootstrap-servers", "127.0.0.1:1", "--token-file", str(file)]
    with subprocess.Popen([*COMMAND, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True) as command:
        try:
            assert command.stdout is not None
            address = command.stdout.readline().removeprefix("open ").strip()
            browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with browser.open(address, timeout=30) as answer:
                assert answer.status == 200
                assert "token" not in answer.url
        finally:
            command.kill()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[UiSettings]:
    """The settings of the pages that the command would have served."""
    found: list[UiSettings] = []

    def serve(settings: UiSettings, **where: Any) -> None:
        found.append(settings)

    monkeypatch.setattr(ui, "serve", serve)
    monkeypatch.delenv("CURSORQ_UI_TOKEN", raising=False)
    return found


def test_a_page_for_other_machines_has_a_token_always(served: list[UiSettings], tmp_path: Path) -> None:
    assert main(["ui"]) == 0
    assert main(["ui", "--host", "0.0.0.0"]) == 0
    file = tmp_path / "token"
    file.write_text("mine\n", encoding="utf-8")
    assert main(["ui", "--token-file", str(file), "--allow-host", "queues.corp"]) == 0
    first, second, third = served
    assert first.token is None
    assert second.token is not None
    assert len(second.token) >= 32
    assert (third.token, third.allow_hosts) == ("mine", {"queues.corp"})


def test_a_token_file_that_is_empty_or_missing_is_refused(
    served: list[UiSettings], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").touch()
    for name in ("empty", "missing"):
        with pytest.raises(SystemExit):
            main(["ui", "--token-file", str(tmp_path / name)])
        assert "--token-file" in capsys.readouterr().err
    assert served == []
