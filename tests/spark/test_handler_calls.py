"""Handlers side by side, without Spark and without a broker: order, timeouts, failures and resources."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from spark_cursor_source import AckSink, DeltaSink, KafkaSink, Leave, QueryMetrics, Reject, Release
from spark_cursor_source.errors import (
    ConflictingOptions,
    HandlerNotPicklable,
    HandlerSetupFailed,
    InvalidOption,
    UnknownOutcome,
)
from spark_cursor_source.spark.handler_calls import Handling, _Call, _OnLoop
from spark_cursor_source.spark.handling import handle
from spark_cursor_source.spark.per_row import Rows
from spark_cursor_source.spark.worker_resources import worker_loop
from tests.waiting import wait_until

IDS = ("topic", "partition", "offset", "delivery_count")


def rows(count: int, keys: list[bytes | None] | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array(keys or [b"k"] * count, pa.binary()),
            "topic": pa.array(["orders"] * count),
            "partition": pa.array([3] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "delivery_count": pa.array([1] * count, pa.int32()),
        }
    )


def outcomes(batch: pa.RecordBatch, fn: Any, result_type: Any = None, **rules: Any) -> list[dict[str, Any]]:
    """The outcomes of a batch, in row order."""
    handling = Handling(fn=fn, has_result=result_type is not None, **rules)
    return [row for one in handle([batch], handling, IDS, result_type) for row in one.to_pylist()]


class Meeting:
    """A handler that returns when ``of`` calls of it run at once."""

    def __init__(self, of: int) -> None:
        self._all_here = threading.Barrier(of)

    def __call__(self, message: Any) -> None:
        self._all_here.wait(60)


def test_as_many_handlers_run_at_once_as_were_asked_for() -> None:
    assert [one["action"] for one in outcomes(rows(12), Meeting(4), concurrency=4)] == ["ack"] * 12


def test_no_more_handlers_run_at_once_than_were_asked_for() -> None:
    # Three meet in each call: else a thread that is late might find the calls done by the others.
    running, most, lock, meet = 0, 0, threading.Lock(), Meeting(3)

    def count(message: Any) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        meet(message)
        time.sleep(0.005)
        with lock:
            running -= 1

    assert {one["action"] for one in outcomes(rows(30), count, concurrency=3)} == {"ack"}
    assert most == 3


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("is_async", [False, True])
def test_each_row_has_the_outcome_of_its_own_call(concurrency: int, is_async: bool) -> None:
    said = [None, False, Release(delay="2s", reason="busy"), Reject("bad"), Leave(), True]

    def say(message: Any) -> Any:
        if message.offset == 6:
            raise ValueError("six")
        return said[message.offset]

    async def say_later(message: Any) -> Any:
        await asyncio.sleep(0.001 * (6 - message.offset))
        return say(message)

    found = outcomes(rows(7), say_later if is_async else say, concurrency=concurrency)
    assert [(one["offset"], one["action"], one["delay_ms"], one["reason"]) for one in found] == [
        (0, "ack", None, None),
        (1, "release", 0, None),
        (2, "release", 2_000, "busy"),
        (3, "reject", None, "bad"),
        (4, "leave", None, None),
        (5, "ack", None, None),
        (6, "release", None, "ValueError: six"),
    ]


def test_results_stay_with_their_rows() -> None:
    found = outcomes(rows(20), lambda message: message.offset * 2, pa.int64(), concurrency=5)
    assert [one["result"] for one in found] == list(range(0, 40, 2))


@pytest.mark.parametrize("is_async", [False, True])
def test_messages_of_a_key_are_handled_one_after_another_and_others_beside_them(is_async: bool) -> None:
    # a: 0 2 4, b: 1 3, and without a key: 5 6, which is a key too; the first of each key wait for each other
    order: dict[bytes | None, list[int]] = {}
    running: set[bytes | None] = set()
    most = 0

    def begin(message: Any) -> None:
        nonlocal most
        assert message.key not in running
        running.add(message.key)
        most = max(most, len(running))
        order.setdefault(message.key, []).append(message.offset)

    def handle_it(message: Any) -> None:
        begin(message)
        wait_until(lambda: most == 3, "all keys run")
        running.remove(message.key)

    async def handle_it_later(message: Any) -> None:
        begin(message)
        while most < 3:
            await asyncio.sleep(0.01)
        running.remove(message.key)

    keys = [b"a", b"b", b"a", b"b", b"a", None, None]
    found = outcomes(rows(7, keys), handle_it_later if is_async else handle_it, concurrency=4, by_key=True)
    assert {one["action"] for one in found} == {"ack"}
    assert order == {b"a": [0, 2, 4], b"b": [1, 3], None: [5, 6]}
    assert most == 3


@pytest.mark.parametrize("is_async", [False, True])
def test_a_message_that_hangs_is_given_up_and_the_others_go_on(is_async: bool) -> None:
    released = threading.Event()
    cancelled = threading.Event()

    def hang(message: Any) -> Any:
        if message.offset in (0, 1):
            released.wait(120)
            return Reject("too late to count")
        return None

    async def hang_async(message: Any) -> None:
        if message.offset in (0, 1):
            try:
                await asyncio.sleep(120)
            finally:
                cancelled.set()

    began_s = time.monotonic()
    found = outcomes(rows(6), hang_async if is_async else hang, concurrency=2, timeout_ms=2_000)
    released.set()
    assert time.monotonic() - began_s < 60
    assert [one["action"] for one in found] == ["release"] * 2 + ["ack"] * 4
    assert found[0]["reason"] == "TimeoutError: the handler did not return in 2s"
    assert not is_async or cancelled.wait(60)


def test_a_call_that_is_given_up_while_it_begins_does_not_run_on() -> None:
    # the loop looks whether the call is over -- given up -- the loop starts the handler
    running: list[int] = []
    given_up = threading.Event()

    async def hang(message: Any) -> None:
        running.append(message.offset)
        try:
            await asyncio.Event().wait()
        finally:
            running.remove(message.offset)

    class GivenUp(_Call):
        @property
        def is_over(self) -> bool:
            def give_up() -> None:
                runner.ended(self, is_given_up=True)
                given_up.set()

            threading.Thread(target=give_up).start()
            given_up.wait(0.2)
            return False

        @is_over.setter
        def is_over(self, _: bool) -> None: ...

    runner = _OnLoop(Handling(fn=hang), (), lambda *_: True)
    worker_loop()[0].call_soon_threadsafe(runner._start, GivenUp(Rows(rows(1)), 0, None))
    assert given_up.wait(60)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), worker_loop()[0]).result(60)
    wait_until(lambda: not running, "the handler has ended")


def test_threads_end_with_the_task_and_a_given_up_one_when_it_returns() -> None:
    released = threading.Event()
    outcomes(rows(3), lambda message: released.wait(120) and None, concurrency=2, timeout_ms=100)
    released.set()
    wait_until(lambda: not any(one.name == "cursorq-handler" for one in threading.enumerate()))


@pytest.mark.parametrize("concurrency", [1, 2])
def test_what_is_no_outcome_fails_the_task(concurrency: int) -> None:
    with pytest.raises(UnknownOutcome):
        outcomes(rows(5), lambda message: 42, concurrency=concurrency)


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def lone_surrogate() -> Any:
    raise ValueError("unknown customer " + json.loads('"\\ud800"'))


def speechless() -> Any:
    raise Speechless


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_reason_that_is_no_text_concerns_its_own_message(concurrency: int) -> None:
    answers: list[Callable[[], Any]] = [
        lambda: Reject(ValueError("negative amount")),  # type: ignore[arg-type]
        lambda: Release(reason=404),  # type: ignore[arg-type]
        lambda: Reject(None),  # type: ignore[arg-type]
        lambda: Reject(json.loads('"\\ud800!"')),
        lambda: Reject(Speechless()),  # type: ignore[arg-type]
        lone_surrogate,
        speechless,
        lambda: Reject("x" * 600),
        lambda: None,
    ]
    found = outcomes(rows(len(answers)), lambda message: answers[message.offset](), concurrency=concurrency)
    assert [(one["action"], one["reason"]) for one in found] == [
        ("reject", "ValueError: negative amount"),
        ("release", "404"),
        ("reject", ""),
        ("reject", "?!"),
        ("reject", "Speechless"),
        ("release", "ValueError: unknown customer ?"),
        ("release", "Speechless"),
        ("reject", "x" * 500),
        ("ack", None),
    ]


def test_an_exit_of_a_handler_fails_the_task() -> None:
    def leave(message: Any) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        outcomes(rows(2), leave, concurrency=2)


async def exit_in_the_loop() -> None:
    raise SystemExit(3)


def test_an_exit_in_the_event_loop_fails_its_task_and_the_loop_serves_the_next_one() -> None:
    async def leave(message: Any) -> None:
        await asyncio.gather(exit_in_the_loop(), asyncio.sleep(0))

    async def stop_the_loop(message: Any) -> None:
        asyncio.get_running_loop().stop()

    async def answer(message: Any) -> None:
        await asyncio.sleep(0.001)

    with pytest.raises(SystemExit):
        outcomes(rows(2), leave, concurrency=2)
    for handler in (stop_the_loop, answer):
        assert [one["action"] for one in outcomes(rows(2), handler, concurrency=2)] == ["ack", "ack"]


def test_an_exit_while_resources_are_opened_in_the_event_loop_fails_the_task() -> None:
    async def handle_it(message: Any, it: str) -> None: ...

    @asynccontextmanager
    async def session() -> Any:
        await exit_in_the_loop()
        yield

    for _ in range(2):
        with pytest.raises(SystemExit):
            outcomes(rows(2), handle_it, resources=session, name="exit", concurrency=2)


def test_resources_are_opened_once_in_a_process_and_handed_to_each_call() -> None:
    opened: list[int] = []

    @contextmanager
    def pool() -> Iterator[str]:
        opened.append(1)
        yield f"pool {len(opened)}"

    seen: list[str] = []
    for _ in range(2):
        outcomes(rows(3), lambda message, it: seen.append(it), resources=pool, name="once", concurrency=2)
    assert (seen, opened) == (["pool 1"] * 6, [1])


def test_an_async_handler_has_resources_of_its_loop() -> None:
    loops: list[Any] = []

    @asynccontextmanager
    async def session() -> Any:
        loops.append(asyncio.get_running_loop())
        yield "session"

    async def handle_it(message: Any, it: str) -> None:
        assert it == "session"
        loops.append(asyncio.get_running_loop())

    found = outcomes(rows(2), handle_it, resources=session, name="loop", concurrency=2)
    assert [one["action"] for one in found] == ["ack", "ack"]
    assert len(loops) == 3
    assert len(set(map(id, loops))) == 1


def test_resources_that_cannot_be_opened_are_one_error_and_no_handler_is_called() -> None:
    def connect() -> None:
        raise ConnectionError("refused")

    with pytest.raises(HandlerSetupFailed, match=r"connect of the handler cannot be opened .*refused"):
        outcomes(rows(2), lambda message, it: pytest.fail("called"), resources=connect, name="broken")


def test_rules_that_mean_nothing_are_refused_where_they_are_given() -> None:
    def fn(message: Any) -> None: ...

    with pytest.raises(InvalidOption, match="it is below 1"):
        AckSink.per_row(fn, concurrency=0)
    with pytest.raises(InvalidOption, match=r"'flush' = '0s'.* too short.* 100ms or more"):
        AckSink.per_row(fn, flush="0s")
    with pytest.raises(ConflictingOptions, match=r"stragglers.*then"):
        AckSink.per_row(fn, stragglers="5s", then=lambda outcomes, batch_id: None)
    lock = threading.Lock()
    with pytest.raises(HandlerNotPicklable):
        AckSink.per_row(print, resources=lambda: lock)


@pytest.mark.parametrize("wrong", ["soon", "30", 30, 0.5, True, b"30s"], ids=repr)
@pytest.mark.parametrize("argument", ["timeout", "flush", "stragglers"])
def test_a_handlers_duration_that_is_none_is_refused_by_its_name(argument: str, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match=f"'{argument}' = .*it is not a duration.*30s"):
        AckSink.per_row(print, **{argument: wrong})


@pytest.mark.parametrize("wrong", ["false", 0, "", []], ids=repr)
def test_an_argument_of_a_sink_that_means_nothing_is_refused_before_any_message(wrong: Any) -> None:
    for argument, made in {
        "persist": lambda: AckSink(print, persist=wrong),
        "on_progress": lambda: QueryMetrics(on_progress=wrong),
        "tracer": lambda: AckSink.per_row(print, tracer=wrong),
    }.items():
        with pytest.raises(InvalidOption, match=argument):
            made()
    for sink in (DeltaSink, KafkaSink):
        with pytest.raises(InvalidOption, match="transform"):
            sink("orders", transform=wrong)


@pytest.mark.parametrize("wrong", ["", "  ", 1, b"orders", ["orders"]], ids=repr)
def test_a_name_or_a_type_that_is_no_text_is_refused_before_any_message(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match=r"'table'.*Give the name of a table"):
        DeltaSink(wrong)
    with pytest.raises(InvalidOption, match=r"'result'.*Give a DDL type"):
        AckSink.per_row(print, result=wrong)
    with pytest.raises(InvalidOption, match="topic"):
        KafkaSink(wrong)


def test_a_function_that_cannot_be_called_as_the_sink_calls_it_is_refused_before_any_message() -> None:
    # Else each call would fail, and each message would end as a dead letter.
    def with_service(message: object, service: object) -> None: ...

    for made in (
        lambda: AckSink.per_row(None),  # type: ignore[arg-type]
        lambda: AckSink.per_row(lambda: None),  # type: ignore[arg-type]
        lambda: AckSink.per_row(with_service),
        lambda: AckSink.per_row(lambda message: None, resources=dict),
        lambda: AckSink.per_row(lambda message: None, then=lambda outcomes: None),  # type: ignore[arg-type]
        lambda: AckSink.per_row(with_service, resources=lambda name: name),  # type: ignore[arg-type]
        lambda: AckSink(None),  # type: ignore[arg-type]
        lambda: AckSink(lambda batch: None),  # type: ignore[arg-type]
        lambda: DeltaSink("orders", transform=lambda: None),  # type: ignore[arg-type]
        lambda: KafkaSink("orders", transform=lambda batch, batch_id: batch),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidOption, match="it cannot be called with"):
            made()
    AckSink.per_row(with_service, resources=dict)
    AckSink.per_row(partial(with_service, service=1))
    AckSink.per_row(print, then=print)
