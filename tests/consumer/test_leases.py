"""Leases and the thread that extends them, without a broker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import pytest

from spark_cursor_source.consumer.lease_extender import LeaseExtender
from spark_cursor_source.consumer.leases import Leased, Leases, keep_alives
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import MarkersNotDurable

CELL = Cell(subscription="s", topic="t", partition=0)
HOUR_MS = 3_600_000


def leased(first: int, past: int, *, holder: str = "run") -> Leased[str]:
    return Leased(cell=CELL, holder=holder, offsets=OffsetSet.of((first, past)))


def test_leases_that_join_later_are_extended_with_the_others() -> None:
    # 0 S(0) -- 15 S(1) -- 20 both -- 40 both
    leases: Leases[str] = Leases(lease_ms=60_000)
    leases.add(leased(0, 1), now_ms=0)
    leases.add(leased(1, 2), now_ms=15_000)
    assert leases.due(19_999) == []
    assert leases.due(20_000) == [leased(0, 2)]
    assert leases.wait_s(25_000) == 15
    assert leases.due(40_000) == [leased(0, 2)]


def test_leases_of_two_runs_are_extended_by_a_marker_of_each() -> None:
    leases: Leases[str] = Leases(lease_ms=3_000)
    leases.add(leased(0, 1), now_ms=0)
    leases.add(leased(1, 2, holder="run.1"), now_ms=0)
    markers = keep_alives(leases.due(1_000), lease_ms=3_000)
    assert [(marker.run_id, marker.offsets.ranges) for marker in markers] == [
        ("run", ((0, 1),)),
        ("run.1", ((1, 2),)),
    ]


def test_a_lease_is_extended_for_twelve_hours_and_one_of_an_hour_later_still_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    leases: Leases[str] = Leases(lease_ms=60_000)
    leases.add(leased(0, 2), now_ms=0)
    leases.add(leased(5, 6), now_ms=HOUR_MS)
    assert sum(len(one.offsets) for one in leases.due(12 * HOUR_MS)) == 3
    with caplog.at_level(logging.WARNING):
        assert leases.due(12 * HOUR_MS + 60_000) == [leased(5, 6)]
    assert "event=lease_limit_reached hours=12 messages=2" in caplog.text


def test_a_batch_is_extended_until_it_is_complete_also_after_a_failed_write(
    caplog: pytest.LogCaptureFixture,
) -> None:
    extended: list[Sequence[Leased[str]]] = []
    again = threading.Event()

    def extend(due: Sequence[Leased[str]]) -> None:
        extended.append(due)
        if len(extended) == 1:
            raise MarkersNotDurable("markers", 1, "no answer")
        again.set()

    extender: LeaseExtender[str] = LeaseExtender(extend, lease_ms=60)
    extender.track([leased(0, 5)])
    assert again.wait(20)
    extender.untrack()
    extender.stop()
    assert extended[:2] == [[leased(0, 5)], [leased(0, 5)]]
    assert "event=lease_extension_failed" in caplog.text
