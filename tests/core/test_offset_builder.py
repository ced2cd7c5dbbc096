"""Sets that grow by many runs."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.offsets import OffsetSet, OffsetSetBuilder

runs = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 9)).map(lambda one: (one[0], sum(one))))


@given(st.lists(runs, max_size=5))
def test_all_that_was_added_is_there(parts: list[list[tuple[int, int]]]) -> None:
    gathered = OffsetSetBuilder()
    for part in parts:
        gathered.add(part)
    assert gathered.whole() == OffsetSet.of(*(run for part in parts for run in part))


def test_half_a_million_gaps_need_a_few_megabytes() -> None:
    # Messages of one-message transactions: every second offset is a transaction marker.
    gathered = OffsetSetBuilder()
    tracemalloc.start()
    for first in range(0, 1_000_000, 1_000):
        gathered.add((offset, offset + 1) for offset in range(first, first + 1_000, 2))
    assert len(gathered.whole()) == 500_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000, "a tuple a gap would be 50 MB and more"
