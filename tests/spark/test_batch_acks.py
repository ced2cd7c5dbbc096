"""The source acks a committed batch but for what its sink gave back; a real broker and tracker, no Spark."""

from __future__ import annotations

import pytest

from spark_cursor_source.core.marker import EndLeased, Leave, Reject, Release, Start
from spark_cursor_source.core.offsets import OffsetSet
from tests.spark.desk import Desk, MakeDesk, Query

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
