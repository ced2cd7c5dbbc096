"""SIGKILL of a consumer whose tracker is kafka-mq-go's: each message has one Start, for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.wire.marker import MarkerType, MarkerV1, decode
from tests.e2e.harness import App, Garage
from tests.kafka.control_plane import produce, read_all

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(900)]


def test_what_a_killed_run_had_started_is_left_to_the_tracker_and_the_rest_goes_on(
    garage: Garage, broker: EmbeddedKafka, create_topic: Callable[..., str], tmp_path: Path
) -> None:
    # run 1: batch 0 = 0..3, all started | SIGKILL | run 2: batch 0 is empty, batch 1 = 4 5 -> acked
    topic, config = create_topic(), {"bootstrap.servers": broker.bootstrap_servers}

    def put(*values: bytes) -> None:
        produce(config, topic, [{"key": b"q", "value": value} for value in values])

    def markers(kind: int) -> list[int]:
        decoded = [decode(one.key(), one.value()) for one in read_all(config, f"{topic}-markers")]
        return [one.offset for one in decoded if isinstance(one, MarkerV1) and one.type == kind]

    put(b"wait", b"plain", b"plain", b"plain")
    gate = tmp_path / "gate"
    gate.touch()
    consumer = App(
        garage,
        {
            "role": "consumer",
            "options": {
                "kafka.bootstrap.servers": broker.bootstrap_servers,
                "subscribe": topic,
                "subscription": "s",
                "groupIdPrefix": topic,
                "markerFormat": "v1",
                "markersTopic": f"{topic}-markers",
            },
            "checkpoint": str(tmp_path / "checkpoint"),
            "gate": str(gate),
            "events": str(tmp_path / "events"),
            "per_row": False,
            "wait_first": False,
            "restarts": 0,
            "slow_s": 0.0,
            "trigger": "100 milliseconds",
        },
    )
    assert [one.id for one in consumer.until_seen(4)] == [(0, n) for n in range(4)]
    assert markers(MarkerType.START) == [0, 1, 2, 3]
    consumer.kill_tree()

    put(b"plain", b"plain")
    consumer.start()
    consumer.until(lambda: len(markers(MarkerType.END)) >= 2, "the new messages are acked")
    time.sleep(1.0)  # long enough for what must not come
    consumer.kill_tree()
    assert [one.id for one in consumer.seen(run=2)] == [(0, 4), (0, 5)]
    assert markers(MarkerType.START) == [0, 1, 2, 3, 4, 5], "one each"
    assert markers(MarkerType.END) == [4, 5]
