"""The jobs as they are shipped, with the files in ``conf/``: by spark-submit and by plain python."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyspark
import pytest

from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.devkit.spark_session import SHORT_LIVED
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.cursors import CursorTable
from tests.e2e.harness import ROOT, wait_until
from tests.e2e.processes import TAG, kill_tree

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ORDERS, NEGATIVE = 400, 4
SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
# Nothing that a user would need: three Sparks at once on a machine with two cores.
MODEST = (
    *("--conf", "spark.driver.memory=1g", "--conf", "spark.ui.enabled=false", "--master", "local[2]"),
    *("--conf", f"spark.driver.extraJavaOptions={SHORT_LIVED}"),
)
DEFAULTS = ("--properties-file", str(ROOT / "conf" / "spark-defaults.conf"))


class Jobs:
    """Job processes of one test, and the files of ``conf/`` with names of the test's own."""

    def __init__(self, servers: str, directory: Path) -> None:
        self._servers, self._directory = servers, directory
        self._tag = uuid.uuid4().hex
        self.topic = f"orders-{self._tag[:8]}"
        self.cursors_topic = f"cursors-{self._tag[:8]}"
        self._running: list[tuple[subprocess.Popen[bytes], Path]] = []

    def conf(self, name: str) -> str:
        """A file of ``conf/``, with each value replaced that is about where things are."""
        values = {
            "bootstrap.servers": self._servers,
            "kafka.bootstrap.servers": self._servers,
            "checkpointLocation": str(self._directory / f"{name}-checkpoint"),
            "subscribe": self.topic,
            "markersTopic": f"markers-{self._tag[:8]}",
            "redeliveriesTopic": f"redeliveries-{self._tag[:8]}",
            "cursorsTopic": self.cursors_topic,
            "groupIdPrefix": f"groups-{self._tag[:8]}",
            "trackerTimeout": "10m",  # three Sparks start at once, on a busy machine
        }
        text = (ROOT / "conf" / name).read_text(encoding="utf-8")
        for option, value in values.items():
            text = re.sub(rf'^("?{re.escape(option)}"? = ).*$', rf'\g<1>"{value}"', text, flags=re.MULTILINE)
        written = self._directory / name
        written.write_text(text, encoding="utf-8")
        return str(written)

    def start(self, job: str, *arguments: str, submit: bool = False) -> subprocess.Popen[bytes]:
        """Start ``jobs/<job>``, by spark-submit or by plain python."""
        script = str(ROOT / "jobs" / job)
        if submit:
            return self.run(job, [SUBMIT, *MODEST, *DEFAULTS, script, *arguments])
        settings = {"PYSPARK_SUBMIT_ARGS": shlex.join((*MODEST, "pyspark-shell"))}
        return self.run(job, [sys.executable, script, *arguments], settings)

    def run(
        self, name: str, command: Sequence[str], settings: Mapping[str, str | None] = MappingProxyType({})
    ) -> subprocess.Popen[bytes]:
        """Start a process with these environment variables, None for one that it does not get."""
        given = {**os.environ, TAG: self._tag, **settings}
        log = self._directory / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self._directory,
                env={variable: value for variable, value in given.items() if value is not None},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._running.append((process, log))
        return process

    def until(self, condition: Any, what: str) -> None:
        """Wait for the condition while every job runs, or has ended well."""

        def met() -> bool:
            for process, log in self._running:
                assert process.poll() in (None, 0), log.read_text(errors="replace")[-4_000:]
            return bool(condition())

        wait_until(met, what, timeout_s=600)

    def log(self, job: str) -> str:
        return (self._directory / f"{job}.log").read_text(errors="replace")

    def close(self) -> None:
        kill_tree(self._tag)
        for process, _ in self._running:
            process.wait()


@pytest.fixture
def jobs(broker: EmbeddedKafka, tmp_path: Path) -> Iterator[Jobs]:
    made = Jobs(broker.bootstrap_servers, tmp_path)
    yield made
    made.close()


# produce 400 -> consume: 4 rejected, the large ones released once, the others acked -> nothing outstanding
def test_the_jobs_produce_consume_and_track_as_their_files_say(jobs: Jobs, broker: EmbeddedKafka) -> None:
    producer = jobs.start(
        "produce.py",
        f"--bootstrap-servers={broker.bootstrap_servers}",
        f"--topic={jobs.topic}",
        f"--messages={ORDERS}",
        "--partitions=3",
    )
    jobs.until(lambda: producer.poll() == 0, "the producer ends")
    assert f"{ORDERS} messages are in topic {jobs.topic}" in jobs.log("produce.py")
    jobs.start("tracker.py", jobs.conf("tracker.toml"), submit=True)
    jobs.start("consume.py", jobs.conf("consumer.toml"))

    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    topics = ClusterAdmin(kafka)
    jobs.until(
        lambda: jobs.cursors_topic in topics.existing([jobs.cursors_topic]), "the control topics are made"
    )
    with closing(CursorTable(kafka, jobs.cursors_topic)) as tail:

        def cursors() -> list[CursorSnapshot]:
            tail.refresh()
            return list(tail.of(subscription="billing", topic=jobs.topic).values())

        def settled() -> int:
            return sum(cursor.totals.acked + cursor.totals.dead_lettered for cursor in cursors())

        jobs.until(lambda: settled() == ORDERS, "every order is acked or dead-lettered")
        found = cursors()
    assert not any(cursor.outstanding for cursor in found)
    assert sum(cursor.totals.dead_lettered for cursor in found) == NEGATIVE
    large = sum(number * 37 % 1_000 > 900 for number in range(ORDERS) if number % 100 != 99)
    assert sum(cursor.totals.delivered for cursor in found) == ORDERS + large
    dead = f"{jobs.topic}-billing-DLQ"
    ends = topics.end_offsets([(dead, number) for number in range(3)], committed=True)
    assert sum(ends.values()) == NEGATIVE


def test_a_job_is_parsing_and_one_call_in_less_than_30_lines() -> None:
    lengths = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "jobs").glob("*.py")}
    assert set(lengths) == {"tracker.py", "consume.py", "produce.py", "redrive.py", "pipeline.py"}
    assert max(lengths.values()) < 30
