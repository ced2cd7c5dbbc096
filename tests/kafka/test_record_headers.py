"""Records with a header name that is not UTF-8 are read as every other record."""

from __future__ import annotations

import pytest
from confluent_kafka import Message

from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.record_headers import all_headers, headers_of
from spark_cursor_source.topics.chunks import MessageChunk
from tests.kafka.control_plane import Control, produce, read_all
from tests.kafka.raw_headers import produce_with_headers

pytestmark = pytest.mark.broker

WRITTEN: list[list[tuple[bytes, bytes | None]]] = [
    [(b"first", b"1"), (b"caf\xe9\xe2\x82", None), (b"last", b"\xff")],
    [(b"\xff", b"1"), (b"\xfe", b"2")],
]
READ = [
    None,
    [("first", b"1"), ("caf\ufffd\ufffd\ufffd", None), ("last", b"\xff")],
    [("\ufffd", b"1"), ("\ufffd", b"2")],
    [("good", b"3")],
]


@pytest.fixture
def messages(control: Control, topics: ClusterAdmin) -> list[Message]:
    """Four messages: without headers, with one and with two names that are not UTF-8, and with a good one."""
    topics.create({control.queue: (1, {})})
    produce(control.config, control.queue, [{"value": b"0"}])
    for headers in WRITTEN:
        produce_with_headers(control.config["bootstrap.servers"], control.queue, b"v", headers)
    produce(control.config, control.queue, [{"value": b"3", "headers": [("good", b"3")]}])
    return read_all(control.config, control.queue)


def test_a_name_that_is_not_utf_8_has_u_fffd_for_each_wrong_byte(messages: list[Message]) -> None:
    for _ in range(2):  # the client itself fails only at the first call
        assert [headers_of(message) or None for message in messages] == READ


def test_many_messages_are_read_at_once(messages: list[Message]) -> None:
    for _ in range(2):
        assert all_headers(messages) == READ


def test_the_messages_become_rows(messages: list[Message]) -> None:
    chunk = MessageChunk(messages)
    assert [index for index, _, _ in chunk.with_headers(["last"])] == [1]
    column = chunk.columns(include_headers=True)[-1].to_pylist()
    assert column == [
        None if one is None else [{"key": name, "value": value} for name, value in one] for one in READ
    ]


def test_a_loop_that_the_interpreter_has_specialized_notices_each_of_them(
    control: Control, topics: ClusterAdmin
) -> None:
    topics.create({control.queue: (1, {})})
    servers = control.config["bootstrap.servers"]
    produce_with_headers(servers, control.queue, b"v", [(b"\xff", b"1")], times=200)
    found = [headers_of(message) for message in read_all(control.config, control.queue)]
    assert found == [[("\ufffd", b"1")]] * 200
