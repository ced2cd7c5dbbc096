"""(k) As tracker of kmq's queues: how fast it reads a backlog, how late messages come back.

The peer is kmq's own redelivery tracker, version 0.2, in a JVM of its own (``KmqTracker.java``). No later
version was found on Maven Central with all that it needs. It has the settings of kmq's examples, and the last
Kafka clients that have the ``poll`` which it calls. What is measured is told in
``tests/benchmarks/reappend.py``.

kmq's redelivery looks for what is due as soon as it has a partition, and then once a second. So it takes a
second with no backlog, and whole seconds with one: kmq may have taken up to a second longer than the figure
says. Hence a backlog of 4M markers. The Starts at its end have no lease, or kmq would wait for another second
without a marker. While markers arrive, kmq's clock is the time of the last marker of the same partition:
about 2.5 Starts a second while lateness is measured, besides the Ends that trackers write.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pyspark

from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.devkit.runtime import find_java
from spark_cursor_source.interop.markers_wire import kmq_end, kmq_start
from spark_cursor_source.wire.marker import MarkerType
from tests.benchmarks.catch_up import lives
from tests.benchmarks.common import PARTITIONS, Bench
from tests.benchmarks.reappend import FIRST, Kind, Queue, Record, Start, figures
from tests.benchmarks.report import Figure
from tests.interop.programs import running

MARKERS = 4_000_000
_SOURCE = Path(__file__).with_name("KmqTracker.java")
# Ivy itself, since Spark's resolver omits scala-library, and kmq needs another one than Spark.
_DEPENDENCIES = """\
<ivy-module version="2.0">
  <info organisation="tests" module="kmq-tracker"/>
  <dependencies defaultconf="default">
    <dependency org="com.softwaremill.kmq" name="core_2.12" rev="0.2"/>
    <dependency org="org.scala-lang" name="scala-library" rev="2.12.20"/>
    <dependency org="org.apache.kafka" name="kafka-clients" rev="3.9.2"/>
  </dependencies>
</ivy-module>
"""
_TIMEOUT_S = 300


class CannotRun(Exception):
    """kmq's tracker cannot be fetched or compiled; the text says why."""


def run(here: Bench) -> list[Figure]:
    theirs: Start | None = None
    try:
        theirs = their_tracker(here, command(here.scratch))
    except CannotRun as why:
        print(f"kmq's tracker is not run: {why}", file=sys.stderr)
    return figures(here, KIND, theirs)


def backlog() -> Iterator[Record]:
    """The markers of a backlog, see :func:`lives`."""
    for number, kind in lives(FIRST, MARKERS // 2):
        partition = number % PARTITIONS
        if kind == MarkerType.START:
            yield partition, *kmq_start(partition, number, MAX_LEASE_MS)
        else:
            yield partition, *kmq_end(partition, number)


def begun(partition: int, offset: int, _: bytes, lease_ms: int) -> Record:
    """A Start marker."""
    return partition, *kmq_start(partition, offset, lease_ms)


KIND = Kind(
    name="kmq", marker_format="kmq", begun=begun, backlog=backlog, markers=MARKERS, shortest_lease_ms=0
)


def their_tracker(here: Bench, command: list[str]) -> Start:
    """The tracker of kmq."""

    def start(queue: Queue) -> AbstractContextManager[object]:
        log = here.scratch / f"kmq-{uuid.uuid4().hex}.log"
        return running([*command, queue.servers, queue.name, queue.markers], log, {})

    return start


def command(directory: Path) -> list[str]:
    """Fetch kmq and compile the program that runs its tracker; the command that starts it.

    Raises:
        CannotRun
    """
    java, _ = find_java()
    javac = shutil.which("javac", path=str(Path(java).resolve().parent)) or shutil.which("javac")
    if javac is None:
        raise CannotRun("there is no javac: install a JDK, 17 or later")
    module, paths = directory / "ivy.xml", directory / "classpath"
    module.write_text(_DEPENDENCIES, encoding="utf-8")
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    resolve = (java, "-cp", str(ivy), "org.apache.ivy.Main", "-ivy", str(module), "-confs", "default")
    _run("its jars were not found, the first time takes a network", *resolve, "-cachepath", str(paths))
    classpath = os.pathsep.join([paths.read_text(encoding="utf-8").strip(), str(directory)])
    _run("its program does not compile", javac, "-cp", classpath, "-d", str(directory), str(_SOURCE))
    return [java, "-cp", classpath, _SOURCE.stem]


def _run(otherwise: str, *command: str) -> None:
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as cause:
        raise CannotRun(f"{otherwise} in {_TIMEOUT_S} s") from cause
    if done.returncode:
        raise CannotRun(f"{otherwise}. The last lines are:\n{done.stdout.strip()[-700:]}")
