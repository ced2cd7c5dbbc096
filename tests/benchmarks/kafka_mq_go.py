"""(k) As tracker of kafka-mq-go's queues: how fast it reads a backlog, how late messages come back.

The peer is kafka-mq-go's own tracker, where ``KAFKA_MQ_GO`` names a checkout of it (see
``tests/interop/programs.py``). For what is measured see ``tests/benchmarks/reappend.py``.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.wire.marker import MarkerType, MarkerV1, encode_v1
from tests.benchmarks.catch_up import PAYLOAD, QUEUE_IDS, lives
from tests.benchmarks.common import PARTITIONS, Bench
from tests.benchmarks.reappend import FIRST, LEASE_MS, Kind, Queue, Record, Start, figures
from tests.benchmarks.report import Figure
from tests.interop.programs import NOT_NAMED, VARIABLE, Programs, build, configure, running

MARKERS = 1_000_000


def run(here: Bench) -> list[Figure]:
    theirs: Start | None = None
    if checkout := os.environ.get(VARIABLE):
        theirs = their_tracker(here, build(Path(checkout), here.scratch / "built"))
    else:
        print(f"kafka-mq-go's tracker is {NOT_NAMED}", file=sys.stderr)
    return figures(here, KIND, theirs)


def backlog() -> Iterator[Record]:
    """The markers of a backlog, see :func:`lives`."""
    for number, kind in lives(FIRST, MARKERS // 2):
        queue_id, partition = b"queue-%d" % (number % QUEUE_IDS), number % PARTITIONS
        is_start = kind == MarkerType.START
        marker = MarkerV1(
            queue_id=queue_id,
            type=kind,
            partition=partition,
            offset=number,
            redeliver_after_ms=MAX_LEASE_MS if is_start else 0,
            key=queue_id if is_start else b"",
            value=PAYLOAD if is_start else b"",
        )
        yield partition, queue_id, encode_v1(marker)


def begun(partition: int, offset: int, value: bytes, lease_ms: int) -> Record:
    """A Start marker."""
    marker = MarkerV1(
        queue_id=b"jobs",
        type=MarkerType.START,
        partition=partition,
        offset=offset,
        redeliver_after_ms=lease_ms,
        key=b"jobs",
        value=value,
    )
    return partition, b"jobs", encode_v1(marker)


KIND = Kind(
    name="kafka-mq-go",
    marker_format="protobuf",
    begun=begun,
    backlog=backlog,
    markers=MARKERS,
    shortest_lease_ms=1,
)


def their_tracker(here: Bench, programs: Programs) -> Start:
    """The tracker that kafka-mq-go's checkout contains."""

    def start(queue: Queue) -> AbstractContextManager[object]:
        directory = here.scratch / f"theirs-{uuid.uuid4().hex}"
        directory.mkdir()
        config = configure(
            directory,
            servers=queue.servers,
            queue=queue.name,
            markers=queue.markers,
            lease_ms=LEASE_MS,
            offsets_per_commit=1_000,  # its default
        )
        return running([str(programs.tracker), "-config", str(config)], directory / "log", {})

    return start
