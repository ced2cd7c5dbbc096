"""Task reports as records of the redeliveries topic.

Each report is also an announcement of no messages to no run, so that versions without reports skip it.
"""

from __future__ import annotations

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import EMPTY
from spark_cursor_source.core.read_report import ReadReport
from spark_cursor_source.wire.control_pb2 import Redelivery as RedeliveryPb
from spark_cursor_source.wire.descriptors import UNREADABLE
from spark_cursor_source.wire.offsets import encode_offsets

VERSION = 1


def encode(report: ReadReport) -> bytes:
    """Returns the record value of a report.

    >>> one = ReadReport(cell=Cell(subscription="s", topic="t", partition=0), batch="r#1", task=0)
    >>> decode(encode(one)) == one
    True
    """
    return RedeliveryPb(
        version=VERSION,
        subscription=report.cell.subscription,
        topic=report.cell.topic,
        partition=report.cell.partition,
        offsets=encode_offsets(EMPTY),
        run_id=report.batch,
        read_task=report.task,
    ).SerializeToString(deterministic=True)


def decode(value: bytes | None) -> ReadReport | None:
    """Returns the report of a record value, or None if the value is not a report."""
    try:
        pb = RedeliveryPb.FromString(value or b"")
    except UNREADABLE:
        return None
    if pb.version != VERSION or not pb.HasField("read_task"):
        return None
    cell = Cell(subscription=pb.subscription, topic=pb.topic, partition=pb.partition)
    return ReadReport(cell=cell, batch=pb.run_id, task=pb.read_task)
