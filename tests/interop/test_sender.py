"""Markers of V1 on a real broker: where kafka-mq-go puts them, and none that its tracker cannot bear."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.errors import InvalidMarker, MarkersNotDurable
from spark_cursor_source.interop.sender import MarkerSenderV1
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.wire.marker import MarkerType, MarkerV1, decode
from tests.kafka.control_plane import PARTITIONS, Control, read_all, stored_at_last

pytestmark = pytest.mark.broker

# From the unit tests of Kafka's Utils.murmur2 and of librdkafka's rd_murmur2, as signed and unsigned numbers.
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    b"kafka": 0xD067CF64,
    b"giberish123456789": 0x8F552B0C,
    b"1234": 0x9FC97B14,
    b"4": 0x5A4B5CA1,
}


@pytest.fixture
def sender(control: Control) -> MarkerSenderV1:
    return MarkerSenderV1(control.config, control.markers, PARTITIONS)


def start(queue_id: bytes = b"q", offset: int = 0, **more: object) -> MarkerV1:
    marker = MarkerV1(
        queue_id=queue_id, type=MarkerType.START, partition=3, offset=offset, redeliver_after_ms=60_000
    )
    return replace(marker, **{"key": queue_id, "value": b"v", **more})


def test_markers_of_a_queue_id_are_where_javas_partitioner_puts_them(
    control: Control, sender: MarkerSenderV1
) -> None:
    assert sender.send(start(queue_id) for queue_id in MURMUR2) == len(MURMUR2)
    sender.flush()
    found = {record.key(): record.partition() for record in read_all(control.config, control.markers)}
    assert found == {key: (number & 0x7FFFFFFF) % PARTITIONS for key, number in MURMUR2.items()}


def test_markers_of_a_message_come_back_as_they_were_and_in_order(
    control: Control, sender: MarkerSenderV1
) -> None:
    keep_alive = MarkerV1(
        queue_id=b"q", type=MarkerType.KEEP_ALIVE, partition=3, offset=0, redeliver_after_ms=0
    )
    given = [
        start(value=b""),
        keep_alive,
        MarkerV1(queue_id=b"q", type=MarkerType.END, partition=3, offset=0),
    ]
    sender.send(given)
    sender.flush()
    records = read_all(control.config, control.markers)
    assert [decode(record.key(), record.value()) for record in records] == given
    assert all(record.value() for record in records), "an empty record would end their tracker"


def test_a_lease_beyond_twelve_hours_is_cut_before_it_is_written(
    control: Control, sender: MarkerSenderV1
) -> None:
    sender.send([start(redeliver_after_ms=2**63)])
    sender.flush()
    (record,) = read_all(control.config, control.markers)
    # 12 h and nothing else in the field: redeliver_after_ms = 43,200,000
    assert b"\x20\x80\xdc\xcc\x14" in (record.value() or b"")
    assert decode(record.key(), record.value()) == start(redeliver_after_ms=MAX_LEASE_MS)


def test_a_marker_of_no_queue_is_refused_and_nothing_of_it_is_written(
    control: Control, sender: MarkerSenderV1
) -> None:
    with pytest.raises(InvalidMarker, match="names no queue"):
        sender.send([start(b"")])
    sender.flush()
    assert read_all(control.config, control.markers) == []


def test_starts_are_on_the_broker_when_flush_returns(control: Control, sender: MarkerSenderV1) -> None:
    topics = ClusterAdmin(control.config)
    for count in range(1, 4):
        sender.send(start(b"q%d" % (n % 7), n) for n in range(500))
        sender.flush(30)
        assert stored_at_last(topics, control.markers, count * 500) == count * 500


def test_a_start_too_large_for_the_topic_is_an_error_that_says_so(
    control: Control, sender: MarkerSenderV1
) -> None:
    sender.send([start(value=b"x" * (9 << 20))])  # the topic takes 8 MiB
    with pytest.raises(MarkersNotDurable, match=r"not confirmed 1 markers.*MSG_SIZE_TOO_LARGE"):
        sender.flush()
    sender.send([start(value=b"x" * (2 << 20))])
    sender.flush()
