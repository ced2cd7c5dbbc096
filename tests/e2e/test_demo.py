"""``cursorq demo`` as a user runs it: in a process of its own, to its end or to that of the patience."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from spark_cursor_source.errors import DemoProcessEnded
from tests.conftest import as_in_a_terminal
from tests.e2e.harness import wait_until
from tests.e2e.processes import TAG, Part, kill, pids_of, pids_with_tag

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

PATIENCE_S = 600  #: the default is for a machine of one's own


class Demo:
    """A run of the command; every process that comes of it has its tag, at any depth."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.tag = uuid.uuid4().hex
        self.temporary = directory / "tmp"
        self.temporary.mkdir()
        self.output = directory / "output"
        environment = {**os.environ, TAG: self.tag, "TMPDIR": str(self.temporary)}
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spark_cursor_source.cli", "demo", "--messages=1000", *arguments],
                cwd=directory,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=as_in_a_terminal,
            )

    def text(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    def until_there_are(self, part: Part) -> None:
        """Until both Sparks have come so far."""
        wait_until(lambda: len(pids_of(self.tag, part)) >= 2 or self.process.poll() is not None, part.name)

    def until_all_ended(self) -> None:
        wait_until(lambda: not pids_with_tag(self.tag), f"{pids_with_tag(self.tag)} end")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


# start -> 40 % acked -> SIGKILL of the consumer amid a batch -> restart -> all acked or dead -> verdict
def test_the_demo_kills_its_consumer_and_the_topics_prove_that_nothing_was_lost(tmp_path: Path) -> None:
    demo = Demo(tmp_path, f"--time-limit={PATIENCE_S}")
    try:
        code = demo.process.wait(PATIENCE_S + 120)
        text = demo.text()
        assert code == 0, text
        assert "SIGKILL for the consumer" in text
        assert "Verdict, from the topics: PASSED" in text
        assert "997 acked + 3 dead-lettered = 1,000 of 1,000" in text
        assert "the consumer ran 2 times" in text
        assert "FAIL" not in text
        demo.until_all_ended()
        assert list(demo.temporary.iterdir()) == []
    finally:
        demo.close()


@pytest.mark.parametrize(
    ("number", "code", "amid"),
    [
        (signal.SIGINT, 130, Part.PLANNER),  # the queries run
        (signal.SIGTERM, 130, Part.JVM),  # the JVMs are starting, and their drivers do not know them yet
        (signal.SIGKILL, -signal.SIGKILL, Part.PLANNER),
    ],
)
def test_however_and_whenever_the_demo_is_ended_nothing_outlives_it(
    number: signal.Signals, code: int, amid: Part, tmp_path: Path
) -> None:
    demo = Demo(tmp_path)
    try:
        demo.until_there_are(amid)
        demo.process.send_signal(number)
        assert demo.process.wait(120) == code, demo.text()
        demo.until_all_ended()
        assert "Traceback" not in demo.text()
        if number is not signal.SIGKILL:
            assert list(demo.temporary.iterdir()) == []
    finally:
        demo.close()


def test_a_demo_whose_tracker_ends_says_so_and_shows_its_log(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    try:
        demo.until_there_are(Part.JVM)
        kill(pids_of(demo.tag, Part.JVM))
        assert demo.process.wait(120) == 1, demo.text()
        told = [str(DemoProcessEnded(name, "")) for name in ("consumer", "tracker")]
        assert any(one.strip() in demo.text() for one in told), demo.text()
        demo.until_all_ended()
        assert list(demo.temporary.iterdir()) == []
    finally:
        demo.close()


def test_a_demo_that_runs_out_of_time_says_what_is_missing_and_exits_with_1(tmp_path: Path) -> None:
    demo = Demo(tmp_path, "--time-limit=1")
    try:
        assert demo.process.wait(300) == 1, demo.text()
        assert "Verdict, from the topics: FAILED" in demo.text()
        assert "neither: 1,000" in demo.text()
        demo.until_all_ended()
    finally:
        demo.close()
