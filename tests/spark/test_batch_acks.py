"""The source acks a committed batch but for what its sink gave back; a real broker and tracker, no Spark."""

from __future__ import annotations

import pytest

from spark_cursor_source.consumer import membership
from spark_cursor_source.core.marker import (
    EndLeased,
    EndUpTo,
    Leave,
    Reject,
    Release,
    RestoreState,
    SaveState,
    Seek,
    Start,
)
from spark_cursor_source.core.offsets import OffsetSet
from tests.kafka.control_plane import PARTITIONS, read_all
from tests.spark.desk import Desk, MakeDesk, Query
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

GIVEN_BACK = OffsetSet.of((1, 3), (4, 5))  #: by :func:`settle_exceptions`, less the rejected one


def settle_exceptions(desk: Desk) -> None:
    """Before the commit, 1 is released for a while, 2 is released, 3 is rejected and 4 is left."""
    cell = desk.cell()
    one, two, three, four = (OffsetSet.of((offset, offset + 1)) for offset in range(1, 5))
    desk.say(
        Release(cell=cell, offsets=one, delivery_count=1, delay_ms=60_000),
        Release(cell=cell, offsets=two, delivery_count=1, delay_ms=0),
        Reject(cell=cell, offsets=three, delivery_count=1, reason="no"),
        Leave(cell=cell, offsets=four, delivery_count=1),
    )


def settled_batch(desk: Desk, **more: object) -> Query:
    """A run with a batch of 0 to 5, of which the sink has settled the exceptions."""
    query = Query(desk.reader(ackMode="batch", **more))
    desk.put(*[b"x"] * 6)
    assert len(query.rows(query.next())) == 6
    settle_exceptions(desk)
    return query


@pytest.mark.parametrize("kind", ["exclusive", "key_shared"])
def test_what_the_sink_gave_back_or_left_is_not_acked_with_its_batch(make_desk: MakeDesk, kind: str) -> None:
    desk = make_desk()
    query = settled_batch(desk, subscriptionType=kind)
    query.reader.commit(query.end)
    desk.until(lambda cursor: cursor.totals.acked == 2 and cursor.outstanding == GIVEN_BACK)
    assert query.rows(query.next()) == [(2, 2)]
    query.reader.commit(query.end)
    desk.until(lambda cursor: cursor.outstanding == OffsetSet.of((1, 2), (4, 5)))
    cursor = desk.cursor()
    assert cursor is not None
    assert cursor.leased == OffsetSet.of((4, 5))
    assert (cursor.totals.acked, cursor.totals.dead_lettered, cursor.totals.unknown_ends) == (3, 1, 0)


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
def test_a_run_that_dies_between_the_commit_and_the_ack_ends_what_it_had_leased(
    make_desk: MakeDesk, kind: str
) -> None:
    # run A: S(0-5), exceptions, Spark commits, and it dies     run B: E of 0 and 5, and 2 comes again
    desk = make_desk()
    dead = settled_batch(desk, subscriptionType=kind)
    dead.reader.stop()
    query = Query(desk.reader(ackMode="batch", subscriptionType=kind), dead.end)
    assert query.rows(query.next()) == [(2, 2)]
    query.reader.commit(query.end)
    desk.until(lambda cursor: cursor.outstanding == OffsetSet.of((1, 2), (4, 5)))
    cursor = desk.cursor()
    assert cursor is not None
    assert (cursor.totals.acked, cursor.totals.dead_lettered) == (3, 1)


def test_a_batch_that_spark_did_not_commit_is_replayed_less_what_was_given_back(make_desk: MakeDesk) -> None:
    # run A: S(0-5), exceptions, and it dies before the commit     run B: the batch again, then its acks
    desk = make_desk()
    dead = settled_batch(desk)
    dead.reader.stop()
    desk.until(lambda cursor: cursor.outstanding == OffsetSet.of((0, 3), (4, 6)))
    query = Query(desk.reader(ackMode="batch"), dead.begun)
    query.end = dead.end
    assert query.rows(query.tasks()) == [(0, 2), (2, 2), (4, 2), (5, 2)]
    query.reader.commit(query.end)
    desk.until(lambda cursor: cursor.outstanding == OffsetSet.of((1, 2)))


