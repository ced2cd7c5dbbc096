"""What the tests of the command share: queues with a tracker, and verbs that are run on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spark_cursor_source.cli import main
from tests.client.conftest import Rig, make_rig

__all__ = ["make_rig"]

Says = Callable[..., list[str]]


@pytest.fixture
def says_of(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[Rig], Says]:
    """Run verbs on a queue; each returns its lines, in which the queue is Q, as in its arguments."""

    def says(rig: Rig) -> Says:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        monkeypatch.setenv("CURSORQ_BOOTSTRAP_SERVERS", rig.control.config["bootstrap.servers"])
        monkeypatch.setenv("CURSORQ_MARKERS_TOPIC", rig.control.markers)
        monkeypatch.setenv("CURSORQ_CURSORS_TOPIC", rig.control.cursors)
        monkeypatch.setenv("CURSORQ_GROUP_ID_PREFIX", rig.control.group_prefix)

        def run(*arguments: str, code: int = 0) -> list[str]:
            given = [one.replace("Q", rig.topic) for one in arguments]
            assert main(given) == code, capsys.readouterr().err
            told = capsys.readouterr()
            return (told.out if code == 0 else told.err).replace(rig.topic, "Q").splitlines()

        return run

    return says
