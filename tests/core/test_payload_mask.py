"""A mask hides fields of JSON, headers of their names, and what has no known fields."""

from __future__ import annotations

import json

import pytest

from spark_cursor_source.core.payload_mask import NO_MASK, PayloadMask

CARD = PayloadMask(fields=frozenset({"card", "token"}))


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ({"card": 1, "n": 2}, {"card": "***", "n": 2}),
        ({"card": {"number": "4711"}}, {"card": "***"}),
        ([{"a": [{"token": "x"}, 1]}], [{"a": [{"token": "***"}, 1]}]),
        ({"name": "Zoë"}, {"name": "Zoë"}),
    ],
)
def test_a_field_is_hidden_at_any_depth(data: object, shown: object) -> None:
    masked = CARD.value(json.dumps(data).encode())
    assert masked is not None
    assert json.loads(masked) == shown


@pytest.mark.parametrize("data", [b"card=4711", b"4711", b'"card"', b"\xff\x00", b'{"card": ', b"[" * 9_999])
def test_a_value_without_known_fields_is_hidden_as_a_whole(data: bytes) -> None:
    assert CARD.value(data) == b"***"


@pytest.mark.parametrize("more", [b"\\ud800", b"\\udfff\\ud83d"])
def test_a_text_that_utf_8_cannot_hold_switches_no_mask_off(more: bytes) -> None:
    data = b'{"card": "4711", "more": "%s"}' % more
    for shown in (CARD.value(data), CARD.key(data), CARD.headers([("trace", data)])[0][1]):
        assert shown == b'{"card": "***", "more": "%s"}' % more


@pytest.mark.parametrize(
    "data",
    [
        b'{"card": "4711", "n": ' + b"9" * 5_000 + b"}",
        b'{"card": "4711", "deep": ' + b"[" * 9_999 + b"]" * 9_999 + b"}",
        b'\xef\xbb\xbf {"card": "4711"',
        '{"card": "4711"'.encode("utf-16"),
        '{"card": "4711"'.encode("utf-32-be"),
    ],
)
def test_a_key_or_header_that_begins_as_json_and_cannot_be_parsed_is_hidden(data: bytes) -> None:
    assert CARD.key(data) == b"***"
    assert CARD.headers([("trace", data)]) == (("trace", b"***"),)


def test_keys_and_headers_are_hidden_by_field_or_as_wholes() -> None:
    assert (CARD.key(b"plain"), CARD.key(b'{"card": 1}')) == (b"plain", b'{"card": "***"}')
    headers = [("token", b"secret"), ("trace", b"7"), ("none", None)]
    assert CARD.headers(headers) == (("token", b"***"), ("trace", b"7"), ("none", None))
    everything = PayloadMask(everything=True)
    assert everything.headers(headers) == (("token", b"***"), ("trace", b"***"), ("none", None))
    assert (everything.value(b"{}"), everything.key(b"k"), everything.value(None)) == (b"***", b"***", None)


def test_without_a_mask_every_byte_is_shown() -> None:
    assert NO_MASK.value(b'{"a":1.10}') == b'{"a":1.10}'
    assert NO_MASK.headers([("card", b"1")]) == (("card", b"1"),)
