"""``tracker=embedded``: a query or a client needs no second process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from spark_cursor_source.client import ServiceConfig
from spark_cursor_source.errors import ConflictingOptions, ConsumerFailed, InvalidArgument
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.spark.reader import CursorqStreamReader
from spark_cursor_source.tracker.embedded import EmbeddedTracker
from spark_cursor_source.tracker.replica import Replica
from tests.client.conftest import Rig, ids, receive
from tests.waiting import wait_until


def trackers() -> int:
    return sum(thread.name == "cursorq-tracker" for thread in threading.enumerate())


@pytest.mark.broker
def test_consumers_with_an_embedded_tracker_share_one(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(2)
    sent = rig.send(b"first", b"second")
    before = trackers()
    consumer = rig.consumer(tracker="embedded")
    other = rig.consumer(subscription="other", tracker="embedded")
    assert trackers() == before + 1
    received = receive(consumer, 2)
    assert ids(received) == sorted(sent)
    received[0].ack()
    received[1].nack(0)
    again = receive(consumer, 1)[0]
    assert (ids([again]), again.delivery_count) == (ids([received[1]]), 2)
    again.ack()
    consumer.close()
    assert ids(receive(other, 2)) == sorted(sent)
    other.close()
    assert trackers() == before


@pytest.mark.broker
def test_a_consumer_whose_embedded_tracker_has_ended_says_why_and_another_one_starts_it_again(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig(1)
    rig.send(b"first")
    consumer = rig.consumer(tracker="embedded")
    (message,) = receive(consumer, 1)
    message.ack()
    with monkeypatch.context() as broken:

        def fail(replica: Replica, most_s: float) -> bool:
            if replica._options.markers_topic != rig.control.markers:
                return gather(replica, most_s)  # the tracker of other tests in this process
            raise SystemError("a bug of a library")

        gather = Replica.gather
        broken.setattr(Replica, "gather", fail)
        with pytest.raises(ConsumerFailed, match="a bug of a library"):
            wait_until(lambda: consumer.receive(500) is not None, timeout_s=20)
    consumer.close()
    rig.send(b"second")
    assert receive(rig.consumer(tracker="embedded"), 1)[0].payload == b"second"


@pytest.mark.broker
def test_a_query_with_an_embedded_tracker_reads_without_another_one(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(1)
    rig.send(b"first")
    options = rig.source_options | {"startingOffsets": "earliest", "tracker": "embedded"}
    reader = CursorqStreamReader(SourceOptions.parse(options))
    try:
        start = reader.initialOffset()
        wait_until(lambda: reader.latestOffset(start, ReadMaxRows(10)) != start)
        wait_until(lambda: rig.cursor() is not None)
    finally:
        reader.stop()


def test_a_release_that_was_interrupted_goes_on_when_it_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    tracker = EmbeddedTracker(kafka, markers_topic="m", redeliveries_topic="r", cursors_topic="c")
    stop = tracker._own.tracker.stop
    calls: list[str] = []

    def interrupted_once() -> None:
        calls.append("stop")
        if len(calls) == 1:
            raise KeyboardInterrupt
        stop()

    monkeypatch.setattr(tracker._own.tracker, "stop", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        tracker.release()
    tracker.release()
    assert calls == ["stop", "stop"]
    assert not tracker._own.tracker._thread.is_alive()


def test_kafka_mq_gos_tracker_is_not_embedded() -> None:
    given: dict[str, Any] = {"bootstrap_servers": "b:9092", "message_topic": "jobs"}
    with pytest.raises(InvalidArgument, match="kafka-mq-go"):
        ServiceConfig(**given, marker_format="v1", tracker="embedded")
    options = {"kafka.bootstrap.servers": "b:9092", "subscribe": "jobs", "subscription": "s"}
    with pytest.raises(ConflictingOptions, match="tracker"):
        SourceOptions.parse(options | {"markerFormat": "v1", "tracker": "embedded"})
