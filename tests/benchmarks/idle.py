"""(l) Idle queries: CPU and memory of their planners, and the start of many in one application."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_cursor_source as cursorq
from spark_cursor_source.tracker import Tracker
from tests.benchmarks.common import Bench, spark_session
from tests.benchmarks.plain_source import PlainSource, start_plain
from tests.benchmarks.report import Figure

IDLE_S = 20
SETTLE_S = 5
QUERIES = 50
AT_ONCE = 4  #: queries that start at the same time, as the guide says
RUNNER = b"python_streaming_source_runner"


def run(here: Bench) -> list[Figure]:
    servers = {"kafka.bootstrap.servers": here.broker.bootstrap_servers}
    found = []
    with Tracker(servers), spark_session(here, peer=False) as spark:
        cursorq.register(spark)
        spark.dataSource.register(PlainSource)
        for partitions, goal in ((1, 1.0), (200, 3.0)):
            with idle_queries(here, spark, 1, partitions=partitions):
                cpu, memory = usage()
            found.append(
                Figure(what=f"planner, {partitions} partitions: CPU", value=cpu, unit="%", goal=goal)
            )
            found.append(Figure(what=f"planner, {partitions} partitions: memory", value=memory, unit="MiB"))
        in_one_loop = {source: _up_in_one_loop(here, spark, source) for source in ("cursorq", "plain")}
        began = time.monotonic()
        with idle_queries(here, spark, QUERIES, partitions=1) as queries:
            started = time.monotonic() - began
            alive = sum(query.isActive for query in queries)
            cpu, memory = usage()
    what = f"{QUERIES} queries, {AT_ONCE} at a time"
    return [
        *found,
        Figure(
            what=f"{QUERIES} queries in one loop",
            value=in_one_loop["cursorq"],
            unit="up",
            peer=in_one_loop["plain"],
            peer_is="a Python source without Kafka",
        ),
        Figure(what=what, value=alive, unit="up", goal=QUERIES),
        Figure(what=f"{what}: until all plan", value=started),
        Figure(what=f"{what}: CPU of all planners", value=cpu, unit="%", goal=100),
        Figure(what=f"{what}: memory of a planner", value=memory, unit="MiB"),
    ]


@contextmanager
def idle_queries(
    here: Bench, spark: SparkSession, count: int, *, partitions: int
) -> Iterator[list[StreamingQuery]]:
    """Queries of subscriptions of their own, of a topic without new messages, after their first look."""
    topic = here.fill(partitions, partitions=partitions)
    queries: list[StreamingQuery] = []
    try:
        for _ in range(count):
            _wait(queries, most=AT_ONCE - 1)
            queries.append(_start(here, spark, topic))
        _wait(queries, most=0)
        time.sleep(SETTLE_S)
        yield queries
    finally:
        for query in queries:
            query.stop()


def _up_in_one_loop(here: Bench, spark: SparkSession, source: str) -> int:
    """Number of queries that come up if all are started without a wait."""
    topic = here.fill(1, partitions=1)
    start = {"cursorq": lambda: _start(here, spark, topic), "plain": lambda: start_plain(here, spark)}[source]
    queries = [start() for _ in range(QUERIES)]
    _wait(queries, most=0)
    up = sum(query.isActive for query in queries)
    for query in queries:
        query.stop()
    return up


def _wait(queries: Iterable[StreamingQuery], *, most: int) -> None:
    """Wait until at most so many of the queries have not planned yet."""
    until = time.monotonic() + 180
    while sum(query.isActive and not query.recentProgress for query in queries) > most:
        assert time.monotonic() < until, "not all queries have begun"
        time.sleep(0.2)


def _start(here: Bench, spark: SparkSession, topic: str) -> StreamingQuery:
    stream = spark.readStream.format("cursorq").options(
        **{
            "kafka.bootstrap.servers": here.broker.bootstrap_servers,
            "subscribe": topic,
            "subscription": f"idle-{uuid.uuid4().hex[:8]}",
            "startingOffsets": "latest",
        }
    )
    writer = stream.load().writeStream.format("noop").option("checkpointLocation", here.checkpoint())
    return writer.start()


def usage() -> tuple[float, float]:
    """CPU of all planners in percent of a core, and the median of their memory in MiB."""
    before = _cpu_s()
    time.sleep(IDLE_S)
    after = _cpu_s()
    spent = sum(after[pid] - before[pid] for pid in after.keys() & before.keys())
    return 100 * spent / IDLE_S, median(map(_memory_mib, _runners()))


def _cpu_s() -> dict[Path, float]:
    fields = {pid: (pid / "stat").read_text().rpartition(")")[2].split() for pid in _runners()}
    return {
        pid: (int(field[11]) + int(field[12])) / os.sysconf("SC_CLK_TCK") for pid, field in fields.items()
    }


def _memory_mib(pid: Path) -> float:
    return int((pid / "status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def _runners() -> list[Path]:
    """Planner processes below this process."""
    found = []
    for pid in Path("/proc").iterdir():
        try:
            if pid.name.isdigit() and RUNNER in (pid / "cmdline").read_bytes() and _is_below(pid):
                found.append(pid)
        except OSError:
            continue  # ended meanwhile
    return found


def _is_below(pid: Path) -> bool:
    number = int(pid.name)
    while number > 1:
        if number == os.getpid():
            return True
        number = int((Path("/proc") / str(number) / "stat").read_text().rpartition(")")[2].split()[1])
    return False
