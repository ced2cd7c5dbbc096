"""What a settlement takes of rows, without Spark: delays, and the names of messages."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_cursor_source.consumer.settlement import Settlement
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, Leave, Reject, Release
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import InvalidDuration, InvalidMessageId, InvalidOption
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.spark.settling import settlement_of

HALF_A_DAY_MS = 12 * 3_600_000


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize(
    ("delay_ms", "error"), [(HALF_A_DAY_MS + 1, InvalidOption), (-1, InvalidDuration), (HALF_A_DAY_MS, None)]
)
def test_a_delay_that_the_tracker_would_cut_is_refused(
    version: str, delay_ms: int, error: type[Exception] | None
) -> None:
    options = {"kafka.bootstrap.servers": "b:9092", "subscription": "s", "markerFormat": version}
    settlement = settlement_of(AckOptions.parse(options))
    rows = {"key": [b"q"], "topic": ["t"], "partition": [0], "offset": [7], "delivery_count": [1]}
    table = pa.table({**rows, "action": ["release"], "delay_ms": [delay_ms]})
    if error is None:
        settlement.add(table)
        assert len(list(settlement.markers())) == 1
        return
    with pytest.raises(error):
        settlement.add(table)


def test_only_the_exceptions_are_written_where_the_source_acks() -> None:
    options = AckOptions.parse({**OPTIONS, "ackMode": "batch"})
    actions = ["ack", "release", "leave", "reject", "ack", "leave"]
    rows = pa.table(
        {
            "topic": ["orders"] * 6,
            "partition": pa.array([0] * 6, pa.int32()),
            "offset": range(6),
            "delivery_count": pa.array([1] * 6, pa.int32()),
            "action": actions,
            "delay_ms": pa.array([None, 0, None, None, None, None], pa.int64()),
        }
    )
    settlement = Settlement(options)
    settlement.add(rows)
    cell = Cell(subscription="billing", topic="orders", partition=0)
    assert list(settlement.markers()) == [
        Release(cell=cell, offsets=OffsetSet.of((1, 2)), delivery_count=1, delay_ms=0),
        Leave(cell=cell, offsets=OffsetSet.of((2, 3), (5, 6)), delivery_count=1),
        Reject(cell=cell, offsets=OffsetSet.of((3, 4)), delivery_count=1),
    ]
    assert settlement.settled == 6
    each = Settlement(options.settling_each())
    each.add(rows)
    acked = End(cell=cell, offsets=OffsetSet.of((0, 1), (4, 5)))
    assert [type(one) for one in each.markers()] == [End, Release, Reject]
    assert next(each.markers()) == acked


OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscription": "billing"}


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "why"),
    [
        ("orders,", 0, 0, "topic 'orders,': a topic name has only"),
        ("", 0, 0, "topic '': a topic name cannot be empty"),
        ("t" * 250, 0, 0, "at most 249 characters"),
        ("orders", -1, 0, "partition '-1'"),
        ("orders", 0, -1, "offset '-1'"),
    ],
)
def test_a_row_that_names_no_message_is_refused(topic: str, partition: int, offset: int, why: str) -> None:
    rows = pa.table(
        {"topic": ["orders", topic], "partition": pa.array([0, partition], pa.int32()), "offset": [0, offset]}
    )
    with pytest.raises(InvalidMessageId, match=why):
        Settlement(AckOptions.parse(OPTIONS)).add(rows)
