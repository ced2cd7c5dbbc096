"""A breaker is loud: one line when it opens and one when it closes, for all partitions of a subscription."""

from __future__ import annotations

import logging

import pytest

from spark_cursor_source.core.breaker import Breaker, BreakerPolicy
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, HeldLetters
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.tracker.alerts import BreakerLog
from tests.logged import events

OPEN = Breaker().opened("5@t,0", 5, BreakerPolicy(limit=1))
CLOSED = OPEN.closed()


def cursor(partition: int, breaker: Breaker, subscription: str = "s") -> CursorSnapshot:
    held = ((HeldLetters(1, "no"), OffsetSet.of((0, 3))),) if breaker.is_open else ()
    cell = Cell(subscription=subscription, topic="t", partition=partition)
    return CursorSnapshot(cell=cell, read_position=9, next_marker=0, held=held, breaker=breaker)


def test_a_subscription_is_named_when_its_first_breaker_opens_and_its_last_closes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = BreakerLog()

    def said(*cursors: CursorSnapshot) -> list[str]:
        caplog.clear()
        opened = [one for one in cursors if one.breaker.is_open]
        log.see(opened, [one.cell for one in cursors if not one.breaker.is_open])
        assert {record.levelno for record in caplog.records} <= {logging.ERROR}
        return events(caplog.records)

    assert said(cursor(0, CLOSED), cursor(1, Breaker())) == []
    assert said(cursor(0, OPEN)) == ["breaker_opened subscription=s trip=5@t,0 held=3 closes=by-itself"]
    assert said(cursor(1, OPEN)) == []
    assert said(cursor(0, OPEN, "other")) == [
        "breaker_opened subscription=other trip=5@t,0 held=3 closes=by-itself"
    ]
    assert said(cursor(0, CLOSED), cursor(0, CLOSED)) == [], "one is still open"
    assert said(cursor(1, CLOSED)) == ["breaker_closed subscription=s"]
    assert said(cursor(1, CLOSED)) == []


def test_a_tracker_that_begins_with_an_open_breaker_says_so(caplog: pytest.LogCaptureFixture) -> None:
    waits = Breaker().opened("5@t,0", 5, BreakerPolicy(limit=1, pause_ms=None))
    BreakerLog().see([cursor(0, waits)], [])
    assert "closes=when-told" in caplog.text
    assert "close the breaker with cursorq resume" in caplog.text
