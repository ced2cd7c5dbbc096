"""Verbs on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping

import pytest

from spark_cursor_source.kafka.admin import ClusterAdmin
from tests.admin.test_doctor import store
from tests.conftest import as_in_a_terminal
from tests.kafka.control_plane import Control, cell_of, cursor_of, produce

pytestmark = pytest.mark.broker

#: what a terminal gets to show another screen, and the first
ALTERNATE, NORMAL = "\x1b[?1049h", "\x1b[?1049l"


def size_less(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the size of another terminal, which a worker of pytest-xdist has."""
    return {name: value for name, value in environ.items() if name not in ("COLUMNS", "LINES")}


def on_a_terminal(
    *arguments: str, width: int = 80, height: int = 24, typed: tuple[str, str] | None = None
) -> tuple[int, str]:
    """Run the command on a terminal; ``typed`` is an expected text and its answer. Return code and output."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def take_the_terminal() -> None:
        as_in_a_terminal()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    run = subprocess.Popen(
        [sys.executable, "-m", "spark_cursor_source.cli", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**size_less(os.environ), "TERM": "xterm"},
        start_new_session=True,
        preexec_fn=take_the_terminal,
    )
    os.close(theirs)
    told, until = b"", time.monotonic() + 60
    try:
        while time.monotonic() < until:
            if not select.select([ours], [], [], 0.2)[0]:
                continue
            try:
                told += os.read(ours, 65_536)
            except OSError:  # the command has ended
                return run.wait(20), told.decode()
            if typed is not None and typed[0].encode() in told:
                os.write(ours, typed[1].encode())
                typed = None
        raise AssertionError(f"the command has not ended: {told.decode()}")
    finally:
        run.kill()
        run.wait()
        os.close(ours)


@pytest.fixture
def of(control: Control) -> list[str]:
    """Arguments for a queue with eight messages and many subscriptions."""
    ClusterAdmin(control.config).create({control.queue: (1, {})})
    produce(control.config, control.queue, [{"value": b"v"}] * 8)
    many = [cursor_of(cell_of(control.queue, subscription=f"s{number:02}"), 3) for number in range(30)]
    store(control, cursor_of(cell_of(control.queue), 5, (1, 3)), *many)
    topics = [f"--{name.replace('_', '-')}={topic}" for name, topic in control.topics.items()]
    servers = f"--bootstrap-servers={control.config['bootstrap.servers']}"
    return [*topics, f"--redeliveries-topic={control.redeliveries}", servers]


def test_the_last_round_of_top_stays_on_the_terminal(of: list[str]) -> None:
    code, told = on_a_terminal("top", "--rounds", "1", "--subscription", "billing", *of)
    _, _, stays = told.partition(NORMAL)
    assert code == 0
    assert "1 subscription, 0 markers unread by the tracker" in stays
    assert " billing " in stays
    assert "readers" not in stays, "80 characters have no room for all columns"


def test_top_shows_more_subscriptions_than_lines_below_its_summary_until_ctrl_c(of: list[str]) -> None:
    summary = "31 subscriptions, 0 markers unread by the tracker"
    code, told = on_a_terminal("top", *of, width=160, typed=(" s00 ", "\x03"))
    assert code == 0
    _, _, live = told.partition(ALTERNATE)
    assert live.index(summary) < live.index("readers") < live.index(" billing ") < live.index(" s00 ")
    assert " s29 " not in live
    assert NORMAL in live


def test_holes_are_drawn_in_colours(control: Control, of: list[str]) -> None:
    code, told = on_a_terminal("holes", control.queue, "--subscription", "billing", *of)
    head, strip = told.splitlines()
    assert (code, head) == (0, f"{control.queue}/0  1 to 8: 2 acked, 2 available, 3 unread")
    assert "\x1b[1;33mA\x1b[0m" in strip
    assert strip.count("m_\x1b") == 3
