"""The declarative pipeline as it is shipped, run by Spark's own command for pipelines, but for its names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow.dataset
import pyspark
import pytest

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, Reject
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.devkit.spark_session import SHORT_LIVED
from spark_cursor_source.topics.message_sender import borrowed_sender
from spark_cursor_source.wire import marker as marker_wire
from spark_cursor_source.wire.deliver_at import due
from tests.conftest import ROOT
from tests.connect_port import connect_port
from tests.e2e.processes import TAG, kill_tree
from tests.kafka.control_plane import read_all

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
CONNECT = ("--remote", "local[2]", "--conf", "spark.api.mode=connect")
# Nothing that a user would need: a short life on a machine with two cores.
MODEST = (
    *("--conf", "spark.driver.memory=1g", "--conf", "spark.ui.enabled=false"),
    *("--conf", f"spark.driver.extraJavaOptions={SHORT_LIVED}"),
)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[Path], str]]:
    """Runs a pipeline, and everything that it starts ends with the test."""
    tag = uuid.uuid4().hex

    def run_to_its_end(spec: Path) -> str:
        command = [SUBMIT, *MODEST, *CONNECT, str(ROOT / "jobs" / "pipeline.py"), "run", "--spec", str(spec)]
        environment = {**os.environ, TAG: tag}
        log = tmp_path / "pipeline.log"
        with connect_port(), log.open("wb") as output:
            done = subprocess.run(command, cwd=tmp_path, env=environment, stdout=output, stderr=output)
        said = log.read_text(errors="replace")
        assert done.returncode == 0, said[-4_000:]
        return said

    yield run_to_its_end
    kill_tree(tag)


def shipped(directory: Path, name: str, values: Mapping[str, str]) -> Path:
    """A file of ``jobs/pipeline`` with other names in it."""
    text = (ROOT / "jobs" / "pipeline" / name).read_text(encoding="utf-8")
    for pattern, value in values.items():
        text, found = re.subn(pattern, value, text)
        assert found, f"{name} has no {pattern}"
    written = directory / name
    written.write_text(text, encoding="utf-8")
    return written


# orders 0-9, of them 3: negative, 7: large -> table: all; acked: all but 3; rejected: 3; to be reviewed: 7
def test_a_pipeline_acks_rejects_and_enqueues_without_foreach_batch(
    run: Callable[[Path], str], broker: EmbeddedKafka, create_topic: Callable[..., str], tmp_path: Path
) -> None:
    config = {"bootstrap.servers": broker.bootstrap_servers}
    queue, reviews, markers = create_topic(), create_topic(), f"markers-{uuid.uuid4().hex[:8]}"
    amounts = {3: -1, 7: 950}
    with borrowed_sender(config) as sender:
        sender.admit(queue, 0)
        values = [b'{"amount": %d}' % amounts.get(number, 10) for number in range(10)]
        sender.send((queue, b"customer", value, 0, None) for value in values)
        sender.flush()
    own = {"subscribe": queue, "markersTopic": markers, "groupIdPrefix": markers}
    names = {
        '"subscribe": "orders"': json.dumps(own).strip("{}"),
        '"topic": "reviews"': f'"topic": "{reviews}"',
    }
    shipped(tmp_path, "orders.py", names)
    places = {"file:.*": f"file://{tmp_path}/storage", "localhost:9092": broker.bootstrap_servers}
    said = run(shipped(tmp_path, "spark-pipeline.yml", places))

    assert "Run is COMPLETED" in said
    table = pyarrow.dataset.dataset(tmp_path / "spark-warehouse" / "orders", format="parquet").to_table()
    assert sorted(table.column("offset").to_pylist()) == list(range(10))
    cell = Cell(subscription="billing", topic=queue, partition=0)
    marked = [marker_wire.decode(record.key(), record.value()) for record in read_all(config, markers)]
    ended = OffsetSet.union(one.offsets for one in marked if isinstance(one, End) and one.cell == cell)
    assert ended == OffsetSet.of((0, 3), (4, 10))
    (rejected,) = [one for one in marked if isinstance(one, Reject)]
    assert (rejected.offsets, rejected.delivery_count) == (OffsetSet.of((3, 4)), 1)
    assert rejected.reason == "negative amount"
    (review,) = read_all(config, reviews)
    assert (review.key(), review.value()) == (b"customer", b'{"amount": 950}')
    sent_ms = review.timestamp()[1]
    asked = due(review.headers() or [], sent_ms)
    assert 0 < (asked.at_ms or 0) - sent_ms <= 60_000, "a minute after the batch began"
