"""Starts whose write was not confirmed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spark_cursor_source.consumer.starts import Starts
from spark_cursor_source.core.batch import Delivery
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import MarkersNotDurable

ONE, OTHER = (Cell(subscription="s", topic="t", partition=number) for number in (0, 1))


def delivery(cell: Cell, *offsets: int) -> Delivery:
    return Delivery(cell=cell, offsets=OffsetSet.from_offsets(offsets), delivery_count=1)


def test_a_start_stays_unconfirmed_until_a_start_of_the_same_messages_is_confirmed() -> None:
    fails = [True]

    def write(starts: Sequence[Start]) -> int:
        if fails[0]:
            raise MarkersNotDurable("m", len(starts), "no answer")
        return 1_000

    starts = Starts(write, lambda cell: "run", lease_ms=60_000)
    with pytest.raises(MarkersNotDurable):
        starts.write([delivery(ONE, 0, 1, 2), delivery(OTHER, 5)])
    fails[0] = False
    starts.write([delivery(ONE, 1)])
    assert list(starts.unconfirmed(ONE)) == [0, 2]
    assert list(starts.unconfirmed(OTHER)) == [5]
    starts.write([delivery(ONE, 0, 2, 3)])
    assert not starts.unconfirmed(ONE)
    assert [list(one.offsets) for one in starts.forget([OTHER])] == [[5]]
    assert not starts.unconfirmed(OTHER)
