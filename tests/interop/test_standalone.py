"""The tracker without Spark behind consumers of kafka-mq-go and of kmq."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from spark_cursor_source.core.stats import ReappendTrouble
from spark_cursor_source.core.subscription_type import tracker_group
from spark_cursor_source.errors import LeaseTableUnreadable, ReadStalled
from spark_cursor_source.interop import lease_table_wire as table_wire
from spark_cursor_source.interop.lease_tables import LeaseTables, reappend_troubles
from spark_cursor_source.interop.markers_wire import kmq_end, kmq_start
from spark_cursor_source.kafka import range_consumer
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.range_consumer import read_columns
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.tracker import Tracker, backlog
from spark_cursor_source.wire.marker import MarkerType, MarkerV1, encode_v1
from tests.conftest import READY_S
from tests.kafka.control_plane import Control, produce, read_all
from tests.kafka.tracker_thread import options_of
from tests.kafka.ways import NEEDS_NATIVE
from tests.waiting import wait_until

pytestmark = pytest.mark.broker
LEASE_MS = 1_500


def start(marker_format: str, offset: int) -> tuple[bytes, bytes]:
    """Key and value of a Start of one message."""
    if marker_format == "kmq":
        return kmq_start(0, offset, LEASE_MS)
    value = b"%d" % offset
    given = {"queue_id": b"mails", "type": MarkerType.START, "partition": 0, "offset": offset}
    return b"mails", encode_v1(MarkerV1(**given, redeliver_after_ms=LEASE_MS, key=b"mails", value=value))


def end(marker_format: str, offset: int) -> tuple[bytes, bytes]:
    if marker_format == "kmq":
        return kmq_end(0, offset)
    marker = MarkerV1(queue_id=b"mails", type=MarkerType.END, partition=0, offset=offset)
    return b"mails", encode_v1(marker)


def reappend_troubles_of(control: Control) -> tuple[ReappendTrouble, ...]:
    tail = CursorTable(control.config, control.cursors)
    try:
        tail.refresh()
        return reappend_troubles(tail, control.markers)
    finally:
        tail.close()


def open_leases(control: Control) -> int:
    tail = CursorTable(control.config, control.cursors)
    try:
        tail.refresh()
        values = LeaseTables(tail, control.queue, control.markers).values().values()
        return sum(len(table_wire.decode(value)) for value in values)
    finally:
        tail.close()


@pytest.mark.parametrize("marker_format", ["protobuf", "kmq"])
def test_a_message_whose_lease_runs_out_is_appended_again_by_whichever_tracker_runs_then(
    control: Control, topics: ClusterAdmin, tmp_path: Path, marker_format: str
) -> None:
    # two are leased, one is acked | the tracker ends | another one appends the other message again
    topics.create({control.queue: (1, {})})
    produce(control.config, control.queue, [{"key": b"mails", "value": b"%d" % n} for n in range(2)])
    options = options_of(
        control, tmp_path, redelivery="reappend", queueTopic=control.queue, markerFormat=marker_format
    )
    with Tracker(options):
        markers = [start(marker_format, 0), start(marker_format, 1), end(marker_format, 0)]
        produce(control.config, control.markers, [{"key": key, "value": value} for key, value in markers])
        wait_until(lambda: open_leases(control) == 1 or len(read_all(control.config, control.queue)) == 3)
    with Tracker(options):
        wait_until(lambda: len(read_all(control.config, control.queue)) == 3)
        wait_until(lambda: open_leases(control) == 0)
    assert [one.value() for one in read_all(control.config, control.queue)] == [b"0", b"1", b"1"]


@pytest.mark.parametrize("torn", [b"no table", b""], ids=["another record", "a part is missing"])
def test_a_lease_table_that_cannot_be_read_is_named_and_can_be_built_again(
    control: Control, topics: ClusterAdmin, tmp_path: Path, torn: bytes
) -> None:
    # a message is leased | its table is overwritten: no tracker starts | as the error says | it comes again
    topics.create({control.queue: (1, {})})
    produce(control.config, control.queue, [{"key": b"mails", "value": b"0"}])
    options = options_of(control, tmp_path, redelivery="reappend", queueTopic=control.queue)
    key, value = start("protobuf", 0)
    with Tracker(options):
        produce(control.config, control.markers, [{"key": key, "value": value}])
        wait_until(lambda: open_leases(control) == 1 or len(read_all(control.config, control.queue)) == 2)
    (record,) = [one for one in read_all(control.config, control.cursors) if one.value()]
    place = {"key": record.key(), "partition": record.partition()}
    produce(control.config, control.cursors, [{"value": torn, **place}])
    with pytest.raises(LeaseTableUnreadable) as unreadable, Tracker(options) as tracker:
        tracker.wait(READY_S)
    table, group = record.key().decode(), tracker_group(control.markers)
    number = int(table.rsplit(",", 1)[1])
    for named in (control.cursors, table, group, f"partition {number} of topic '{control.markers}'"):
        assert named in str(unreadable.value)
    assert reappend_troubles_of(control) == ()
    produce(control.config, control.cursors, [{"value": None, **place}])
    topics.commit(group, {(control.markers, number): 0})
    with Tracker(options):
        wait_until(lambda: len(read_all(control.config, control.queue)) == 2)
        wait_until(lambda: open_leases(control) == 0)


@NEEDS_NATIVE
@pytest.mark.parametrize("marker_format", ["protobuf", "kmq"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_backlog_is_read_by_the_native_reader_and_what_comes_then_too(
    control: Control, topics: ClusterAdmin, tmp_path: Path, marker_format: str, fails: bool
) -> None:
    # 400 messages are started and all but the last are acked | a tracker starts | another message is started
    topics.create({control.queue: (1, {})})
    produce(control.config, control.queue, [{"key": b"mails", "value": b"%d" % n} for n in range(401)])

    def mark(*markers: tuple[bytes, bytes]) -> None:
        produce(control.config, control.markers, [{"key": key, "value": value} for key, value in markers])

    mark(
        *(start(marker_format, number) for number in range(400)),
        *(end(marker_format, number) for number in range(399)),
    )
    options = options_of(
        control, tmp_path, redelivery="reappend", queueTopic=control.queue, markerFormat=marker_format
    )
    rows = []

    def columns(*where: Any, **how: Any) -> Iterator[pa.RecordBatch]:
        for batch in read_columns(*where, **how):
            rows.append(batch.num_rows)
            yield batch
            if fails:
                raise ReadStalled(control.markers, 0, 0, 0, 0, "said by the test")

    with (
        patch.object(backlog, "LEAST", 1),
        patch.object(backlog, "read_columns", columns),
        patch.object(range_consumer, "COLUMN_ROWS", 100),
        Tracker(options),
    ):
        wait_until(lambda: len(read_all(control.config, control.queue)) == 402)
        mark(start(marker_format, 400))
        wait_until(lambda: len(read_all(control.config, control.queue)) == 403)
        wait_until(lambda: open_leases(control) == 0)
    copies = read_all(control.config, control.queue)[401:]
    assert [one.value() for one in copies] == [b"399", b"400"]
    assert rows[0] == 100
    assert fails or sum(rows) == 799
