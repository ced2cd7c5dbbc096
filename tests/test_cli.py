"""The command line, run as a user runs it: in a process of its own."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from spark_cursor_source.cli import main

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, "-m", "spark_cursor_source.cli"]


@pytest.mark.broker
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_cursorq_broker_prints_its_address_and_ends_cleanly_when_told(number: signal.Signals) -> None:
    with subprocess.Popen([*COMMAND, "broker"], cwd=ROOT, stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        address = command.stdout.readline()
        assert address.startswith("bootstrap servers: 127.0.0.1:")
        port = int(address.rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        command.send_signal(number)
        assert command.wait(timeout=40) == 0
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=5)


@pytest.mark.broker
def test_cursorq_broker_on_a_taken_port_ends_with_one_line_and_code_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        # The command takes SIGTERM over; the suite wants it back.
        before = signal.getsignal(signal.SIGTERM)
        try:
            assert main(["broker", "--port", str(port)]) == 1
        finally:
            signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().err.startswith(f"cursorq: port {port} of 127.0.0.1 is taken")


def test_cursorq_broker_prepare_ends_without_a_broker(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "--prepare"]) == 0
    assert capsys.readouterr().out == ""


def test_an_unknown_subcommand_is_wrong_usage_and_names_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["brokr"])
    assert ended.value.code == 2
    assert "'broker'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--messages", "999"], "at least 1000"),
        (["--messages", "x"], "at least 1000"),
        (["--keep", "."], "new"),
    ],
)
def test_cursorq_demo_refuses_what_it_cannot_do_before_anything_is_started(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["demo", *arguments])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err
