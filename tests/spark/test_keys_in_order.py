"""Handlers with ordering=key: a message that is not acked holds back the later ones of its key."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from spark_cursor_source.core.outcome import Leave, Reject, Release
from spark_cursor_source.errors import KeyOrderLost
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.spark.handler_calls import Calls, Handling, calls_of
from spark_cursor_source.spark.per_row import Message, Rows
from spark_cursor_source.spark.settling import settlement_of

Handler = Callable[[Message], Any]
KINDS = ("one after another", "in threads", "on an event loop")


def rows_of(*messages: tuple[int, bytes | None]) -> Rows:
    columns = {
        "topic": pa.array(["t"] * len(messages)),
        "partition": pa.array([0] * len(messages), pa.int32()),
        "offset": pa.array([offset for offset, _ in messages], pa.int64()),
        "delivery_count": pa.array([1] * len(messages), pa.int32()),
        "key": pa.array([key for _, key in messages], pa.binary()),
    }
    return Rows(pa.RecordBatch.from_pydict(columns))


def calls(fn: Handler, kind: str) -> Calls:
    if kind == KINDS[0]:
        return calls_of(Handling(fn=fn, by_key=True, in_order=True), ())
    if kind == KINDS[1]:
        return calls_of(Handling(fn=fn, by_key=True, in_order=True, concurrency=4), ())

    async def coroutine(message: Message) -> Any:
        return fn(message)

    return calls_of(Handling(fn=coroutine, by_key=True, in_order=True, concurrency=4), ())


def outcomes(rows: Rows) -> dict[int, str]:
    offsets = rows.of("offset")
    return {offsets[index]: rows.odd.get(index, ("ack", None, None, None))[0] for index in rows.done}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("answer", [False, Release(delay="30s"), Leave(), ValueError("no")], ids=str)
def test_a_message_that_is_not_acked_holds_back_the_later_ones_of_its_key_and_no_others(
    kind: str, answer: Any
) -> None:
    handled = []

    def fn(message: Message) -> Any:
        handled.append(message.offset)
        if message.offset != 1:
            return None
        if isinstance(answer, Exception):
            raise answer
        return answer

    running = calls(fn, kind)
    messages = [(0, b"a"), (1, b"a"), (2, b"b"), (3, b"a"), (4, None), (5, b"b"), (6, b"a")]
    rows, more = rows_of(*messages), rows_of((7, b"b"), (8, b"a"))
    running.submit(rows, range(7))
    running.submit(more, range(2))
    assert running.finish(30)
    running.close()
    assert sorted(handled) == [0, 1, 2, 4, 5, 7]
    found = outcomes(rows) | outcomes(more)
    assert {offset for offset, action in found.items() if action == "block"} == {3, 6, 8}
    assert len(found) == 9
    behind = {rows.of("offset")[at]: odd[2] for at, odd in rows.odd.items() if odd[0] == "block"}
    assert behind == {3: "1", 6: "1"}, "the reason is the offset that it waits for"
    assert '"block"' not in running.times.encoded(), "a handler that was not called took no time"


@pytest.mark.parametrize("kind", KINDS)
def test_a_reject_ends_a_message(kind: str) -> None:
    running = calls(lambda message: Reject("bad") if message.offset == 0 else None, kind)
    rows = rows_of((0, b"a"), (1, b"a"))
    running.submit(rows, range(2))
    assert running.finish(30)
    running.close()
    assert outcomes(rows) == {0: "reject", 1: "ack"}


def test_a_handler_that_exceeds_its_timeout_holds_back_the_later_ones() -> None:
    released = threading.Event()

    def fn(message: Message) -> None:
        if message.offset == 0:
            released.wait(60)

    handling = Handling(fn=fn, by_key=True, in_order=True, concurrency=2, timeout_ms=2_000)
    running = calls_of(handling, ())
    rows = rows_of((0, b"a"), (1, b"b"), (2, b"a"))
    running.submit(rows, range(3))
    assert running.finish(30)
    released.set()
    running.close()
    assert outcomes(rows) == {0: "release", 1: "ack", 2: "block"}


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_earlier_attempt_gave_back_holds_back_what_is_left(kind: str) -> None:
    running = calls(lambda message: None, kind)
    rows = rows_of((0, b"a"), (1, b"a"), (2, b"a"), (3, b"b"))
    running.hold_back(rows, [1])
    running.submit(rows, [0, 2, 3])
    assert running.finish(30)
    running.close()
    assert outcomes(rows) == {0: "ack", 2: "block", 3: "ack"}


@pytest.mark.parametrize("kind", KINDS[:2])
def test_rows_of_a_key_in_another_order_are_refused(kind: str) -> None:
    running = calls(lambda message: None, kind)
    with pytest.raises(KeyOrderLost, match=r"offset 3 of topic 't' partition 0 .* offset 7 of the same key"):
        running.submit(rows_of((7, b"a"), (5, b"b"), (3, b"a")), range(3))
    running.close()


def test_blocked_rows_become_markers_that_name_what_they_wait_for() -> None:
    options = AckOptions.parse({"kafka.bootstrap.servers": "b:1", "subscription": "s", "ackMode": "batch"})
    running = calls(lambda message: False if message.offset in (3, 4) else None, KINDS[0])
    rows = rows_of((3, b"a"), (4, b"b"), (6, b"a"), (8, b"a"), (9, b"b"), (10, b"c"))
    running.submit(rows, range(6))
    settlement = settlement_of(options)
    settlement.add(rows.outcomes(range(6), ("topic", "partition", "offset", "delivery_count")))
    (block,) = settlement.blocks()  # type: ignore[union-attr]
    assert (list(block.offsets), block.behind, block.delivery_count) == ([6, 8, 9], (3, 3, 4), 1)
    (release,) = settlement.markers()
    assert list(release.offsets) == [3, 4]
    assert settlement.settled == 6


def test_a_batch_of_which_every_row_waits_becomes_one_marker() -> None:
    options = AckOptions.parse({"kafka.bootstrap.servers": "b:1", "subscription": "s"})
    running = calls(lambda message: False, KINDS[0])
    settlement = settlement_of(options)
    for rows in (rows_of((3, b"a"), (4, b"a")), rows_of((5, b"a"), (6, b"a"))):
        running.submit(rows, range(2))
        settlement.add(rows.outcomes(range(2), ("topic", "partition", "offset", "delivery_count")))
    (block,) = settlement.blocks()  # type: ignore[union-attr]
    assert (list(block.offsets), block.behind) == ([4, 5, 6], (3, 3, 3))
    (release,) = settlement.markers()
    assert list(release.offsets) == [3]
    assert settlement.settled == 4
