"""Counts over time keep their sums and their order while the spans widen."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.time_counts import TimeCounts


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2**45))), st.integers(1, 20))
def test_no_event_is_lost_and_few_spans_are_enough(events: list[tuple[str, int]], most: int) -> None:
    counts = TimeCounts[str](most=most)
    for key, at_ms in events:
        counts.add(key, at_ms)
    starts = [start for key in "ab" for start, _ in counts.of(key)]
    if starts:
        assert (max(starts) - min(starts)) // counts.width_ms < most
    for key in "ab":
        wanted = Counter(at // counts.width_ms * counts.width_ms for one, at in events if one == key)
        assert counts.of(key) == tuple(sorted(wanted.items()))
