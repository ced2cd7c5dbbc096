"""The curves and rates of the page, also while the end of a log cannot be read."""

from __future__ import annotations

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, Totals
from spark_cursor_source.core.stats import PartitionStats, SubscriptionStats
from spark_cursor_source.ui.drawing import drawn
from spark_cursor_source.ui.history import SAMPLES, Curve, History


def subscription(*, log_end: int | None, acked: int, trouble: str | None = None) -> SubscriptionStats:
    cursor = CursorSnapshot(
        cell=Cell(subscription="s", topic="t", partition=0),
        read_position=acked,
        next_marker=0,
        totals=Totals(acked=acked),
    )
    part = PartitionStats.of(cursor, log_end=log_end, oldest_ms=None, end_trouble=trouble)
    return SubscriptionStats(topic="t", subscription="s", partitions=(part,), consumers=(), newest_ms=None)


def history_of(*samples: SubscriptionStats) -> History:
    """A sample every ten seconds."""
    history = History()
    for number, sample in enumerate(samples):
        history.take([(sample, None)], monotonic_ms=10_000 * number)
    return history


def curve(history: History, title: str) -> Curve:
    return next(one for one in history.curves("t", "s") if one.title == title)


def test_a_curve_has_a_value_for_each_sample_and_a_rate_for_each_step() -> None:
    history = history_of(*(subscription(log_end=100 + 50 * n, acked=20 * n) for n in range(4)))
    assert curve(history, "Backlog").values == [100, 130, 160, 190]
    assert curve(history, "In").values == [5.0, 5.0, 5.0]
    assert curve(history, "Acked").values == [2.0, 2.0, 2.0]
    rates = history.rates("t", "s")
    assert rates is not None
    assert (rates.arrived, rates.acked) == (5.0, 2.0)


def test_an_unknown_end_is_neither_an_empty_queue_nor_a_flood_when_it_is_known_again() -> None:
    unknown = [subscription(log_end=None, acked=20 * n, trouble="no leader") for n in range(2)]
    known = [subscription(log_end=1_000_000 + 50 * n, acked=20 * n) for n in range(2, 5)]
    during = history_of(*unknown)
    assert curve(during, "Backlog").values == [None, None]
    assert curve(during, "Backlog").last is None
    rates = during.rates("t", "s")
    assert rates is not None
    assert (rates.arrived, rates.acked) == (None, 2.0)

    after = history_of(*unknown, *known)
    assert curve(after, "Backlog").values[:3] == [None, None, 1_000_060]
    assert curve(after, "In").values == [None, None, 5.0, 5.0]
    assert curve(after, "Acked").values == [2.0] * 4
    rates = after.rates("t", "s")
    assert rates is not None
    assert (rates.arrived, rates.acked) == (5.0, 2.0)


def test_a_deleted_topic_has_an_empty_backlog() -> None:
    history = history_of(*(subscription(log_end=None, acked=5) for _ in range(2)))
    assert curve(history, "Backlog").values == [0, 0]
    assert curve(history, "In").values == [0.0]


def test_a_line_has_a_gap_where_values_are_unknown() -> None:
    values = [None, 1.0, 1.0, None, None, 2.0, 2.0, None]
    seconds = [70.0 - 10 * n for n in range(8)]
    found = drawn(Curve(title="Backlog", unit="messages", seconds=seconds, values=values))
    assert (found.line.count("M"), found.line.count("L")) == (2, 2)
    assert found.area.count("Z") == 2
    assert (found.last, found.highest) == (None, 2.0)
    nothing = drawn(Curve(title="Backlog", unit="messages", seconds=[0.0], values=[None]))
    assert (nothing.line, nothing.area, nothing.highest) == ("", "", 0.0)


def test_the_ring_keeps_the_last_hour() -> None:
    history = history_of(*(subscription(log_end=n, acked=0) for n in range(SAMPLES + 5)))
    assert curve(history, "Backlog").values == list(range(5, SAMPLES + 5))
