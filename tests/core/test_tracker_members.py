"""Leases of a member that has left the consumer group; times as in test_tracker.py."""

from __future__ import annotations

import pytest

from spark_cursor_source.core.breaker import BreakerPolicy
from spark_cursor_source.core.marker import Leave, MemberLost
from spark_cursor_source.core.policy import RedeliveryPolicy, StepBackoff
from tests.core.timeline import CELL, A, B, Log, dead, offsets, redeliver


def lost(run: str = A, *, owner: str = B) -> MemberLost:
    return MemberLost(cell=CELL, run_id=owner, lost_run_id=run)


def test_what_a_lost_member_had_leased_is_announced_to_the_owner_at_once() -> None:
    # 0 S(A)----------60 | 1 Hello(B), A is lost
    log = Log(max_deliveries=9, backoff=StepBackoff(delays_ms=(30_000,)))
    log.hello(A)
    log.start(offsets((0, 3)), at=0)
    log.end_of(offsets(1))
    log.hello(B)
    log.append(lost(), at=1)
    assert log.advance(1) == [redeliver(offsets(0, 2), count=1, run=B)], "without a backoff, as in Pulsar"
    assert log.state.leases == ()
    assert log.state.totals.lease_timeouts == 2


def test_leases_of_other_runs_go_on() -> None:
    log = Log(max_deliveries=9)
    log.hello(A)
    log.start(offsets(0), at=0, run=A)
    log.start(offsets(1), at=0, run="run-c")
    log.hello(B)
    log.append(lost("run-c"), at=1)
    assert log.advance(1) == [redeliver(offsets(1), count=1, run=B)]
    assert [lease.run_id for lease, _ in log.state.leases] == [A]


@pytest.mark.parametrize("marker", [lost(owner=A), lost(B), lost(B, owner=A)])
def test_only_the_owner_can_say_so_and_only_of_another(marker: MemberLost) -> None:
    # B is the owner: A, who stood still meanwhile, knows nothing of the present members.
    log = Log()
    log.hello(A)
    log.start(offsets(0), at=0, run=A)
    log.hello(B)
    log.start(offsets(1), at=0, run=B)
    log.append(marker, at=1)
    assert log.advance(1) == []
    assert len(log.state.leases) == 2


def test_what_was_left_to_another_job_keeps_its_lease() -> None:
    log = Log(max_deliveries=9)
    log.hello(A)
    log.start(offsets((0, 2)), at=0)
    log.append(Leave(cell=CELL, offsets=offsets(1), delivery_count=1), at=0)
    log.hello(B)
    log.append(lost(), at=1)
    assert log.advance(1) == [redeliver(offsets(0), count=1, run=B)]
    assert [left for _, left in log.state.leases] == [offsets(1)]


def test_the_last_delivery_of_a_lost_member_is_a_dead_letter() -> None:
    log = Log(max_deliveries=1)
    log.hello(A)
    log.start(offsets(0), at=0)
    log.hello(B)
    log.append(lost(), at=1)
    assert log.advance(1) == [dead(offsets(0), reason="max-deliveries", count=1, error="", last=0)]


def test_suspects_that_were_lost_in_a_group_have_one_more_delivery_alone() -> None:
    log = Log(max_deliveries=2)
    log.hello(A)
    log.start(offsets((0, 2)), at=0, count=2, alone=True)
    log.hello(B)
    log.append(lost(), at=1)
    announced = log.advance(1)
    assert [one.offsets for one in announced] == [offsets(0), offsets(1)]
    assert all(one.alone for one in announced)


def test_leases_go_on_while_the_breaker_is_open() -> None:
    log = Log(policy=RedeliveryPolicy(max_deliveries=1, breaker=BreakerPolicy(limit=1)))
    log.hello(A)
    log.start(offsets((0, 2)), at=0)
    log.reject(offsets(0))
    log.start(offsets((2, 4)), at=0)
    log.reject(offsets(2))
    log.hello(B)
    log.append(lost(), at=1)
    log.advance(1)
    assert log.state.breaker.is_open
    assert [held for _, held in log.state.leases] == [offsets(1, 3)]


def test_a_lost_member_that_comes_back_changes_nothing_but_its_acks_count() -> None:
    log = Log()
    log.hello(A)
    log.start(offsets((0, 3)), at=0)
    log.hello(B)
    log.append(lost(), at=1)
    log.advance(1)
    log.start(offsets((0, 3)), at=2, run=B)
    log.end_leased(offsets((0, 3)), at=3, run=A)
    log.keep_alive(offsets((0, 3)), at=3, lease=600, run=A)
    log.end_of(offsets(2), at=3)
    assert log.advance(30) == []
    ((lease, held),) = log.state.leases
    assert (lease.run_id, lease.deadline_ms, held) == (B, 62_000, offsets((0, 2)))
