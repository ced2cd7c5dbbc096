"""The command line, run as a user runs it: in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from spark_cursor_source.cli import main
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka.admin import ClusterAdmin
from tests.conftest import as_in_a_terminal
from tests.kafka.control_plane import control_on, produce
from tests.kafka.tracker_thread import running_tracker
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, "-m", "spark_cursor_source.cli"]


@pytest.mark.broker
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_cursorq_broker_prints_its_address_and_ends_cleanly_when_told(number: signal.Signals) -> None:
    with subprocess.Popen(
        [*COMMAND, "broker"], cwd=ROOT, stdout=subprocess.PIPE, text=True, preexec_fn=as_in_a_terminal
    ) as command:
        assert command.stdout is not None
        address = command.stdout.readline()
        assert address.startswith("bootstrap servers: 127.0.0.1:")
        port = int(address.rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        command.send_signal(number)
        assert command.wait(timeout=120) == 0
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=5)


@pytest.mark.broker
def test_cursorq_broker_runs_a_cluster_and_says_which_broker_ended(tmp_path: Path) -> None:
    arguments = ["broker", "--brokers", "3", "--data-dir", str(tmp_path)]
    with subprocess.Popen(
        [*COMMAND, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        addresses = command.stdout.readline().removeprefix("bootstrap servers: ").strip()
        assert addresses.count("127.0.0.1:") == 3
        assert command.stderr.readline() == "cursorq: starting 3 brokers ...\n"
        hint = command.stderr.readline()
        assert hint.endswith(f"in another shell: export CURSORQ_BOOTSTRAP_SERVERS={addresses}\n")
        os.kill(broker_in(tmp_path / "broker-2"), signal.SIGKILL)
        assert command.wait(timeout=120) == 1
        assert command.stderr.readline().startswith("cursorq: broker 2 ended by itself")


def broker_in(directory: Path) -> int:
    """The process whose settings are in this directory."""
    settings = f"\0{directory / 'server.properties'}\0".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes()
            if command.endswith(settings) and b"keeper" not in command:
                return int(process.name)
    raise AssertionError(f"no broker runs in {directory}")


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
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"cursorq: Another process listens on port {port} of 127.0.0.1")


def test_cursorq_broker_prepare_ends_without_a_broker(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "--prepare"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.broker
def test_cursorq_tracker_without_brokers_ends_in_seconds_when_told(
    mortal: EmbeddedKafka, tmp_path: Path
) -> None:
    control = control_on(mortal).create()
    options = control.options()
    conf, said = tmp_path / "tracker.toml", tmp_path / "stderr"
    conf.write_text("".join(f'"{name}" = "{value}"\n' for name, value in options.items()))
    with (
        said.open("w") as stderr,
        subprocess.Popen(
            [*COMMAND, "tracker", str(conf)], cwd=ROOT, stderr=stderr, preexec_fn=as_in_a_terminal
        ) as command,
    ):
        wait_until(lambda: "event=tracker_assigned" in said.read_text())
        mortal.kill()
        wait_until(lambda: "event=session_expired" in said.read_text())
        command.send_signal(signal.SIGTERM)
        assert command.wait(timeout=60) == 0, said.read_text()
    assert "event=tracker_closed_without_brokers" in said.read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ["stats"],
        ["subscription", "create", "--earliest", "--subscription", "s", "--topic", "t"],
        ["markers"],
        ["tail", "t"],
    ],
)
def test_ctrl_c_ends_a_command_with_one_line_and_130(arguments: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # a broker that never answers
        address = f"127.0.0.1:{server.getsockname()[1]}"
        command = subprocess.Popen(
            [*COMMAND, *arguments, "--bootstrap-servers", address],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=as_in_a_terminal,
        )
        with command:
            server.accept()[0].close()  # it is at work
            command.send_signal(signal.SIGINT)
            _, said = command.communicate(timeout=120)
    assert said.splitlines()[-1:] == ["cursorq: interrupted"]
    assert "Traceback" not in said
    assert command.returncode == 130


def test_ctrl_c_while_the_command_is_loaded_is_one_line_too(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    found = subprocess.run(
        [*COMMAND, "stats"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (found.stderr, found.returncode) == ("cursorq: interrupted\n", 130)


def test_what_the_encoding_of_the_output_has_not_is_escaped(tmp_path: Path) -> None:
    found = subprocess.run(
        [*COMMAND, "init", str(tmp_path / "caf\xe9\u65e5")],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    assert b"/caf\xe9\\u65e5/conf/tracker.toml" in found.stdout


def test_a_full_disk_is_told_and_asks_for_no_report() -> None:
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(
            [*COMMAND, "topics"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120
        )
    told = (
        "cursorq: the output cannot be written: No space left on device. Make room, or write it elsewhere.\n"
    )
    assert (found.stderr, found.returncode) == (told, 1)


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


@pytest.mark.broker
def test_a_subscription_is_administered_from_its_creation_to_its_end(
    broker: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    control = control_on(broker).create()
    ClusterAdmin(control.config).create({control.queue: (2, {})})
    produce(control.config, control.queue, [{"value": b"v", "timestamp": 1_000 + at} for at in range(9)])
    cluster = ["--bootstrap-servers", broker.bootstrap_servers, "--markers-topic", control.markers]
    cluster += ["--cursors-topic", control.cursors, "--group-id-prefix", control.group_prefix]
    of = ["--subscription", "billing", "--topic", control.queue]

    def says(*arguments: str) -> list[str]:
        assert main([*arguments, *cluster]) == 0
        return capsys.readouterr().out.replace(control.queue, "Q").splitlines()

    with running_tracker(control, tmp_path / "tracker"):
        assert says("subscription", "create", *of, "--offsets", "0=2") == [
            "billing begins at Q partition 0 offset 2",
            "billing begins at Q partition 1 offset 0",
        ]
        assert main(["subscription", "create", *of, "--latest", *cluster]) == 1
        assert "exists already. Use seek to move it" in capsys.readouterr().err
        assert says("subscription", "seek", *of, "--time", "1970-01-01T00:00:01.004+00:00") == [
            "billing goes on at Q partition 0 offset 4",
            "billing goes on at Q partition 1 offset 0",
        ]
        assert says("subscription", "skip", *of, "--messages", "2", "--partition", "0") == [
            "billing has nothing left below Q partition 0 offset 6"
        ]
        assert says("subscription", "undo", *of, "--dry-run") == [
            "billing: 2 messages will come again, 0 messages will be dropped"
        ]
        assert says("subscription", "snapshot", *of, "--name", "v7") == [
            "billing is saved as 'v7' at Q partition 0 offset 6",
            "billing is saved as 'v7' at Q partition 1 offset 0",
        ]
        assert says("subscription", "undo", *of)[0] == "billing goes on at Q partition 0 offset 4"
        assert says("subscription", "restore", *of, "--name", "v7", "--yes")[0].endswith("offset 6")
        (v7, undo) = json.loads("\n".join(says("subscription", "snapshots", *of, "--json")))
        assert (v7["name"], v7["positions"], undo["name"]) == ("v7", {"0": 6, "1": 0}, "undo")
        assert says("subscription", "snapshots", *of)[0].startswith("Q 'v7' 20")
        assert says("subscription", "clone", *of, "--to", "staging", "--name", "v7")[0] == (
            "staging begins at Q partition 0 offset 6"
        )
        assert says("subscription", "delete", "--subscription", "staging") == ["staging is deleted"]
        assert says("subscription", "snapshot", *of, "--name", "v7", "--forget") == [
            "billing has no snapshot 'v7' of Q any more"
        ]
        older = ["--before", "1970-01-01T00:00:01.007Z", "--partition", "0"]
        assert says("subscription", "expire", *of, *older, "--dry-run") == [
            "billing, messages before 1970-01-01T00:00:01.007Z: 0 messages will come again, "
            "1 message will be dropped"
        ]
        told = json.loads("\n".join(says("subscription", "expire", *of, *older, "--json")))
        assert told["positions"] == {"0": 7}
        assert says("subscription", "expire", *of, *older) == [
            "billing has no message on Q before 1970-01-01T00:00:01.007Z"
        ]
        assert says("subscription", "expire", *of, "--older-than", "99999d")[0].startswith("billing has no")
        (line,) = says("stats", *of)
        assert line.startswith("Q billing backlog=2 outstanding=0 leased=0")
        assert (
            says("subscription", "skip-all", *of)[0]
            == "billing has nothing left below Q partition 0 offset 9"
        )
        told = json.loads("\n".join(says("stats", "--json")))
        assert told["topics"]["Q"]["subscriptions"]["billing"]["backlog"] == 0
        assert says("subscription", "reset", *of, "--earliest")[0].endswith("partition 0 offset 0")
        assert says("subscription", "delete", "--subscription", "billing") == ["billing is deleted"]
        assert says("stats") == ["there are no subscriptions"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["create"], "one of the arguments --earliest --latest --time --offsets"),
        (["seek", "--earliest", "--latest"], "not allowed with"),
        (["seek", "--time", "2026-11-21T09:00:00"], "not an instant"),
        (["seek", "--time", "yesterday"], "not an instant"),
        (["seek", "--offsets", "0=x"], "0=17,1=40"),
        (["skip"], "Missing option '--messages'"),
    ],
)
def test_a_position_that_cannot_be_is_wrong_usage(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["subscription", *arguments, "--subscription", "billing", "--topic", "orders"])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err
