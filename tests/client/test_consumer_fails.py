"""A consumer whose threads fail: every call raises the error; no broker is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from spark_cursor_source.client import QueueConsumer, QueueMessage, ServiceConfig
from spark_cursor_source.client.queues.ack_batcher import AckBatcher
from spark_cursor_source.client.queues.buffer import ReceiveBuffer
from spark_cursor_source.client.queues.feed import Feed
from spark_cursor_source.consumer.known_topics import KnownTopics
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, Marker, Release
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import ClientClosed, ConsumerFailed, NotSettled
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.metrics.consumers import ServiceCounts
from tests.client.records import needs_records, new_record

pytestmark = needs_records

CELL = Cell(subscription="s", topic="t", partition=0)

Write = Callable[[Sequence[Marker]], None]
MakeConsumer = Callable[..., QueueConsumer]


class ScriptedFeed(Feed):
    """A feed whose rounds are the calls of a script, and then waits."""

    script: Iterator[Callable[[Feed], object]]

    def _step(self) -> None:
        next(self.script, lambda feed: feed._closing.wait(0.01))(self)

    def _close(self) -> None:
        pass


@pytest.fixture
def make_consumer() -> MakeConsumer:
    """``make_consumer(*script, write=...)``: a consumer that the test closes."""

    def make(*script: Callable[[Feed], object], write: Write = lambda _: None) -> QueueConsumer:
        config = ServiceConfig(bootstrap_servers="localhost:1", message_topic="t")
        topics = ClusterAdmin(dict(config.kafka), timeout_ms=1_000)
        buffer = ReceiveBuffer(10)
        batcher = AckBatcher(write, lease_ms=60_000, timeout_ms=20_000)
        feed = ScriptedFeed(config, None, topics, KnownTopics(topics, subscription="s"), batcher, buffer)
        feed.script = iter(script)
        sender: Any = SimpleNamespace(close=lambda: None)
        counts = ServiceCounts().consumer("t", "s", "")
        return QueueConsumer(feed, batcher, buffer, sender, wait_ms=20_000, counts=counts)

    return make


def deliver(*offsets: int) -> Callable[[Feed], None]:
    """Returns the round in which messages enter the buffer."""

    def step(feed: Feed) -> None:
        delivery = feed._delivery(CELL, 1)
        records = [new_record(offset) for offset in offsets]
        feed._batcher.track(CELL, OffsetSet.from_offsets(offsets), run_id="run")
        feed._buffer.put([QueueMessage(record, delivery) for record in records])

    return step


def test_a_consumer_whose_ack_thread_fails_ends_with_its_error(
    make_consumer: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    def write(markers: Sequence[Marker]) -> None:
        raise TypeError("not text")

    consumer = make_consumer(deliver(1), write=write)
    message = consumer.receive()
    assert message is not None
    with pytest.raises(ConsumerFailed):
        message.ack()
    with pytest.raises(ConsumerFailed, match="unexpected TypeError: not text"):
        consumer.receive()
    with pytest.raises(NotSettled, match="unexpected TypeError: not text"):
        consumer.close()
    assert "event=consumer_stopped" in caplog.text


def test_an_unexpected_error_of_a_fetch_ends_a_loop_over_the_consumer_with_that_error(
    make_consumer: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    def step(feed: Feed) -> None:
        raise TypeError("not a number")

    with make_consumer(deliver(1, 2), step) as consumer:
        with pytest.raises(ConsumerFailed, match="unexpected TypeError: not a number") as raised:
            list(consumer)
        assert isinstance(raised.value.__cause__, TypeError)
        with pytest.raises(ConsumerFailed):
            consumer.receive()
    (told,) = [record for record in caplog.records if "event=consumer_stopped" in record.getMessage()]
    assert told.exc_info is not None


def test_a_close_that_is_interrupted_is_taken_up_by_the_next_one(
    make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Marker] = []
    consumer = make_consumer(deliver(1, 2), write=written.extend)
    message, feed = consumer.receive(), consumer._feed
    assert message is not None

    def interrupted() -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(feed, "stop", interrupted)
    with pytest.raises(KeyboardInterrupt):
        consumer.close()
    message.ack()
    consumer.close()
    assert feed._closed
    with pytest.raises(ClientClosed):
        consumer._batcher.check()
    assert {(type(marker), *marker.offsets) for marker in written} == {(End, 1), (Release, 2)}
    consumer.close()


@pytest.mark.parametrize("part", ["batcher", "feed", "sender", "counts"])
def test_a_close_closes_every_part_although_one_is_interrupted(
    make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    consumer, closed = make_consumer(), []
    of_part = {"batcher": "_batcher", "feed": "_feed", "sender": "_sender", "counts": "_counts"}

    def close(name: str) -> None:
        closed.append(name)
        if name == part:
            raise KeyboardInterrupt

    for name, attribute in of_part.items():
        monkeypatch.setattr(getattr(consumer, attribute), "close", partial(close, name))
    with pytest.raises(KeyboardInterrupt):
        consumer.close()
    monkeypatch.undo()
    consumer._batcher.close()
    assert closed == list(of_part)