def test_the_late_ack_of_a_run_that_was_replaced_ends_nothing_of_the_next_run(make_desk: MakeDesk) -> None:
    # A: S(0-5, 1), stands still -------------------- E of its batch, too late     B: replay, S(0-5, 2)
    desk = make_desk()
    query = Query(desk.reader(ackMode="batch"))
    desk.put(*[b"x"] * 6)
    query.rows(query.next())
    query.reader.stop()
    (start,) = desk.markers(Start)
    after = Query(desk.reader(ackMode="batch"), query.begun)
    after.end = query.end
    assert len(after.rows(after.tasks())) == 6
    late = EndLeased(cell=desk.cell(), offsets=start.offsets, run_id=start.run_id, delivery_count=1)
    released = Release(cell=desk.cell(), offsets=OffsetSet.of((3, 4)), delivery_count=2, delay_ms=0)
    desk.say(late, released)
    desk.until(lambda cursor: cursor.available)
    cursor = desk.cursor()
    assert cursor is not None
    assert (len(cursor.outstanding), cursor.totals.acked) == (6, 0)
    after.reader.commit(after.end)
    desk.until(lambda cursor: cursor.outstanding == OffsetSet.of((3, 4)))


def test_a_standby_that_takes_over_under_load_acks_nothing_of_the_batch_that_died(
    make_desk: MakeDesk,
) -> None:
    # A: 0-9, acked | B: S(10-19), and it dies | A: in its first batch after the take-over it acks 20-24 only
    desk = make_desk()
    more = {"ackMode": "batch", "subscriptionType": "failover", "sessionTimeout": "6s"}
    first = acked_batch(desk, 10, **more)
    first.reader.stop()
    active = Query(desk.reader(**more))
    desk.put(*[b"x"] * 10)
    assert active.rows(active.next()) == [(n, 1) for n in range(10, 20)]
    standby = Query(desk.reader(**more), first.end)
    assert not has_new(standby)
    desk.put(*[b"x"] * 5)
    active.reader.stop()
    assert standby.rows(standby.next()) == [(n, 1) for n in range(20, 25)]
    standby.reader.commit(standby.end)
    desk.until(lambda cursor: cursor.totals.acked >= 15)
    assert outstanding(desk) == OffsetSet.of((10, 20))


def test_what_another_query_has_leased_below_its_checkpoint_is_not_acked(make_desk: MakeDesk) -> None:
    # A: 0-9, acked, and it stops | a seek to 0 | B: S(0-9), and it dies | A takes over at 10
    desk = make_desk()
    more = {"ackMode": "batch", "subscriptionType": "failover"}
    query = acked_batch(desk, 10, **more)
    query.reader.stop()
    desk.say(Seek(cell=desk.cell(), position=0))
    desk.until(lambda cursor: cursor.sought and cursor.read_position == 0)
    other = Query(desk.reader(**more))
    assert other.rows(other.next()) == [(n, 1) for n in range(10)]
    other.reader.stop()
    after = Query(desk.reader(**more), query.end)
    desk.put(b"x")
    assert after.rows(after.next()) == [(10, 1)]
    after.reader.commit(after.end)
    desk.until(lambda cursor: cursor.totals.acked >= 11)
    assert outstanding(desk) == OffsetSet.of((0, 10))


def test_what_a_replay_cannot_deliver_again_is_a_dead_letter_also_if_the_replay_dies(
    make_desk: MakeDesk,
) -> None:
    # A: S(0), its only delivery, and it dies | B: replays nothing, Spark commits, it dies | C | lease over
    desk = make_desk(maxDeliveries=1)
    more = {"ackMode": "batch", "leaseTimeout": "15s"}
    desk.put(b"x")
    dead = Query(desk.reader(**more))
    assert dead.rows(dead.next()) == [(0, 1)]
    dead.reader.stop()
    assert not replayed(desk, dead, **more)
    after = Query(desk.reader(**more), dead.end)
    look_at_answer(after)
    desk.until(lambda cursor: not cursor.outstanding)
    cursor = desk.cursor()
    assert cursor is not None
    assert (cursor.totals.acked, cursor.totals.dead_lettered) == (0, 1)


