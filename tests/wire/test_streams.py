"""Records of the streams topic as bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_cursor_source.core.stream_state import (
    MadeReadonly,
    Paused,
    StreamConfigured,
    StreamRecord,
    StreamSettings,
)
from spark_cursor_source.errors import InvalidControlRecord
from spark_cursor_source.wire.streams import decode, encode, key_of

GOLDEN = Path(__file__).parent.parent / "golden"
PLACE = ("orders", 3)
SETTINGS = StreamSettings(subject="orders.>", optimistic_concurrency=True, retention_messages=1_000)


@pytest.mark.parametrize(
    "record",
    [
        StreamConfigured(stream="orders", settings=SETTINGS),
        StreamConfigured(stream="orders", settings=StreamSettings()),
        StreamConfigured(stream="orders", settings=None),
        Paused(place=PLACE, paused=True, resume_all=True),
        Paused(place=PLACE, paused=False),
        Paused(place=PLACE, paused=None),
        MadeReadonly(place=PLACE, readonly=True),
        MadeReadonly(place=PLACE, readonly=False),
        MadeReadonly(place=PLACE, readonly=None),
    ],
    ids=repr,
)
def test_a_record_comes_back_as_it_was(record: StreamRecord) -> None:
    assert decode(key_of(record), encode(record)) == record


def test_the_bytes_of_today_are_read_for_ever() -> None:
    golden = (GOLDEN / "stream_settings_v1.bin").read_bytes()
    assert decode(b"orders", golden) == StreamConfigured(stream="orders", settings=SETTINGS)
    assert encode(StreamConfigured(stream="orders", settings=SETTINGS)) == golden


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b"\x08\x01"),
        (b"orders,3", b"\x08\x01"),
        (b"orders,x,paused", b"\x08\x01"),
        (b"orders,3,deleted", b"\x08\x01"),
        (b"orders", b""),
        (b"orders", b"\xff\x00random"),
        (b"orders", b"\x08\x63\x12\x00"),
        (b"orders,3,paused", encode(MadeReadonly(place=PLACE, readonly=True))),
    ],
)
def test_what_is_no_record_is_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(InvalidControlRecord):
        decode(key, value)
