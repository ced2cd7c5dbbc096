"""What threads say of messages at once, and while brokers do not take it; no broker is needed."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_cursor_source.client import QueueMessage
from spark_cursor_source.client.queues.ack_batcher import AckBatcher
from spark_cursor_source.client.queues.buffer import ReceiveBuffer
from spark_cursor_source.client.queues.message import Delivery
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, KeepAlive, Marker, Reject, Release
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import (
    AlreadySettled,
    ClientClosed,
    ConsumerFailed,
    CursorqError,
    InvalidArgument,
    KafkaUnavailable,
    MarkersNotDurable,
    NotAuthorized,
    NotSettled,
)
from spark_cursor_source.kafka.deadline import Deadline
from tests.client.records import needs_records, new_record
from tests.waiting import wait_until

pytestmark = needs_records

CELL = Cell(subscription="s", topic="t", partition=0)

MakeBatcher = Callable[..., AckBatcher]


class HeldWrite:
    """A write that ends when the test lets it. ``writing`` is set while it lasts."""

    def __init__(self) -> None:
        self.written: list[Marker] = []
        self.writing, self.go_on = threading.Event(), threading.Event()

    def __call__(self, markers: Sequence[Marker]) -> None:
        self.written.extend(markers)
        self.writing.set()
        assert self.go_on.wait(20)
        self.writing.clear()


@pytest.fixture
def make_batcher() -> Iterator[MakeBatcher]:
    """``make_batcher(write, timeout_ms=20_000, lease_ms=60_000)``: one that works until the test ends."""
    made: list[AckBatcher] = []

    def make(
        write: Callable[[Sequence[Marker]], None], timeout_ms: int = 20_000, lease_ms: int = 60_000
    ) -> AckBatcher:
        made.append(AckBatcher(write, lease_ms=lease_ms, timeout_ms=timeout_ms))
        made[-1].start()
        return made[-1]

    yield make
    for batcher in made:
        batcher.close()


def message(batcher: AckBatcher, offset: int) -> QueueMessage:
    record = new_record(offset)
    return QueueMessage(record, Delivery(batcher, CELL, 1, lease_ms=60_000))


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("delay_ms", lambda one: one.nack(0.5 * 1000)),
        ("delay_ms", lambda one: one.nack(True)),
        ("delay_ms", lambda one: one.nack("5")),
        ("reason", lambda one: one.nack(reason=None)),
        ("reason", lambda one: one.reject(None)),
        ("reason", lambda one: one.reject(b"text")),
        ("lease_ms", lambda one: one.extend(30.0 * 1000)),
        ("lease_ms", lambda one: one.extend("5")),
    ],
)
def test_an_argument_of_another_type_is_refused_and_leaves_the_message_to_be_settled(
    argument: str, call: Callable[[QueueMessage], None], make_batcher: MakeBatcher
) -> None:
    written: list[Marker] = []
    one = message(make_batcher(written.extend), 1)
    with pytest.raises(InvalidArgument, match=f"^The argument {argument}="):
        call(one)
    one.ack()
    assert written == [End(cell=CELL, offsets=OffsetSet.of((1, 2)))]


def test_a_caught_exception_may_be_the_reason(make_batcher: MakeBatcher) -> None:
    written: list[Marker] = []
    batcher = make_batcher(written.extend)
    message(batcher, 1).reject(ValueError("no such customer"))
    message(batcher, 2).nack(reason=KeyError("id"))
    assert [one.reason for one in written if isinstance(one, (Reject, Release))] == [
        "no such customer",
        "'id'",
    ]


def test_an_unexpected_error_of_the_thread_fails_all_that_was_settled_and_every_later_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    writing, go_on = threading.Event(), threading.Event()

    def write(markers: Sequence[Marker]) -> None:
        writing.set()
        assert go_on.wait(20)
        raise TypeError("not text")

    batcher = AckBatcher(write, lease_ms=60_000, timeout_ms=20_000)
    batcher.start()
    taken = message(batcher, 1).ack_async()
    assert writing.wait(20)
    queued = message(batcher, 2).ack_async()
    go_on.set()
    for future in (taken, queued):
        assert isinstance(future.exception(20), ConsumerFailed)
    for call in (message(batcher, 3).ack, message(batcher, 4).nack, batcher.check, lambda: batcher.flush(0)):
        with pytest.raises(ConsumerFailed, match="unexpected TypeError: not text") as raised:
            call()
        assert isinstance(raised.value.__cause__, TypeError)
    with pytest.raises(NotSettled, match="unexpected TypeError: not text"):
        batcher.close()
    assert "event=ack_thread_failed" in caplog.text
    with pytest.raises(ClientClosed):
        message(batcher, 5).ack()


def test_a_caller_that_gives_up_its_wait_cancels_no_other_ack_of_the_write(
    make_batcher: MakeBatcher,
) -> None:
    write = HeldWrite()
    batcher = make_batcher(write)
    message(batcher, 0).ack_async()
    assert write.writing.wait(20)  # the next acks share a future

    async def ack(offset: int, limit_s: float) -> None:
        await asyncio.wait_for(asyncio.wrap_future(message(batcher, offset).ack_async()), limit_s)

    async def both() -> list[BaseException | None]:
        patient = asyncio.ensure_future(ack(2, 20))
        (hasty,) = await asyncio.gather(ack(1, 0.05), return_exceptions=True)
        write.go_on.set()
        return [hasty, *await asyncio.gather(patient, return_exceptions=True)]

    hasty, patient = asyncio.run(both())
    assert isinstance(hasty, TimeoutError)
    assert patient is None
    future = message(batcher, 3).ack_async()
    assert not future.cancel()
    message(batcher, 4).ack()
    assert sorted(offset for one in write.written for offset in one.offsets) == [0, 1, 2, 3, 4]


def test_of_threads_that_settle_a_message_in_two_ways_one_wins(make_batcher: MakeBatcher) -> None:
    written: list[Marker] = []
    batcher = make_batcher(written.extend)
    refused: list[int] = []
    together = threading.Barrier(2)

    def settle(one: QueueMessage, way: str) -> None:
        together.wait()
        try:
            one.ack_async() if way == "ack" else one.nack(0)
        except AlreadySettled:
            refused.append(one.offset)

    messages = [message(batcher, offset) for offset in range(300)]
    with ThreadPoolExecutor(2) as pool:
        for way in ("ack", "nack"):
            pool.submit(lambda way=way: [settle(one, way) for one in messages])
    batcher.flush(None)
    ended = {offset for marker in written if isinstance(marker, End) for offset in marker.offsets}
    given_back = {offset for marker in written if isinstance(marker, Release) for offset in marker.offsets}
    assert sorted(refused) == list(range(300))
    assert ended | given_back == set(range(300))
    assert not ended & given_back


def test_acks_that_are_told_late_are_written_once_and_a_thousand_are_few_markers(
    make_batcher: MakeBatcher, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[Sequence[Marker]] = []
    all_acked = threading.Event()

    def write(markers: Sequence[Marker]) -> None:
        tries.append(markers)
        assert all_acked.wait(20)
        if len(tries) == 1:
            raise MarkersNotDurable("markers", 1, "no answer")

    batcher = make_batcher(write)
    with caplog.at_level(logging.WARNING):
        for offset in range(1_000):
            message(batcher, offset).ack_async()
        all_acked.set()
        batcher.flush(None)
    written = [marker for markers in tries[1:] for marker in markers]
    assert sum(len(marker.offsets) for marker in written if isinstance(marker, End)) == 1_000
    assert len(written) < 20
    assert "ack_write_retrying" in caplog.text


def test_a_flush_waits_for_the_write_in_progress_and_no_longer(make_batcher: MakeBatcher) -> None:
    # the ack is taken by the thread, and nothing else is to be written
    write = HeldWrite()
    batcher = make_batcher(write)
    message(batcher, 0).ack_async()
    assert write.writing.wait(20)
    with pytest.raises(NotSettled):
        batcher.flush(50)
    with ThreadPoolExecutor(1) as beside:
        flushed = beside.submit(batcher.flush, None)
        time.sleep(0.05)
        assert not flushed.done()
        write.go_on.set()
        flushed.result(20)
    batcher.flush(0)


def test_a_flush_does_not_wait_for_an_extension_of_leases(make_batcher: MakeBatcher) -> None:
    write = HeldWrite()
    batcher = make_batcher(write, lease_ms=100)
    batcher.track(CELL, OffsetSet.of((0, 1)), run_id="run")
    message(batcher, 7).ack_async()  # wakes the thread, which then rests until the extension is due
    write.go_on.set()
    batcher.flush(None)
    write.go_on.clear()
    assert write.writing.wait(20)
    try:
        batcher.flush(0)
    finally:
        write.go_on.set()


def test_a_flush_waits_for_a_write_whose_lateness_was_told_before(make_batcher: MakeBatcher) -> None:
    reachable = threading.Event()

    def write(markers: Sequence[Marker]) -> None:
        if not reachable.is_set():
            raise MarkersNotDurable("markers", 1, "no answer")

    batcher = make_batcher(write, timeout_ms=300)
    message(batcher, 0).ack_async()
    with pytest.raises(NotSettled):
        batcher.flush(5_000)
    with pytest.raises(NotSettled, match="after 100 ms"):
        batcher.flush(100)
    reachable.set()
    batcher.flush(60_000)


def test_a_refused_write_that_was_told_is_no_error_of_a_flush(make_batcher: MakeBatcher) -> None:
    def write(markers: Sequence[Marker]) -> None:
        raise NotAuthorized("markers", "write markers", ())

    batcher = make_batcher(write)
    with pytest.raises(NotAuthorized):
        message(batcher, 0).ack()
    batcher.flush(None)


@pytest.mark.parametrize("refused", [True, False])
def test_a_caller_that_is_told_of_its_ack_has_nothing_in_progress(
    make_batcher: MakeBatcher, refused: bool
) -> None:
    # A callback of a future runs at the moment at which its waiters may go on.
    held_write = HeldWrite()

    def write(markers: Sequence[Marker]) -> None:
        held_write(markers)
        if refused:
            raise NotAuthorized("markers", "write markers", ())

    batcher = make_batcher(write)
    batcher.track(CELL, OffsetSet.of((0, 1)), run_id="r")
    told: list[int | CursorqError] = []

    def look(_: object) -> None:
        try:
            batcher.flush(0)
        except CursorqError as problem:
            told.append(problem)
        told.append(batcher.held)

    future = message(batcher, 0).ack_async()
    assert held_write.writing.wait(20)
    future.add_done_callback(look)
    held_write.go_on.set()
    wait_until(lambda: told)
    assert told == [0]


def test_no_keep_alive_speaks_after_what_gives_back(make_batcher: MakeBatcher) -> None:
    # write: ack of 0 .......... | KeepAlive that is due, Release of 1: the other way round V1 markers would
    # said:      Release of 1      have the lease begin anew, since what gives back is a KeepAlive there
    write = HeldWrite()
    batcher = make_batcher(write, lease_ms=300)
    batcher.track(CELL, OffsetSet.of((0, 2)), run_id="r")
    message(batcher, 0).ack_async()
    assert write.writing.wait(20)
    time.sleep(0.15)
    batcher.settle(Release(cell=CELL, offsets=OffsetSet.of((1, 2)), delivery_count=1, delay_ms=0))
    write.go_on.set()
    batcher.flush(None)
    of_it = [type(one) for one in write.written if isinstance(one, (KeepAlive, Release)) and 1 in one.offsets]
    assert of_it[-2:] == [KeepAlive, Release]


def test_a_close_that_brokers_do_not_let_settle_says_so() -> None:
    def write(markers: Sequence[Marker]) -> None:
        time.sleep(0.05)
        raise MarkersNotDurable("markers", len(markers), "no answer")

    batcher = AckBatcher(write, lease_ms=60_000, timeout_ms=100)
    batcher.start()
    future = message(batcher, 1).ack_async()
    with pytest.raises(NotSettled, match="whose ack is not stored are delivered again"):
        batcher.close()
    assert isinstance(future.exception(0), MarkersNotDurable)
    batcher.close()
    with pytest.raises(ClientClosed):
        message(batcher, 2).ack()


def test_a_write_that_is_late_and_then_refused_is_told_at_the_close_and_later_acks_are_written() -> None:
    written: list[Marker] = []
    problems: list[Exception] = []
    refused = threading.Event()

    def write(markers: Sequence[Marker]) -> None:
        if refused.is_set():
            written.extend(markers)
            return
        if not problems:
            time.sleep(0.1)
            problems.append(KafkaUnavailable("write markers", 100, "no answer"))
        else:
            problems.append(NotAuthorized("markers", "write markers", ()))
            refused.set()
        raise problems[-1]

    batcher = AckBatcher(write, lease_ms=60_000, timeout_ms=50)
    batcher.start()
    late = message(batcher, 1).ack_async()
    assert late.exception(20) is problems[0]
    assert refused.wait(20)
    message(batcher, 2).ack(timeout_ms=20_000)
    assert written == [End(cell=CELL, offsets=OffsetSet.of((2, 3)))]
    with pytest.raises(NotSettled) as told:
        batcher.close()
    assert told.value.__cause__ is problems[1]


def test_a_refused_write_of_which_its_ack_was_told_is_no_error_of_the_close() -> None:
    def write(markers: Sequence[Marker]) -> None:
        raise NotAuthorized("markers", "write markers", ())

    batcher = AckBatcher(write, lease_ms=60_000, timeout_ms=20_000)
    batcher.start()
    with pytest.raises(NotAuthorized):
        message(batcher, 1).ack()
    batcher.close()


def test_each_message_of_a_buffer_goes_to_one_of_those_that_take(make_batcher: MakeBatcher) -> None:
    batcher, buffer = make_batcher(lambda _: None), ReceiveBuffer(50)
    taken: list[int] = []

    def take() -> None:
        while True:
            try:
                taken.append(buffer.messages.popleft().offset)  # as receive() does first
                buffer.taken()
            except IndexError:
                try:
                    found = buffer.take(Deadline.after_ms(5))
                except ClientClosed:
                    return
                if found is not None:
                    taken.append(found.offset)

    with ThreadPoolExecutor(6) as pool:
        takers = [pool.submit(take) for _ in range(6)]
        for first in range(0, 6_000, 3):
            while not buffer.room:
                buffer.wait_for_room(0.1)
            buffer.put([message(batcher, offset) for offset in range(first, first + 3)])
        while buffer.messages:
            time.sleep(0.001)
        buffer.end()
        for taker in takers:
            taker.result(10)
    assert sorted(taken) == list(range(6_000))
