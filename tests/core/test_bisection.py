"""The search for failing rows: it finds all of them, and no others, with few calls."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.bisection import Bisection, bisect


class Calls:
    """A function that fails on some rows, or after some calls."""

    def __init__(self, bad: set[int], *, last: int | None = None) -> None:
        self.bad, self.last = bad, last
        self.passed: list[range] = []
        self.count = 0

    def __call__(self, rows: range) -> Exception | None:
        self.count += 1
        if self.bad.intersection(rows) or (self.last is not None and self.count > self.last):
            return ValueError(f"{len(rows)} rows")
        self.passed.append(rows)
        return None


def bisect_all(count: int, call: Calls, *, suspects: int = 0, max_calls: int) -> Bisection:
    """Call a function with all rows, and bisect if it fails."""
    error = call(range(count))
    if error is None:
        return Bisection(failing=[], calls=1, passed=True)
    return bisect(count, error, call, suspects=suspects, max_calls=max_calls)


def rows_of(found: Bisection) -> list[int]:
    return sorted(chain.from_iterable(rows for rows, _ in found.failing))


batches = st.integers(1, 60).flatmap(
    lambda count: st.tuples(
        st.just(count), st.sets(st.integers(0, count - 1), max_size=5), st.integers(0, count)
    )
)


@given(batches)
def test_with_enough_calls_exactly_the_failing_rows_are_left(batch: tuple[int, set[int], int]) -> None:
    count, bad, suspects = batch
    calls = Calls(bad)
    found = bisect_all(count, calls, suspects=suspects, max_calls=1_000)
    assert found.calls == calls.count
    if found.passed:
        assert rows_of(found) == sorted(bad)
        assert all(len(rows) == 1 for rows, _ in found.failing)
        assert sorted(chain(*calls.passed, bad)) == list(range(count)), "each once"
    else:
        assert bad.issuperset({count - 1, count // 2, 0})


@given(batches, st.integers(5, 12))
def test_no_row_is_left_out_when_the_calls_run_out(batch: tuple[int, set[int], int], most: int) -> None:
    count, bad, suspects = batch
    calls = Calls(bad)
    found = bisect_all(count, calls, suspects=suspects, max_calls=most)
    assert calls.count <= most
    if found.passed:
        assert sorted(chain(*calls.passed, rows_of(found))) == list(range(count))
        assert bad.issubset(rows_of(found))


@pytest.mark.parametrize(("count", "most"), [(1, 1), (2, 3), (3, 4), (100_000, 4)])
def test_an_outage_costs_three_more_calls_at_most(count: int, most: int) -> None:
    calls = Calls(set(range(count)))
    found = bisect_all(count, calls, max_calls=64)
    assert not found.passed
    assert (found.calls, calls.passed) == (most, [])


@pytest.mark.parametrize("bad", [0, 1, 49_999, 50_000, 99_999])
def test_one_bad_row_of_100000_is_found_in_40_calls(bad: int) -> None:
    found = bisect_all(100_000, Calls({bad}), max_calls=64)
    assert (rows_of(found), found.calls <= 40) == ([bad], True)


def test_suspects_are_tried_apart_from_the_others() -> None:
    # 0 1 2 were delivered before; 1 is bad ---- all, 9, 0 1 2, 3 to 8
    calls = Calls({1})
    bisect_all(10, calls, suspects=3, max_calls=64)
    assert calls.passed[:2] == [range(9, 10), range(3, 9)]


def test_what_an_outage_in_the_middle_leaves_is_left_as_a_whole() -> None:
    calls = Calls({0}, last=6)
    found = bisect_all(1_000, calls, max_calls=10)
    assert found.passed
    assert sorted(chain(*calls.passed, rows_of(found))) == list(range(1_000))
