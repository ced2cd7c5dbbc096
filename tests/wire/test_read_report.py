"""Reports of tasks on the redeliveries topic."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.read_report import ReadReport
from spark_cursor_source.wire import redelivery
from spark_cursor_source.wire.read_report import decode, encode

GOLDEN = Path(__file__).parent.parent / "golden"
ONE = ReadReport(
    cell=Cell(subscription="billing", topic="orders", partition=3),
    batch="0123456789abcdef0123456789abcdef#17",
    task=4,
)


def test_reports_of_version_1_are_read_for_ever() -> None:
    assert decode((GOLDEN / "read_report_v1.bin").read_bytes()) == ONE


def test_the_first_task_reports_too() -> None:
    first = ReadReport(cell=ONE.cell, batch=ONE.batch, task=0)
    assert decode(encode(first)) == first


def test_to_who_knows_no_reports_one_is_an_announcement_of_no_messages() -> None:
    announced = redelivery.decode(encode(ONE))
    assert announced.cell == ONE.cell
    assert announced.run_id == ONE.batch, "it is for no run"
    assert not announced.offsets


def test_an_announcement_is_no_report() -> None:
    assert decode((GOLDEN / "redelivery_v1.bin").read_bytes()) is None


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"junk"])
def test_a_record_without_a_value_or_with_junk_is_no_report(value: bytes | None) -> None:
    assert decode(value) is None


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_random_bytes_are_a_report_or_none(value: bytes) -> None:
    one = decode(value)
    assert one is None or decode(encode(one)) == one
