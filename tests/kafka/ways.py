"""The two ways to read a queue: with the native reader, where it is built, and without it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
from confluent_kafka import Consumer

from spark_cursor_source.kafka.native import SWITCH, NativeConsumer
from spark_cursor_source.kafka.range_consumer import read_columns, read_range

FoundT = TypeVar("FoundT")
TestT = TypeVar("TestT", bound=Callable[..., None])

IS_BUILT = find_spec("spark_cursor_source_native") is not None
NEEDS_NATIVE = pytest.mark.skipif(
    not IS_BUILT, reason="the native reader is not built; `make setup` builds it"
)


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads with the native reader, or without it."""
    monkeypatch.setenv(SWITCH, request.param)


def on_both_ways(test: TestT) -> TestT:
    """Runs a test once with and once without the native reader."""
    ways = [pytest.param("0", id="plain"), pytest.param("1", id="native", marks=NEEDS_NATIVE)]
    return pytest.mark.usefixtures("way")(pytest.mark.parametrize("way", ways, indirect=True)(test))


def same_on_both_ways(read: Callable[[], FoundT]) -> FoundT:
    """What ``read()`` returns, which is the same with and without the native reader, unless the log changes.

    The way is chosen for the whole process. Two threads would leave the choice of one of them behind.
    """
    assert threading.current_thread() is threading.main_thread()
    with patch.dict(os.environ, {SWITCH: "0"}):
        found = read()
    if IS_BUILT:
        with patch.dict(os.environ, {SWITCH: "1"}):
            assert read() == found
    return found


def read_records(consumer: Consumer | NativeConsumer, *where: Any, **how: Any) -> list[int]:
    """The offsets that ``read_range`` or ``read_columns`` finds."""
    if isinstance(consumer, NativeConsumer):
        batches = read_columns(consumer, *where, headers=False, **how)
        return [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    return [message.offset() for messages in read_range(consumer, *where, **how) for message in messages]
