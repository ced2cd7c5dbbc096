"""Where a subscription of the client may end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_cursor_source.client.streams.positions import StartAt, StopAt, check_order
from spark_cursor_source.errors import InvalidArgument


@pytest.mark.parametrize(
    ("start", "stop"),
    [(StartAt.offset(7), StopAt.offset(3)), (StartAt.time_ms(7_000), StopAt.time_ms(6_999))],
)
def test_a_stop_before_the_start_is_refused(start: StartAt, stop: StopAt) -> None:
    with pytest.raises(InvalidArgument, match="it is before the start, 7"):
        check_order(start, stop)


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        (StartAt.offset(7), StopAt.offset(7)),
        (StartAt.offset(7), StopAt.time_ms(3)),
        (StartAt.earliest(), StopAt.offset(0)),
        (StartAt.ago_ms(7), StopAt.time_ms(3)),
        (StartAt.offset(7), StopAt.never()),
    ],
)
def test_what_cannot_be_compared_is_taken(start: StartAt, stop: StopAt) -> None:
    check_order(start, stop)


@pytest.mark.parametrize(
    "position", [StartAt.offset, StartAt.time_ms, StartAt.ago_ms, StopAt.offset, StopAt.time_ms]
)
@pytest.mark.parametrize("value", [-1, 2**63, 1.5, "7", True])
def test_a_position_is_a_number_that_kafka_knows(position: Callable[[Any], object], value: object) -> None:
    with pytest.raises(InvalidArgument):
        position(value)
