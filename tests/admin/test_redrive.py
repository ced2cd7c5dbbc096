"""Dead letters that go back to their queue: whole, selected, and once."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from spark_cursor_source.admin import letter_pass as redriving
from spark_cursor_source.admin.dead_letters import DeadLetterFilter
from spark_cursor_source.admin.redrive import Redriven, redrive
from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import InvalidOption, NoDeadLetter, RedriveFenced
from spark_cursor_source.topics.redriven import RedrivenOffsets
from spark_cursor_source.wire.redriven import SettledLetters
from tests.admin.letter_queue import Queue
from tests.conftest import ROOT, DeleteTopic
from tests.kafka.control_plane import read_all

pytestmark = pytest.mark.broker


@pytest.fixture
def queue(broker: EmbeddedKafka) -> Queue:
    return Queue(broker.bootstrap_servers)


def facts(message: Message) -> tuple[object, ...]:
    return message.partition(), message.key(), message.value(), message.headers() or []


def with_old_timestamp(message: Message) -> tuple[object, ...]:
    *others, headers = facts(message)
    return *others, [*headers, ("cursorq-timestamp", b"%d" % message.timestamp()[1])]


def test_dead_letters_are_in_their_queue_again_as_they_were(queue: Queue) -> None:
    queue.bury(queue.letter((3, 5)), queue.letter((5, 8), error="boom"))
    assert redrive(queue.kafka, queue.dead) == Redriven(sent=5, passed=0)
    before = read_all(queue.config, queue.topic)[3:8]
    assert [facts(message) for message in queue.back()] == [with_old_timestamp(message) for message in before]
    # Retention goes by the timestamp: with the old one, what comes back could be removed within minutes.
    assert min(message.timestamp()[1] for message in queue.back()) > 1_700_000_000_000
    assert len(read_all(queue.config, queue.dead)) == 5  # they stay where they are


def test_a_dead_letter_is_redriven_once_whatever_filter_takes_it(queue: Queue) -> None:
    queue.bury(queue.letter((0, 2), error="Timeout: 30 s"), queue.letter((2, 4), error="empty order"))
    timeouts = DeadLetterFilter(reason="rejected", error="^Timeout")
    assert redrive(queue.kafka, queue.dead, timeouts) == Redriven(sent=2, passed=2)
    assert redrive(queue.kafka, queue.dead, timeouts) == Redriven(sent=0, passed=2)
    spent = queue.letter((8, 9), reason="max-deliveries", error="Timeout: 60 s")
    queue.bury(queue.letter((7, 8), error="Timeout: 60 s"), spent)
    assert redrive(queue.kafka, queue.dead, timeouts) == Redriven(sent=1, passed=3)
    early = DeadLetterFilter(since_ms=1_000_000, until_ms=1_000_003)  # 0 and 1 too, which are back already
    assert redrive(queue.kafka, queue.dead, early) == Redriven(sent=1, passed=2)
    rest = redrive(queue.kafka, queue.dead)
    assert (rest.sent, rest.passed, rest.before) == (2, 0, 4)
    assert [message.value() for message in queue.back()] == [b"value %d" % n for n in (0, 1, 7, 2, 3, 8)]


def test_a_dry_run_counts_and_writes_nothing(queue: Queue) -> None:
    queue.bury(queue.letter((0, 2), error="Timeout"), queue.letter((2, 3)))
    would = redrive(queue.kafka, queue.dead, DeadLetterFilter(error="Timeout"), dry_run=True)
    assert str(would) == "2 messages to append to the queues, 1 dead letter passed over"
    assert queue.back() == []
    assert redrive(queue.kafka, queue.dead) == Redriven(sent=3, passed=0)


def test_a_message_whose_dead_letter_was_written_twice_is_redriven_once(queue: Queue) -> None:
    # A tracker that dies between its copies and its transaction writes them again.
    queue.bury(queue.letter((3, 5)))
    queue.bury(queue.letter((3, 6)))
    assert redrive(queue.kafka, queue.dead) == Redriven(sent=3, passed=0)
    queue.bury(queue.letter((4, 5)))
    assert redrive(queue.kafka, queue.dead) == Redriven(sent=0, passed=0)
    assert [message.value() for message in queue.back()] == [b"value 3", b"value 4", None]


def test_each_subscription_has_its_own_dead_letter_of_a_message(queue: Queue) -> None:
    other = queue.letter((3, 4))
    for letter in (other, replace(other, cell=replace(other.cell, subscription="audit"))):
        copier = queue.copier(RedeliveryPolicy(dead_letter_topic=queue.dead))
        copier.copy([letter])
        copier.close()
    assert redrive(queue.kafka, queue.dead) == Redriven(sent=2, passed=0)


def test_dead_letters_of_a_topic_that_was_made_again_are_others(
    queue: Queue, delete_topic: DeleteTopic
) -> None:
    queue.bury(queue.letter((0, 2)))
    assert redrive(queue.kafka, queue.dead).sent == 2
    delete_topic(queue.dead)
    queue.bury(queue.letter((5, 7)))
    assert redrive(queue.kafka, queue.dead) == Redriven(sent=2, passed=0)


def test_a_redrive_that_died_between_appending_and_its_commit_is_seen_once(queue: Queue) -> None:
    # begin ---- appended ---- noted ---- X ---- again
    queue.bury(queue.letter((0, 3)))
    assert redrive(queue.kafka, queue.dead, DeadLetterFilter(error="nobody")).sent == 0
    info = queue.topics.describe([queue.dead])[queue.dead]
    store = RedrivenOffsets(queue.config, DEFAULT_CURSORS_TOPIC, info)
    store.read()
    (note,) = store.records(1, SettledLetters(OffsetSet.of((0, 1))))
    died = Producer({**queue.config, "transactional.id": f"cursorq-redrive-{queue.dead}"})
    died.init_transactions(30)
    died.begin_transaction()
    died.produce(queue.topic, b"value 0", partition=1)
    died.produce(note.topic, note.value, note.key, partition=note.partition)
    died.flush(30)
    assert redrive(queue.kafka, queue.dead) == Redriven(sent=3, passed=0)
    assert [message.value() for message in queue.back()] == [b"value 0", b"value 1", b"value 2"]
    store.close()
    died.purge()


@pytest.mark.parametrize("wrong", [{"error": "["}, {"reason": "*"}])
def test_a_filter_that_is_no_regular_expression_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidOption, match="it is not a regular expression"):
        DeadLetterFilter(**wrong)


def test_a_redrive_keeps_to_its_rate(queue: Queue) -> None:
    queue.bury(queue.letter((0, 10)))
    began = time.monotonic()
    assert redrive(queue.kafka, queue.dead, rate=5.0).sent == 10
    assert 1.5 <= time.monotonic() - began <= 60


def test_the_later_of_two_redrives_goes_on_and_the_other_ends(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.bury(queue.letter((0, 10)))
    monkeypatch.setattr(redriving, "AT_ONCE", 4)
    commit = redriving.TransactionalProducer.commit
    calls: list[int] = []

    def overtaken(self: redriving.TransactionalProducer, *args: object) -> None:
        calls.append(1)
        if len(calls) == 2:
            assert 0 < redrive(queue.kafka, queue.dead).sent < 10
        commit(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(redriving.TransactionalProducer, "commit", overtaken)
    with pytest.raises(RedriveFenced, match="Run only one redrive at a time"):
        redrive(queue.kafka, queue.dead)
    assert [message.value() for message in queue.back() if message.value()] == [
        b"value %d" % n for n in range(10) if n != 5
    ]


def run_job(queue: Queue, *arguments: str) -> subprocess.CompletedProcess[str]:
    job = [sys.executable, str(ROOT / "jobs" / "redrive.py"), *arguments]
    if not {"--bootstrap-servers", "--config-file"} & set(arguments):
        job += ["--bootstrap-servers", queue.config["bootstrap.servers"]]
    return subprocess.run(job, capture_output=True, text=True, timeout=120, check=False)


def test_the_job_says_what_it_has_done(queue: Queue) -> None:
    queue.bury(queue.letter((0, 2), error="Timeout"), queue.letter((2, 3)))
    done = run_job(queue, queue.dead, "--error", "Timeout", "--rate", "50")
    assert done.stdout == "2 messages appended to the queues, 1 dead letter passed over\n"
    assert [message.value() for message in queue.back()] == [b"value 0", b"value 1"]
    again = run_job(queue, queue.dead)
    assert again.stdout == (
        "1 message appended to the queues, 0 dead letters passed over, 2 redriven before\n"
    )


@pytest.mark.parametrize("option", ["--error=", "--reason=", "--config-file="])
def test_the_job_refuses_an_empty_argument_and_redrives_nothing(queue: Queue, option: str) -> None:
    queue.bury(queue.letter((0, 1)))
    done = run_job(queue, queue.dead, option)
    assert done.returncode == 2
    assert done.stderr.endswith("error: an argument is empty; give a value, or leave it out\n")
    assert queue.back() == []


def test_the_job_takes_the_brokers_of_its_file(queue: Queue, tmp_path: Path) -> None:
    queue.bury(queue.letter((0, 1)))
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={queue.config['bootstrap.servers']}\n")
    done = run_job(queue, queue.dead, "--config-file", str(file))
    assert done.stdout == "1 message appended to the queues, 0 dead letters passed over\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dead", "--error", "["], "Option 'error' = '[' is invalid: it is not a regular expression"),
        (["dead", "--since", "yesterday"], "'yesterday' is not an instant such as 2026-11-21T08:00:00+00:00"),
        (["no-such-topic"], "These topics do not exist: 'no-such-topic'"),
        (["dead", "--bootstrap-servers", "127.0.0.1:1"], "Connection refused"),
    ],
)
def test_the_job_says_what_is_wrong_in_one_line(queue: Queue, arguments: list[str], said: str) -> None:
    began = time.monotonic()
    wrong = run_job(queue, *arguments)
    assert said in wrong.stderr.splitlines()[-1]
    assert (wrong.returncode != 0, "Traceback" in wrong.stderr) == (True, False)
    assert time.monotonic() - began < 100  # and most of it is the machine's


def test_a_topic_that_holds_other_records_is_refused(queue: Queue) -> None:
    with pytest.raises(NoDeadLetter, match=f"{queue.topic}-1 at offset 0 is not a dead letter"):
        redrive(queue.kafka, queue.topic)


def test_dead_letters_of_a_queue_that_is_gone_are_passed_over(
    queue: Queue, delete_topic: DeleteTopic
) -> None:
    queue.bury(queue.letter((0, 2)))
    delete_topic(queue.topic)
    assert redrive(queue.kafka, queue.dead) == Redriven(sent=0, passed=2)
