"""Together with kafka-mq-go itself: our source with its tracker, its consumer and its suite with our tracker.

``make test-interop`` builds its programs of the checkout that ``KAFKA_MQ_GO`` names, see ``programs.py``, and
runs them. Where the variable is not set nothing is run; where it is set and something is missing, that is a
failure.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_cursor_source as cursorq
from spark_cursor_source import AckSink
from spark_cursor_source.core.outcome import Leave
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.metrics.table import TRACKER_PARTITIONS, Sample
from spark_cursor_source.tracker import Tracker
from spark_cursor_source.wire.marker import MarkerType, MarkerV1, decode, encode_v1
from tests.interop.programs import NOT_NAMED, VARIABLE, CannotBuild, Programs, build, configure, running
from tests.kafka.control_plane import read_all
from tests.spark.harness import Bench, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]

LEASE_MS = 4_000
QUEUE_IDS = (b"orders", b"returns")


INTERRUPTED = "Interrupts"  #: in the names of the cases of their suite that wait for a redelivery


@pytest.fixture(scope="session")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    checkout = os.environ.get(VARIABLE)
    if not checkout:
        pytest.skip(NOT_NAMED)
    try:
        return build(Path(checkout), tmp_path_factory.mktemp("kafka-mq-go"))
    except CannotBuild as why:
        pytest.fail(str(why), pytrace=False)


def run_suite(suite: Path, directory: Path, *arguments: str) -> str:
    """Run their suite with the configuration in this directory; what it prints."""
    work = directory / "suite"
    work.mkdir()
    done = subprocess.run(
        [str(suite), "-ginkgo.noColor", *arguments],
        cwd=work,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    return done.stdout


class Rig:
    """A queue topic and a markers topic, and kafka-mq-go's programs at work on them."""

    def __init__(self, bench: Bench, programs: ExitStack) -> None:
        self.bench = bench
        self.queue = bench.create_topic(2)
        self.markers_topic = f"{self.queue}-markers"
        bench.topics.ensure_markers(self.markers_topic, partitions=4)
        self._programs = programs

    def configure(self, lease_ms: int = LEASE_MS) -> Path:
        """The configuration file of this queue."""
        return configure(
            self.bench.directory,
            servers=self.bench.servers,
            queue=self.queue,
            markers=self.markers_topic,
            lease_ms=lease_ms,
        )

    def run(self, program: Path, **environment: str) -> Path:
        """Start a program of theirs with the configuration of this queue; where its output goes."""
        log = self.bench.directory / f"{program.name}.log"
        command = [str(program), "-config", str(self.configure())]
        self._programs.enter_context(running(command, log, environment))
        return log

    def start_our_tracker(self, **options: str) -> StreamingQuery:
        """Our tracker in the place of theirs."""
        given = {
            "kafka.bootstrap.servers": self.bench.servers,
            "redelivery": "reappend",
            "queueTopic": self.queue,
            "markersTopic": self.markers_topic,
            "redeliveriesTopic": f"{self.queue}-redeliveries",
            "cursorsTopic": f"{self.queue}-cursors",
            "checkpointLocation": str(self.bench.directory / "tracker"),
            "trigger": "500ms",
        }
        tracker = cursorq.start_tracker(self.bench.spark, given | options)
        self.bench.queries.append(tracker)
        return tracker

    def until_warm(self, tracker: StreamingQuery) -> None:
        """Wait until our tracker has appended a message again: its first batches take much longer."""
        queue_id = b"nobody's"
        before = len(self.messages())
        self.bench.produce(self.queue, [{"key": queue_id, "value": b"warm"}])
        offset = max(offset for partition, offset in self.messages() if partition == 0)
        start = MarkerV1(
            queue_id=queue_id,
            type=MarkerType.START,
            partition=0,
            offset=offset,
            redeliver_after_ms=1,
            key=queue_id,
            value=b"warm",
        )
        self.bench.produce(self.markers_topic, [{"key": queue_id, "value": encode_v1(start)}])
        wait_until(
            lambda: len(self.messages()) == before + 2,
            "our tracker has appended a copy",
            timeout_s=300,
            queries=[tracker],
        )

    def put(self, *values: str) -> None:
        """These messages for each queue id, in both partitions."""
        for partition, queue_id in enumerate(QUEUE_IDS):
            records = [{"key": queue_id, "value": value.encode()} for value in values]
            self.bench.produce(self.queue, records, partition=partition)

    def messages(self) -> dict[tuple[int, int], tuple[bytes, str]]:
        """(queue id, payload) of all messages and copies, by partition and offset."""
        return {
            (one.partition() or 0, one.offset() or 0): (one.key() or b"", (one.value() or b"").decode())
            for one in read_all(self.config, self.queue)
        }

    def markers(self, kind: int) -> list[tuple[int, int]]:
        """(partition, offset) of each marker of a kind."""
        decoded = [decode(one.key(), one.value()) for one in read_all(self.config, self.markers_topic)]
        return [
            (one.partition, one.offset) for one in decoded if isinstance(one, MarkerV1) if one.type == kind
        ]

    def is_settled(self) -> bool:
        """Whether every message was started, and every one that was has ended."""
        messages, ended = self.messages().keys(), set(self.markers(MarkerType.END))
        return messages <= set(self.markers(MarkerType.START)) and messages <= ended

    @property
    def config(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bench.servers}


@pytest.fixture
def rig(
    spark: SparkSession, broker: EmbeddedKafka, tmp_path: Path, create_topic: Callable[..., str]
) -> Iterator[Rig]:
    bench = Bench(spark, broker.bootstrap_servers, tmp_path, create_topic)
    with ExitStack() as programs:
        yield Rig(bench, programs)
        bench.close()


