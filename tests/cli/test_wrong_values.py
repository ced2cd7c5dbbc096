"""Values of options that are refused on one line, and clusters that do not answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_cursor_source.admin import redrive
from spark_cursor_source.cli import main
from spark_cursor_source.errors import InvalidArgument
from spark_cursor_source.kafka import admin
from tests.cli.conftest import Says
from tests.client.conftest import Rig

NOWHERE = ("--bootstrap-servers", "127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("ui", "--port", "70000"), "less than or equal to 65535"),
        (
            ("subscription", "seek", "--subscription", "s", "--topic", "t", "--offsets", "0=1,0=2"),
            "'0=1,0=2' names a partition twice",
        ),
        (("stats", "--watch", "0s", *NOWHERE), "'0s' leaves no time between two rounds"),
        (("top", "--every", "0s", *NOWHERE), "'0s' leaves no time between two rounds"),
        (("limit", "--subscription", "s", *NOWHERE), "give --rate, --max-outstanding or both"),
    ],
)
def test_a_value_that_cannot_be_is_wrong_usage(
    arguments: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("produce", "a,b", "v"),
            "The argument topic='a,b' is invalid: a topic name has only the characters",
        ),
        (("produce", "", "v"), "The argument topic='' is invalid: a topic name cannot be empty"),
        (
            ("produce", "t", "v", "--partitions", "100001"),
            "'--partitions': Input should be less than or equal",
        ),
        (("produce", "t", "v", "--header", "plain"), "'--header': 'plain' is not of the form NAME=VALUE"),
        (("init", "/dev/null"), "'/dev/null/"),
    ],
)
def test_a_value_that_cannot_be_is_named_on_one_line_before_a_broker_is_asked(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main([*arguments, *(NOWHERE if arguments[0] == "produce" else ())])
    except SystemExit as ended:
        code = int(str(ended.code))
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
    assert "unexpected" not in line
    assert code == (2 if "--" in told else 1)


@pytest.mark.broker
def test_names_that_do_not_exist_are_named_and_not_taken_for_others(
    make_rig: Callable[..., Rig], says_of: Callable[[Rig], Says]
) -> None:
    says = says_of(make_rig())
    assert says("stats") == ["there are no subscriptions"]
    create = ("subscription", "create", "--subscription", "s", "--earliest", "--topic")
    (line,) = says(*create, "a,b", code=1)
    assert line.startswith("cursorq: The argument topic='a,b' is invalid: a topic name has only")
    (line,) = says("tail", "Q", "--subscription", "nobody", code=1)
    assert "has no cursor of subscription 'nobody' of topic 'Q'" in line


@pytest.mark.parametrize("port", ["99999", "0", "65534"])
def test_brokers_have_ports_that_exist(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "--brokers", "3", "--port", port]) == 1
    told = f"cursorq: port={port}: the ports of the brokers begin here; give one of 1 to 65533\n"
    assert capsys.readouterr().err == told


def test_the_rate_of_a_redrive_is_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dead", "redrive", "t", "--rate", "inf", *NOWHERE]) == 1
    assert capsys.readouterr().err.startswith("cursorq: The argument rate=inf is invalid")
    for rate in (math.nan, 0.0, -1.0):
        with pytest.raises(InvalidArgument, match="rate="):
            redrive({"bootstrap.servers": NOWHERE[1]}, "t", rate=rate)


@pytest.mark.parametrize("more", [(), ("--partitions", "1")])
def test_messages_to_brokers_that_do_not_answer_are_an_error_in_seconds(
    more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(admin, "FIRST_CONTACT_MS", 300)
    assert main(["produce", "orders", "a message", *more, *NOWHERE]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("dead", "delete", "t", "--error", ""), "'--error': it is empty"),
        (("dead", "redrive", "t", "--reason", ""), "'--reason': it is empty"),
        (("dead", "list", "t", "--groups", "--error", ""), "'--error': it is empty"),
        (("limit", "--subscription", "s", "--rate", ""), "'--rate': it is empty"),
        (
            ("limit", "--subscription", "s", "--rate", "5", "--max-outstanding", " "),
            "'--max-outstanding': it",
        ),
        (("ui", "--host", ""), "'--host': it is empty"),
        (("tail", "t", "--mask-field", ""), "'--mask-field': it is empty"),
        (("init", ""), "'DIR': it is empty"),
        (("broker", "--data-dir", ""), "'--data-dir': it is empty"),
    ],
)
def test_an_empty_value_stands_for_nothing_else(
    arguments: tuple[str, ...],
    told: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A shell passes an empty text for a variable that is not set: --error "$PATTERN".
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(admin, "FIRST_CONTACT_MS", 300)
    monkeypatch.setenv("CURSORQ_BOOTSTRAP_SERVERS", NOWHERE[1])
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("stats", "--group-id-prefix", "\udcff"),
        ("stats", "--bootstrap-servers", "\udcff"),
        ("topics", "--markers-topic", "\udcff"),
        ("topics", "--streams-topic", "a b"),
        ("topics", "--markers-topic", ""),
    ],
)
def test_names_that_kafka_cannot_have_are_refused_on_one_line(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "FIRST_CONTACT_MS", 300)
    more = () if "--bootstrap-servers" in arguments else NOWHERE
    assert main([*arguments, *more]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("cursorq: The argument ")
    assert "is invalid: " in line


@pytest.mark.broker
def test_a_subscription_that_is_no_utf_8_is_named_and_asks_no_broker_for_its_group(
    make_rig: Callable[..., Rig], says_of: Callable[[Rig], Says]
) -> None:
    rig = make_rig()
    rig.tracker()
    says = says_of(rig)
    says("subscription", "create", "--subscription", "s", "--topic", "Q", "--earliest")
    for verb in (("subscription", "delete"), ("message", "Q/0/0"), ("pause",)):
        (line,) = says(*verb, "--subscription", "caf\udce9", code=1)
        assert "The argument subscription='caf\\udce9' is invalid: UTF-8 has no bytes for" in line
    assert says("stuck", "--limit", "9" * 30) == ["no message is outstanding"]
    (told, *_) = says("holes", "Q", "--subscription", "s", "--first", "7")
    assert told == "Q/0  --first and --end leave none of 0 to 0"
