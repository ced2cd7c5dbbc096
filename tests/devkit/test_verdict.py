"""The demo's verdict: passes on what has to be, and on nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, Lease
from spark_cursor_source.core.marker import End, Hello, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.devkit.demo.history import MarkerHistory, Reason
from spark_cursor_source.devkit.demo.scenario import (
    ACCOUNT_CLOSED,
    UNREADABLE,
    Fate,
    Scenario,
    fate_of,
    messages,
)
from spark_cursor_source.devkit.demo.topics import DeadLetterRecord, Evidence
from spark_cursor_source.devkit.demo.verdict import judge

SCENARIO = Scenario(messages=1_000, partitions=2)
DEAD = (Fate.FAILS_ALWAYS, Fate.REJECTED)


def cell(partition: int) -> Cell:
    return Cell(subscription="bookkeeping", topic="payments", partition=partition)


def evidence() -> Evidence:
    """All is well: even numbers are in partition 0, odd ones in 1."""
    queue, letters, history = {}, [], MarkerHistory()
    for number, record in enumerate(messages(SCENARIO)):
        queue[number % 2, number // 2] = record
        fate = fate_of(number)
        if fate in DEAD:
            failed = fate is Fate.FAILS_ALWAYS
            letters.append(
                DeadLetterRecord(
                    record=record,
                    origin=(number % 2, number // 2),
                    reason="max-deliveries" if failed else "rejected",
                    error=f"LookupError: {ACCOUNT_CLOSED}" if failed else UNREADABLE,
                    delivery_count=4 if failed else 1,
                    of_demo=True,
                )
            )
    dead = {letter.origin for letter in letters}
    for partition in (0, 1):
        every = OffsetSet.of((0, 500))
        history.add(
            Start(cell=cell(partition), offsets=every, lease_ms=9, delivery_count=1, run_id="a"), at_ms=0
        )
        acked = OffsetSet.from_offsets([offset for offset in range(500) if (partition, offset) not in dead])
        history.add(End(cell=cell(partition), offsets=acked), at_ms=1)
        history.add(Hello(cell=cell(partition), run_id="b", position=0), at_ms=2)
    cursors = {p: CursorSnapshot(cell=cell(p), read_position=500, next_marker=9) for p in (0, 1)}
    return Evidence(queue=queue, history=history, dead_letters=tuple(letters), cursors=cursors)


def lost_ack(found: Evidence) -> Evidence:
    found.history.acked.discard((0, 0))
    return found


def acked_and_dead(found: Evidence) -> Evidence:
    found.history.acked.add(found.dead_letters[0].origin)
    return found


def copy_in_the_queue(found: Evidence) -> Evidence:
    return replace(found, queue={**found.queue, (0, 500): found.queue[0, 0]})


def dead_letter_missing(found: Evidence) -> Evidence:
    return replace(found, dead_letters=found.dead_letters[1:])


def dead_letter_twice(found: Evidence) -> Evidence:
    return replace(found, dead_letters=(*found.dead_letters, found.dead_letters[0]))


def dead_letter_without_reason(found: Evidence) -> Evidence:
    first, *rest = found.dead_letters
    return replace(found, dead_letters=(replace(first, reason=""), *rest))


def dead_letter_torn(found: Evidence) -> Evidence:
    first, *rest = found.dead_letters
    return replace(found, dead_letters=(replace(first, record=(None, first.record[1])), *rest))


def innocent_dead_letter(found: Evidence) -> Evidence:
    innocent = replace(found.dead_letters[0], origin=(0, 0), record=found.queue[0, 0])
    found.history.acked.discard((0, 0))
    return replace(found, dead_letters=(*found.dead_letters, innocent))


def message_outstanding(found: Evidence) -> Evidence:
    held = replace(found.cursors[1], leases=((Lease(9_000, 1, "b"), OffsetSet.of((499, 500))),))
    return replace(found, cursors={**found.cursors, 1: held})


def cursor_missing(found: Evidence) -> Evidence:
    return replace(found, cursors={0: found.cursors[0]})


def delivered_after_its_ack(found: Evidence) -> Evidence:
    found.history.again[Reason.UNEXPLAINED] += 1
    return found


def never_killed(found: Evidence) -> Evidence:
    found.history.runs.pop("b")
    return found


def test_all_acked_or_dead_lettered_passes_and_every_check_says_so() -> None:
    verdict = judge(evidence(), SCENARIO)
    assert verdict.passed, [check for check in verdict.checks if not check.passed]
    assert "997 acked + 3 dead-lettered = 1,000 of 1,000" in [check.text for check in verdict.checks]


@pytest.mark.parametrize(
    "spoil",
    [
        lost_ack,
        acked_and_dead,
        copy_in_the_queue,
        dead_letter_missing,
        dead_letter_twice,
        dead_letter_without_reason,
        dead_letter_torn,
        innocent_dead_letter,
        message_outstanding,
        cursor_missing,
        delivered_after_its_ack,
        never_killed,
    ],
)
def test_one_thing_that_is_not_as_it_has_to_be_fails_the_verdict(
    spoil: Callable[[Evidence], Evidence],
) -> None:
    assert not judge(spoil(evidence()), SCENARIO).passed


def test_a_lost_message_is_named() -> None:
    texts = [check.text for check in judge(lost_ack(evidence()), SCENARIO).checks if not check.passed]
    assert any("neither: 1 (0/0)" in text for text in texts)
