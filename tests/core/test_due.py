"""When a message is due, by its headers and the broker's time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cursor_source.core.due import GRAIN_MS, MOST_WAITS, Due, due, look_again_ms
from spark_cursor_source.core.marker import MAX_LEASE_MS

NOON_MS = 1_795_262_400_000  # 2026-11-21T12:00:00Z


@pytest.mark.parametrize(
    ("value", "at_ms"),
    [
        (b"1795262400000", NOON_MS),
        (b"0", 0),
        (b"2026-11-21T12:00:00Z", NOON_MS),
        (b"2026-11-21T13:00:00+01:00", NOON_MS),
        (b"2026-11-21T12:00:00.0001Z", NOON_MS + 1),  # never early
        (b"0001-01-01T00:00:00+23:59", -62_135_683_140_000),
    ],
)
def test_an_instant_is_milliseconds_or_iso_8601_with_an_offset(value: bytes, at_ms: int) -> None:
    assert due([("deliverAt", value)], None) == Due(at_ms)


@pytest.mark.parametrize("value", [b"30s", b"30000ms"])
def test_a_duration_counts_from_the_records_timestamp(value: bytes) -> None:
    assert due([("trace", b"x"), ("deliverAfter", value)], NOON_MS) == Due(NOON_MS + 30_000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("deliverAt", b"tomorrow"),
        ("deliverAt", b"2026-11-21T12:00:00"),  # of which place on earth?
        ("deliverAt", b"-5"),
        ("deliverAt", b"9" * 30),
        ("deliverAt", b"\xff\xfe"),
        ("deliverAt", b""),
        ("deliverAt", None),
        ("deliverAfter", b"30"),
        ("deliverAfter", b"-30s"),
        ("deliverAfter", None),
    ],
)
def test_what_is_no_time_counts_for_nothing_and_is_named(name: str, value: bytes | None) -> None:
    assert due([(name, value)], NOON_MS) == Due(None, name)


def test_a_duration_after_a_timestamp_that_is_not_there_is_unreadable() -> None:
    assert due([("deliverAfter", b"30s")], None) == Due(None, "deliverAfter")


def test_of_two_headers_the_later_time_counts_and_of_one_name_the_last_header() -> None:
    both = [("deliverAt", b"1795262400000"), ("deliverAfter", b"1h")]
    assert due(both, NOON_MS).at_ms == due(both[::-1], NOON_MS).at_ms == NOON_MS + 3_600_000
    assert due([*both, ("deliverAfter", b"1s")], NOON_MS).at_ms == NOON_MS + 1_000
    assert due([*both, ("deliverAfter", b"soon")], NOON_MS) == Due(NOON_MS, "deliverAfter")


def test_other_headers_ask_for_nothing() -> None:
    assert due([("deliverat", b"0"), ("DELIVERAFTER", b"1h")], NOON_MS) == Due(None)


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
