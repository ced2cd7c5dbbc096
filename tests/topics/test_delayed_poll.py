"""When a message that is not due is looked at again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.topics.delayed import GRAIN_MS, MOST_WAITS, look_again_ms

NOON_MS = 1_795_262_400_000  # 2026-11-21T12:00:00Z


@given(st.integers(1, 10**15), st.integers(0, 2**41))
def test_a_look_comes_when_the_message_is_due_or_a_64th_before_and_always_later_than_now(
    left_ms: int, now_ms: int
) -> None:
    again_ms = look_again_ms(now_ms + left_ms, now_ms)
    wait_ms = again_ms - now_ms
    counted = min(left_ms, MAX_LEASE_MS)
    assert counted * 63 / 64 <= wait_ms < counted + GRAIN_MS
    if left_ms <= GRAIN_MS * MOST_WAITS:
        assert wait_ms >= left_ms, "near ones are looked at once more, when they are due"


def test_a_million_due_times_share_a_few_hundred_looks() -> None:
    looks = {look_again_ms(NOON_MS + 43 * number, NOON_MS) for number in range(1, 10**6, 7)}
    assert len(looks) < 1_000