def test_what_a_standby_replays_without_its_partition_is_not_acked_by_its_next_run(
    make_desk: MakeDesk,
) -> None:
    # A: S(0-9), and it dies | B takes over | A: replays nothing, Spark commits | B dies | A again: takes over
    desk = make_desk()
    more = {"ackMode": "batch", "subscriptionType": "failover", "leaseTimeout": "10m"}
    desk.put(*[b"x"] * 10)
    dead = Query(desk.reader(**more))
    assert len(dead.rows(dead.next())) == 10
    dead.reader.stop()
    active = Query(desk.reader(**more))
    assert not has_new(active)
    assert not replayed(desk, dead, **more)
    active.reader.stop()
    after = Query(desk.reader(**more), dead.end)
    desk.put(b"x")
    assert after.rows(after.next()) == [(10, 1)]
    after.reader.commit(after.end)
    desk.until(lambda cursor: cursor.totals.acked >= 1)
    assert outstanding(desk) == OffsetSet.of((0, 10))


def test_a_checkpoint_of_an_earlier_version_redelivers_what_its_last_run_had_not_acked(
    make_desk: MakeDesk,
) -> None:
    # an earlier version: S(0-5), exceptions, Spark commits, and it dies | 0 and 5 are not acked
    desk = make_desk()
    dead = settled_batch(desk)
    dead.reader.stop()
    earlier = {name: value for name, value in dead.end.items() if name != "runs"}
    query = Query(desk.reader(ackMode="batch"), earlier)
    assert query.rows(query.next()) == [(2, 2)]
    query.reader.commit(query.end)
    desk.until(lambda cursor: cursor.totals.acked >= 1)
    assert outstanding(desk) == OffsetSet.of((0, 2), (4, 6))


def test_a_redelivery_that_a_replay_does_not_find_in_a_recreated_topic_is_not_acked(
    make_desk: MakeDesk,
) -> None:
    # A: S(0-5), acked but for 2 | S(2, 2), and it dies | the redeliveries topic is created again |
    # B: replays nothing, Spark commits | S(6), acked, and it dies | C: 2 is not acked, and comes again
    desk = make_desk()
    more = {"ackMode": "batch", "leaseTimeout": "10m"}
    dead = Query(desk.reader(**more))
    desk.put(*[b"x"] * 6)
    assert len(dead.rows(dead.next())) == 6
    two = OffsetSet.of((2, 3))
    desk.say(Release(cell=desk.cell(), offsets=two, delivery_count=1, delay_ms=0))
    desk.until(lambda cursor: cursor.waiting == two)
    assert dead.rows(dead.next()) == [(2, 2)]
    dead.reader.stop()
    desk.until(lambda cursor: cursor.leased == two)
    desk.topics.delete(desk.control.redeliveries)
    desk.topics.create({desk.control.redeliveries: (PARTITIONS, {})})

    query = Query(desk.reader(**more), dead.begun)
    query.end = dead.end
    assert not query.rows(query.tasks())
    query.start = query.end
    look_at_answer(query)
    desk.put(b"x")
    assert query.rows(query.next()) == [(6, 1)]
    query.reader.commit(query.end)
    desk.until(lambda cursor: cursor.read_position == 7 and 6 not in cursor.outstanding)
    assert outstanding(desk) == two
    query.reader.stop()

    after = Query(desk.reader(**more), query.end)
    look_at_answer(after)
    desk.say(Release(cell=desk.cell(), offsets=two, delivery_count=2, delay_ms=0))
    assert after.until_rows(lambda *_: True) == [(2, 3)]
    after.reader.commit(after.end)
    desk.until(lambda cursor: not cursor.outstanding)


