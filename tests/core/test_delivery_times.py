"""Times of first deliveries in few steps, however many batches there were."""

from __future__ import annotations

from spark_cursor_source.core.delivery_times import MOST_STEPS, UNKNOWN, FirstDeliveries


def test_steps_of_the_same_instant_are_one() -> None:
    assert UNKNOWN.then(0, 1_000).then(5, 1_000).steps == ((0, 1_000),)
    assert UNKNOWN.then(7, 0) == UNKNOWN, "what is not known takes no step"


def test_a_step_back_forgets_what_came_after() -> None:
    assert UNKNOWN.then(0, 1_000).then(9, 2_000).then(4, 3_000).steps == ((0, 1_000), (4, 3_000))


def test_an_unknown_time_in_between_stays_unknown() -> None:
    known = UNKNOWN.then(0, 1_000).then(5, 0).then(9, 2_000)
    assert [known.at(offset) for offset in (4, 5, 8, 9)] == [1_000, None, None, 2_000]


def test_many_steps_are_merged_and_stay_near_the_truth() -> None:
    known = FirstDeliveries()
    for batch in range(5_000):
        known = known.then(batch * 10, 1_000_000 + batch * 1_000)
    assert len(known.steps) == MOST_STEPS
    errors_ms = [1_000_000 + batch * 1_000 - (known.at(batch * 10 + 3) or 0) for batch in range(5_000)]
    assert min(errors_ms) == 0, "never later than it was"
    assert max(errors_ms) < 5_000_000 / MOST_STEPS * 4
