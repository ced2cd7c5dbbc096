"""Times of events: the earliest, and all before a time, after any changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.event_times import EventTimes

CHANGES = st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 20)), max_size=300)


@given(changes=CHANGES, limit_ms=st.integers(0, 21))
def test_events_are_those_of_a_plain_dict(changes: list[tuple[int, int | None]], limit_ms: int) -> None:
    times, judge = EventTimes[int](), dict[int, int]()
    for key, at_ms in changes:
        times.set(key, at_ms)
        judge.pop(key, None)
        if at_ms is not None:
            judge[key] = at_ms
        assert times.earliest == min(judge.values(), default=None)
    for _ in range(2):  # a search changes nothing
        found = times.before(limit_ms)
        assert [judge[key] for key in found] == sorted(judge[key] for key in found)
        assert set(found) == {key for key, at_ms in judge.items() if at_ms < limit_ms}
    assert len(times) == len(judge)
    times.clear()
    assert times.earliest is None
    assert times.before(99) == []


def test_changes_of_one_key_do_not_grow_the_memory() -> None:
    times = EventTimes[str]()
    for at_ms in range(100_000, 0, -1):
        times.set("a", at_ms)
        times.set("b", 100_000 + at_ms)
    assert len(times._heap) < 100
    assert times.earliest == 1