def test_what_is_acked_up_to_a_position_spares_what_another_query_left_leased(
    make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A: 0-9, acked, stands still | B: S(10-19), and it dies | A goes on: 20-24 are acked, 10-19 come again
    desk = make_desk()
    more = {"ackMode": "cumulative", "subscriptionType": "failover", "sessionTimeout": "6s"}
    query = acked_batch(desk, 10, **more)
    with monkeypatch.context() as patched:  # B does not wait until the session of A is over
        patched.setattr(membership, "is_dead", lambda name: True)
        other = Query(desk.reader(**more))
    desk.put(*[b"x"] * 10)
    assert other.rows(other.next()) == [(n, 1) for n in range(10, 20)]
    wait_until(lambda: not has_new(query) and not (query.reader.reportLatestOffset() or {})["queue"])
    desk.put(*[b"x"] * 5)
    other.reader.stop()
    assert query.rows(query.next()) == [(n, 1) for n in range(20, 25)]
    query.reader.commit(query.end)
    desk.until(lambda cursor: cursor.totals.acked >= 15)
    assert outstanding(desk) == OffsetSet.of((10, 20))
    desk.say(Release(cell=desk.cell(), offsets=OffsetSet.of((10, 20)), delivery_count=1, delay_ms=0))
    assert query.rows(query.next()) == [(n, 2) for n in range(10, 20)]
    query.reader.commit(query.end)
    desk.until(lambda cursor: not cursor.outstanding)
    until_acked_up_to(desk, query, 26)


def test_what_is_acked_up_to_a_position_spares_what_a_restored_state_has_waiting(make_desk: MakeDesk) -> None:
    # S(0-3), saved | all acked | restored | 0 1 4 5 are acked, and 2 3 wait
    desk = make_desk()
    query = Query(desk.reader(ackMode="cumulative", maxOffsetsPerTrigger=4))
    desk.put(*[b"x"] * 8)
    assert len(query.rows(query.next())) == 4
    desk.say(SaveState(cell=desk.cell(), name="a"))
    assert len(query.rows(query.next())) == 4
    query.reader.commit(query.end)
    desk.until(lambda cursor: not cursor.outstanding and cursor.read_position == 8)
    look_at_answer(query)
    desk.say(RestoreState(cell=desk.cell(), name="a"))
    desk.until(lambda cursor: cursor.outstanding == OffsetSet.of((0, 4)))
    # Else a batch could hold redeliveries only, or new messages only.
    wait_until(lambda: offsets_behind(query) == 4)
    wait_until(lambda: read_all(desk.control.config, desk.control.redeliveries))
    assert query.until_rows(lambda offset, _: offset == 0) == [(0, 2), (1, 2), (4, 1), (5, 1)]
    query.reader.commit(query.end)
    desk.until(lambda cursor: cursor.totals.acked >= 12)
    assert outstanding(desk) == OffsetSet.of((2, 4))
    assert query.until_rows(lambda offset, _: offset == 2)
    query.reader.commit(query.end)
    desk.until(lambda cursor: cursor.mark_delete == 7)


def replayed(desk: Desk, dead: Query, **more: object) -> list[tuple[int, int]]:
    """The rows of the batch of a dead run in a run that replays it, sees it committed, and dies."""
    query = Query(desk.reader(**more), dead.begun)
    query.end = dead.end
    rows = query.rows(query.tasks())
    query.start = query.end
    look_at_answer(query)
    query.reader.stop()
    return rows


def acked_batch(desk: Desk, size: int, **more: object) -> Query:
    """A run whose one batch is committed and acked."""
    query = Query(desk.reader(**more))
    desk.put(*[b"x"] * size)
    assert len(query.rows(query.next())) == size
    query.reader.commit(query.end)
    desk.until(lambda cursor: cursor.totals.acked == size)
    look_at_answer(query)
    return query


def look_at_answer(query: Query) -> None:
    """Have a query read the tracker's answer, which has come, and look at it."""
    for _ in range(2):
        assert not has_new(query)


def offsets_behind(query: Query) -> int | None:
    """Return the offsets from the position of a query to the end, None while no partition is held."""
    query.look()
    behind: dict[str, int] = (query.reader.reportLatestOffset() or {}).get("offsetsBehindLatest", {})
    return behind.get("sum")


def has_new(query: Query) -> bool:
    """True if a new batch waits. The batch in progress, if any, is acked."""
    return query.reader.latestOffset(query.start, query.reader.getDefaultReadLimit()) != query.start


def until_acked_up_to(desk: Desk, query: Query, position: int) -> None:
    """Run batches of one message until a cumulative ack is at least at the position."""

    def acked() -> bool:
        desk.put(b"x")
        query.rows(query.next())
        query.reader.commit(query.end)
        return any(one.position >= position for one in desk.markers(EndUpTo))

    wait_until(acked)


def outstanding(desk: Desk) -> OffsetSet:
    cursor = desk.cursor()
    assert cursor is not None
    return cursor.outstanding
