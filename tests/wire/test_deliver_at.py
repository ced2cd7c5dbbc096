"""When a message is due, by what its headers say."""

from __future__ import annotations

import pytest

from spark_cursor_source.wire.deliver_at import Due, due

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
