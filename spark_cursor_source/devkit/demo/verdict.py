"""The demo's verdict, computed from the topics alone instead of the processes' reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spark_cursor_source.core.tracker import MAX_DELIVERIES, REJECTED
from spark_cursor_source.devkit.demo.history import MessageId, Reason
from spark_cursor_source.devkit.demo.scenario import (
    ACCOUNT_CLOSED,
    UNREADABLE,
    Fate,
    Scenario,
    fate_of,
    key_of,
    number_of,
    value_of,
)
from spark_cursor_source.devkit.demo.topics import DeadLetterRecord, Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One required condition, with the figures that prove the result."""

    passed: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Result of all checks."""

    checks: tuple[Check, ...]
    again: Mapping[Reason, int]  #: count of redeliveries by reason
    deliveries: int

    @property
    def passed(self) -> bool:
        """True if all checks have passed."""
        return all(check.passed for check in self.checks)

    def to_json(self) -> dict[str, object]:
        """Returns the result by name, for ``json.dumps``."""
        return {
            "passed": self.passed,
            "checks": [{"passed": one.passed, "text": one.text} for one in self.checks],
            "deliveries": self.deliveries,
            "redeliveries": {str(reason): count for reason, count in self.again.items()},
        }


def judge(evidence: Evidence, scenario: Scenario) -> Verdict:
    """Compares the evidence with the expected result."""
    return Verdict(
        checks=tuple(_checks(evidence, scenario)),
        again=evidence.history.again,
        deliveries=evidence.history.deliveries,
    )


def _checks(evidence: Evidence, scenario: Scenario) -> Iterator[Check]:
    yield _queue_untouched(evidence, scenario)
    yield _all_accounted_for(evidence, scenario)
    yield _dead_letters_right(evidence, scenario)
    yield _cursors_at_the_end(evidence, scenario)
    yield _repeats_explained(evidence)
    yield _crashed(evidence)


def _queue_untouched(evidence: Evidence, scenario: Scenario) -> Check:
    wanted = Counter((key_of(number), value_of(number)) for number in range(scenario.messages))
    return Check(
        passed=Counter(evidence.queue.values()) == wanted,
        text=f"the queue topic holds {len(evidence.queue):,} messages, each as it was produced: no copies",
    )


def _all_accounted_for(evidence: Evidence, scenario: Scenario) -> Check:
    acked = evidence.history.acked
    dead = {letter.origin for letter in evidence.dead_letters}
    lost = evidence.queue.keys() - acked - dead
    both = acked & dead
    text = (
        f"{len(acked):,} acked + {len(dead):,} dead-lettered = {len(acked | dead):,} of {scenario.messages:,}"
    )
    if lost:
        text += f"; neither: {_some(lost)}"
    if both:
        text += f"; both: {_some(both)}"
    return Check(passed=not lost and not both and len(evidence.queue) == scenario.messages, text=text)


def _dead_letters_right(evidence: Evidence, scenario: Scenario) -> Check:
    letters = evidence.dead_letters
    right = [letter for letter in letters if _is_right(letter, evidence, scenario)]
    origins = Counter(letter.origin for letter in letters)
    failed, rejected = scenario.expected(Fate.FAILS_ALWAYS), scenario.expected(Fate.REJECTED)
    text = (
        f"dead letters: {failed} after {scenario.max_deliveries} deliveries, {rejected} rejected; "
        f"{len(right)} of {len(letters)} whole and with the right reason, "
        f"{len(letters) - len(origins)} copied twice"
    )
    # A tracker crash could repeat a copy, but this demo only crashes the consumer.
    return Check(passed=len(right) == len(letters) == len(origins) == failed + rejected, text=text)


def _is_right(letter: DeadLetterRecord, evidence: Evidence, scenario: Scenario) -> bool:
    if not letter.of_demo or evidence.queue.get(letter.origin) != letter.record or letter.record[1] is None:
        return False
    fate = fate_of(number_of(letter.record[1]))
    if fate is Fate.REJECTED:
        return (letter.reason, letter.error) == (REJECTED, UNREADABLE)
    failed = fate is Fate.FAILS_ALWAYS and letter.delivery_count == scenario.max_deliveries
    return failed and letter.reason == MAX_DELIVERIES and ACCOUNT_CLOSED in letter.error


def _cursors_at_the_end(evidence: Evidence, scenario: Scenario) -> Check:
    ends: Counter[int] = Counter()
    for partition, offset in evidence.queue:
        ends[partition] = max(ends[partition], offset + 1)
    there = [
        partition
        for partition in range(scenario.partitions)
        if (cursor := evidence.cursors.get(partition)) is not None
        and cursor.mark_delete == ends[partition] - 1
        and not cursor.outstanding
    ]
    holes = sum(cursor.ack_holes.count_ranges() for cursor in evidence.cursors.values())
    text = f"mark-delete is at the end of {len(there)} of {scenario.partitions} partitions, {holes} ack holes"
    return Check(passed=len(there) == scenario.partitions and not holes, text=text)


def _repeats_explained(evidence: Evidence) -> Check:
    again = evidence.history.again
    unexplained = again[Reason.UNEXPLAINED]
    explained = ", ".join(
        f"{reason} {again[reason]:,}" for reason in Reason if reason is not Reason.UNEXPLAINED
    )
    text = f"{again.total():,} deliveries beyond the first: {explained}"
    if unexplained:
        text += f"; {unexplained:,} after an ack or under a lease that still ran"
    return Check(passed=not unexplained, text=text)


def _crashed(evidence: Evidence) -> Check:
    runs = len(evidence.history.runs)
    return Check(passed=runs == 2, text=f"the consumer ran {runs} times: it was killed and started again")


def _some(messages: set[MessageId]) -> str:
    shown = ", ".join(f"{partition}/{offset}" for partition, offset in sorted(messages)[:5])
    return f"{len(messages):,} ({shown}{', ...' if len(messages) > 5 else ''})"