def test_our_source_with_their_tracker_loses_nothing_and_what_is_not_acked_comes_back_once(
    theirs: Programs, rig: Rig
) -> None:
    # S -- E: acked, gone       S -- K -- K -- E: longer than its lease, and not back
    # S ---- lease ---- copy -- S -- E: left, failed         S -- K(0) ---- copy -- S -- E: released
    rig.run(theirs.tracker)
    rig.put("ack 1", "leave", "ack 2", "release", "raise", "long", "ack 3")
    produced = dict.fromkeys((0, 1), 7)
    options = {
        "kafka.bootstrap.servers": rig.bench.servers,
        "subscribe": rig.queue,
        "subscription": "s",
        "markerFormat": "v1",
        "markersTopic": rig.markers_topic,
        "leaseTimeout": f"{LEASE_MS}ms",
    }
    seen: Counter[tuple[int, int]] = Counter()

    def handle(message: Any) -> Any:
        value = bytes(message.value).decode()
        if value == "long":
            time.sleep(2 * LEASE_MS / 1000)
        if message.offset >= produced[message.partition]:
            return None
        if value == "raise":
            raise ValueError("the first time")
        return {"leave": Leave(), "release": False}.get(value)

    def remember(outcomes: DataFrame, batch_id: int) -> None:
        seen.update((row.partition, row.offset) for row in outcomes.collect())

    rig.bench.start(options, AckSink.per_row(handle, options, then=remember))
    again = {"leave": 2, "release": 2, "raise": 2}
    rig.bench.until(lambda: len(rig.messages()) >= 14 + 6 and rig.is_settled(), "all is acked", timeout_s=300)
    time.sleep(2 * LEASE_MS / 1000)  # long enough for what must not come back
    messages = rig.messages()
    expected = {
        (queue_id, value): again.get(value, 1)
        for queue_id in QUEUE_IDS
        for value in ("ack 1", "leave", "ack 2", "release", "raise", "long", "ack 3")
    }
    assert Counter(messages.values()) == expected
    assert seen == dict.fromkeys(messages, 1), "each message and each copy reaches the handler once"
    assert Counter(rig.markers(MarkerType.START)) == dict.fromkeys(messages, 1), "one Start each"


def test_their_consumer_with_our_tracker_gets_back_what_it_has_left(theirs: Programs, rig: Rig) -> None:
    # S -- E: acked      S ---- lease over ---- copy, End -- S -- E
    rig.put("ack 1", "leave", "ack 2")
    tracker = rig.start_our_tracker()
    log = rig.run(theirs.consumer, QUEUE=QUEUE_IDS[0].decode())
    wait_until(lambda: "acked leave" in log.read_text(), "it comes back", timeout_s=300, queries=[tracker])
    ours = {one for one, (queue_id, _) in rig.messages().items() if queue_id == QUEUE_IDS[0]}
    wait_until(lambda: ours <= set(rig.markers(MarkerType.END)), "all is ended", queries=[tracker])
    time.sleep(2 * LEASE_MS / 1000)
    values = Counter(value for queue_id, value in rig.messages().values() if queue_id == QUEUE_IDS[0])
    assert values == {"ack 1": 1, "leave": 2, "ack 2": 1}
    acked = [line for line in log.read_text().splitlines() if line.startswith("acked")]
    assert sorted(acked) == ["acked ack 1", "acked ack 2", "acked leave"]


@pytest.mark.parametrize(
    ("cases", "lease_ms", "passed"),
    [
        pytest.param(["-ginkgo.skip", INTERRUPTED], 3_000, 6, id="nothing-comes-back"),
        # Each allows the lease as much again, and ours comes some seconds later than theirs.
        pytest.param(["-ginkgo.focus", INTERRUPTED], 15_000, 2, id="what-is-interrupted-comes-back"),
    ],
)
def test_their_own_suite_passes_with_our_tracker(
    theirs: Programs, rig: Rig, cases: list[str], lease_ms: int, passed: int
) -> None:
    rig.configure(lease_ms)
    rig.until_warm(rig.start_our_tracker())
    said = run_suite(theirs.suite, rig.bench.directory, *cases)
    assert f"{passed} Passed | 0 Failed" in said, said[-5_000:]


def test_their_own_suite_passes_with_our_tracker_without_spark(
    theirs: Programs,
    config: dict[str, str],
    topics: ClusterAdmin,
    create_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    # A lease of a second, and a second for the message to come back.
    queue, servers = create_topic(2), config["bootstrap.servers"]
    markers = f"{queue}-markers"
    topics.ensure_markers(markers, partitions=4)
    configure(tmp_path, servers=servers, queue=queue, markers=markers, lease_ms=1_000)
    options = {
        "kafka.bootstrap.servers": servers,
        "redelivery": "reappend",
        "queueTopic": queue,
        "markersTopic": markers,
        "redeliveriesTopic": f"{queue}-redeliveries",
        "cursorsTopic": f"{queue}-cursors",
    }
    with Tracker(options) as tracker:
        owned = Sample(TRACKER_PARTITIONS, (), 4)
        wait_until(lambda: owned in tracker.metrics(), "our tracker works on all partitions")
        said = run_suite(theirs.suite, tmp_path)
    assert "8 Passed | 0 Failed" in said, said[-5_000:]


def test_a_directory_that_is_no_checkout_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CannotBuild, match=r"is no checkout of kafka-mq-go: it has no go\.mod"):
        build(tmp_path / "mistyped", tmp_path)
