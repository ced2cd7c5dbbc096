"""The verdict of the crash tests on messages that came again."""

from __future__ import annotations

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.tracker import Redeliver
from tests.e2e.harness import Announced, Delivery, Marked, why_again

CELL = Cell(subscription="s", topic="t", partition=1)
ONE = OffsetSet.of((2, 3))


def started(count: int, run: str) -> Marked:
    marker = Start(cell=CELL, offsets=ONE, lease_ms=5_000, delivery_count=count, run_id=run)
    return Marked(marker_offset=count, at_ms=count, marker=marker)


def announced(count: int) -> Announced:
    redeliver = Redeliver(cell=CELL, offsets=ONE, delivery_count=count, run_id="r", alone=False)
    return Announced(at_ms=count, redeliver=redeliver)


def seen(count: int, *, batch: int, run: str) -> Delivery:
    return Delivery(id=(1, 2), count=count, batch=batch, run=run, at_ms=count)


FIRST = seen(1, batch=0, run="1.0")
AGAIN = seen(3, batch=1, run="3.0")


def test_a_replay_of_an_announced_delivery_that_died_unseen_is_a_redelivery() -> None:
    # batch 0: S1, seen -- announced(1) -- batch 1: S2, dies before its handler -- batch 1 again: S3, seen
    marked = [started(1, "a"), started(2, "b"), started(3, "c")]
    assert why_again([FIRST, AGAIN], marked, [announced(1)]) == ({(1, 2): ("redelivery",)}, [])


def test_a_delivery_that_nobody_announced_is_a_wrong() -> None:
    marked = [started(1, "a"), started(2, "b"), started(3, "c")]
    _, wrongs = why_again([FIRST, AGAIN], marked, [])
    assert wrongs == [f"(1, 2) came again as {AGAIN}, which nobody announced"]


def test_one_run_that_starts_a_message_twice_is_no_replay() -> None:
    marked = [started(1, "a"), started(2, "b"), started(3, "b")]
    assert why_again([FIRST, AGAIN], marked, [announced(1)])[1]


def test_two_unseen_deliveries_in_a_row_need_an_announcement() -> None:
    last = seen(4, batch=1, run="4.0")
    marked = [started(1, "a"), started(2, "b"), started(3, "c"), started(4, "d")]
    assert why_again([FIRST, last], marked, [announced(1)])[1]
