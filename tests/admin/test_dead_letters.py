"""Dead letters are listed, grouped by their errors, and deleted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_cursor_source.admin import (
    DeadLetterFilter,
    DeletedLetters,
    Redriven,
    delete_dead_letters,
    group_dead_letters,
    letter_to_json,
    read_dead_letter,
    read_dead_letters,
    redrive,
)
from spark_cursor_source.cli import main
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import InvalidArgument
from tests.admin.letter_queue import Queue

pytestmark = pytest.mark.broker


@pytest.fixture
def queue(broker: EmbeddedKafka) -> Queue:
    return Queue(broker.bootstrap_servers)


def origins(queue: Queue, only: DeadLetterFilter | None = None, *, settled: bool = False) -> list[int]:
    return [one.origin_offset for one in read_dead_letters(queue.kafka, queue.dead, only, settled=settled)]


def test_a_dead_letter_is_read_with_its_origin_and_its_error(queue: Queue) -> None:
    queue.bury(queue.letter((6, 7), error="Timeout: 30 s"))
    (letter,) = read_dead_letters(queue.kafka, queue.dead)
    assert (letter.topic, letter.origin_topic, letter.origin_partition) == (queue.dead, queue.topic, 1)
    assert (letter.reason, letter.error, letter.template) == ("rejected", "Timeout: 30 s", "Timeout: <n> s")
    assert (letter.subscription, letter.original_ms, letter.last_delivery_ms) == ("billing", 1_000_006, 7)
    assert (letter.key, letter.value, letter.state) == (b"key 6", b"value 6", "waiting")
    assert [name for name, _ in letter.headers] == ["trace", "cursorq-reason", "cursorq-error"]
    assert "value" not in repr(letter), "a log that shows a dead letter does not show its content"
    plain = letter_to_json(letter)
    assert json.loads(json.dumps(plain)) == plain
    assert plain.keys().isdisjoint({"key", "value", "headers"})
    assert letter_to_json(letter, payload=True)["value"] == "value 6"
    assert read_dead_letter(queue.kafka, queue.dead, letter.partition, letter.offset) == letter
    assert read_dead_letter(queue.kafka, queue.dead, letter.partition, 99) is None


def test_the_list_has_what_waits_once_and_ends_at_its_limit(queue: Queue) -> None:
    queue.bury(queue.letter((0, 3), error="Timeout"))
    queue.bury(queue.letter((2, 5)))  # 2 a second time, as after a crash
    assert origins(queue) == [0, 1, 2, 3, 4]
    assert redrive(queue.kafka, queue.dead, DeadLetterFilter(error="Timeout")).sent == 3
    assert origins(queue) == [3, 4]
    assert origins(queue, settled=True) == [0, 1, 2, 3, 4]
    assert origins(queue, DeadLetterFilter(at=frozenset({(1, 4)}))) == [3]
    assert origins(queue, DeadLetterFilter(subscription="audit")) == []
    assert len(read_dead_letters(queue.kafka, queue.dead, limit=1)) == 1


def test_dead_letters_of_one_fault_are_one_group(queue: Queue) -> None:
    queue.bury(queue.letter((0, 2), error="Timeout: 30 s"), queue.letter((2, 3), error="Timeout: 45 s"))
    queue.bury(queue.letter((3, 4), error="KeyError: 'a'"), queue.letter((4, 5)))
    timeouts = DeadLetterFilter(template="Timeout: <n> s", reason="rejected")
    first, *others = group_dead_letters(queue.kafka, queue.dead)
    for one in (first, *others):
        assert sum(count for _, count in one.over_time) == one.waiting + one.redriven + one.deleted
    assert (first.template, first.waiting, first.redriven) == ("Timeout: <n> s", 3, 0)
    assert first.sample.error == "Timeout: 45 s"
    assert sorted(one.template for one in others) == ["", "KeyError: <text>"]
    assert redrive(queue.kafka, queue.dead, timeouts) == Redriven(sent=3, passed=2)
    last = group_dead_letters(queue.kafka, queue.dead)[-1]
    assert (last.template, last.waiting, last.redriven) == ("Timeout: <n> s", 0, 3)
    assert json.loads(last.to_json())["redriven"] == 3
    assert origins(queue, DeadLetterFilter(template="")) == [4]


def test_a_deleted_dead_letter_is_not_listed_not_redriven_and_leaves_the_log(queue: Queue) -> None:
    queue.bury(queue.letter((0, 2), error="Test"), queue.letter((2, 4)), queue.letter((4, 6), error="Test"))
    tests = DeadLetterFilter(error="Test")
    would = delete_dead_letters(queue.kafka, queue.dead, tests, dry_run=True)
    assert (would.deleted, would.passed, would.removed) == (4, 2, 0)
    assert origins(queue) == [0, 1, 2, 3, 4, 5]
    done = delete_dead_letters(queue.kafka, queue.dead, tests)
    assert done == DeletedLetters(deleted=4, passed=2, removed=2), "4 and 5 lie behind what is kept"
    assert origins(queue) == [2, 3]
    assert [one.state for one in read_dead_letters(queue.kafka, queue.dead, settled=True)] == [
        "waiting",
        "waiting",
        "deleted",
        "deleted",
    ]
    assert redrive(queue.kafka, queue.dead) == Redriven(sent=2, passed=0)
    assert [one.value() for one in queue.back()] == [b"value 2", b"value 3"]
    # What was redriven can be deleted; then the log is empty.
    all_gone = delete_dead_letters(queue.kafka, queue.dead, everything=True)
    assert all_gone == DeletedLetters(deleted=2, passed=0, removed=4)
    assert read_dead_letters(queue.kafka, queue.dead, settled=True) == ()


@pytest.mark.parametrize("name", ["subscription", "reason", "error"])
def test_a_variable_that_is_not_set_selects_no_dead_letters(name: str) -> None:
    unset: dict[str, Any] = {name: None}
    with pytest.raises(InvalidArgument, match=f"{name}=None is invalid: it is not a text"):
        DeadLetterFilter(**unset)


@pytest.mark.parametrize(
    "only", [None, DeadLetterFilter(), DeadLetterFilter(template=None, at=None, error="", subscription="*")]
)
def test_a_deletion_without_a_criterion_is_refused_unless_everything_is_meant(
    queue: Queue, only: DeadLetterFilter | None
) -> None:
    queue.bury(queue.letter((0, 2)))
    for dry_run in (True, False):
        with pytest.raises(InvalidArgument, match="everything=True"):
            delete_dead_letters(queue.kafka, queue.dead, only, dry_run=dry_run)
    assert origins(queue) == [0, 1]
    assert delete_dead_letters(queue.kafka, queue.dead, only, everything=True).deleted == 2


def test_a_deletion_of_everything_takes_no_criterion(queue: Queue) -> None:
    queue.bury(queue.letter((0, 2)))
    with pytest.raises(InvalidArgument, match="everything=True is invalid"):
        delete_dead_letters(queue.kafka, queue.dead, DeadLetterFilter(error="Test"), everything=True)
    assert origins(queue) == [0, 1]


def test_the_command_deletes_without_a_criterion_only_with_everything(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.bury(queue.letter((0, 2)))
    command = ["dead", "delete", queue.dead, "--bootstrap-servers", queue.config["bootstrap.servers"]]
    for wrong in (
        [],
        ["--subscription", "*"],
        ["--everything", "--error", "Test"],
    ):
        with pytest.raises(SystemExit):
            main([*command, *wrong])
        assert "or --everything alone" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*command, "--error", ""])  # as from a variable that is not set
    assert "it is empty" in capsys.readouterr().err
    assert origins(queue) == [0, 1]
    assert main([*command, "--everything"]) == 0
    assert capsys.readouterr().out.startswith("2 dead letters deleted")


def test_the_command_lists_shows_redrives_and_deletes(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.bury(queue.letter((0, 2), error="Timeout: 30 s"), queue.letter((2, 3), error="bad"))
    (first, *_) = read_dead_letters(queue.kafka, queue.dead)
    at = f"{first.partition}/{first.offset}"

    def said(*arguments: str) -> str:
        command = ["dead", *arguments, "--bootstrap-servers", queue.config["bootstrap.servers"]]
        assert main(command) == 0
        return capsys.readouterr().out

    assert said("list", queue.dead, "--groups").splitlines()[1].split()[:4] == [
        "2",
        "0",
        "billing",
        "rejected",
    ]
    assert said("list", queue.dead, "--error", "Timeout").count("Timeout: 30 s") == 2
    assert "value 0" not in said("show", queue.dead, at)
    assert "value 0" in said("show", queue.dead, at, "--payload")
    assert json.loads(said("show", queue.dead, at, "--json"))["origin_offset"] == 0
    assert said("redrive", queue.dead, "--at", at, "--dry-run").startswith("1 message to append")
    assert said("redrive", queue.dead, "--at", at, "--author", "alice").startswith("1 message appended")
    assert said("delete", queue.dead, "--template", "bad").startswith("1 dead letter deleted, 2 passed")
    assert json.loads(said("list", queue.dead, "--json"))[0]["origin_offset"] == 1
    assert (
        main(["dead", "show", queue.dead, "0/99", "--bootstrap-servers", queue.config["bootstrap.servers"]])
        == 1
    )
