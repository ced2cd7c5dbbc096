"""The log of handlers' exceptions: enough to see them, however many there are. No session is needed."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pytest

from spark_cursor_source.spark import handler_log
from spark_cursor_source.spark.handler_calls import Handling
from spark_cursor_source.spark.handler_log import LogLimit
from spark_cursor_source.spark.handling import handle

IDS = ("topic", "partition", "offset", "delivery_count")


def rows(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"payload-canary"] * count),
            "topic": pa.array(["orders"] * count),
            "partition": pa.array([3] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "delivery_count": pa.array([2] * count, pa.int32()),
        }
    )


def raises(message: Any) -> None:
    raise ValueError(f"bank said no to {message.offset}")


def test_a_handler_that_raises_for_every_row_is_in_the_log_a_few_times_and_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler_log, "_few", LogLimit(most=3, window_ms=60_000))
    caplog.set_level(logging.WARNING)
    (outcomes,) = handle([rows(100)], Handling(fn=raises), IDS)
    assert outcomes.column("action").to_pylist() == ["release"] * 100
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    first = caplog.records[0].getMessage()
    assert "topic=orders partition=3 offset=0 delivery_count=2" in first
    assert first.endswith("why=ValueError: bank said no to 0")
    assert "payload-canary" not in caplog.text
    assert handler_log._few.admit(2**62) == 97


def test_a_handler_that_raises_nothing_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    list(handle([rows(3)], Handling(fn=lambda message: None), IDS))
    assert caplog.records == []


def test_a_message_outside_of_a_task_is_of_the_first_attempt() -> None:
    attempts: list[int] = []
    list(handle([rows(2)], Handling(fn=lambda message: attempts.append(message.attempt)), IDS))
    assert attempts == [0, 0]
