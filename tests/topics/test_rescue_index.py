"""Copies in the rescue topic, where a broker does not know it yet or where it does not exist."""

from __future__ import annotations

import time

import pytest

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.rescue import RescuePlace
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.admin_requests import DENIAL_MS
from spark_cursor_source.topics.rescue import Rescue
from spark_cursor_source.wire import rescue as wire
from tests.conftest import CreateTopic
from tests.kafka.behind import deny_once
from tests.kafka.control_plane import produce

pytestmark = pytest.mark.broker

ONE = {0: OffsetSet.of((0, 1))}


@pytest.mark.parametrize("denied", ["queue", "rescue"])
def test_copies_are_found_if_one_broker_does_not_know_a_topic_yet(
    config: dict[str, str],
    topics: ClusterAdmin,
    create_topic: CreateTopic,
    monkeypatch: pytest.MonkeyPatch,
    denied: str,
) -> None:
    queue, rescue = create_topic(), create_topic(cleanup_policy="compact")
    place = RescuePlace(queue, topics.describe([queue])[queue].topic_id, 0)
    produce(config, rescue, [{"key": wire.record_key("markers", place, 0), "value": b"copy"}])
    deny_once(monkeypatch, queue if denied == "queue" else rescue)
    assert Rescue(config, rescue, "markers").has(queue, ONE) == ONE


def test_a_reader_does_not_wait_for_each_message_if_there_is_no_rescue_topic(
    config: dict[str, str], create_topic: CreateTopic
) -> None:
    queue, rescue = create_topic(), Rescue(config, "no-rescue", "markers")
    rescue.has(queue, ONE)
    began_s = time.monotonic()
    assert [rescue.has(queue, ONE) for _ in range(3)] == [{0: OffsetSet.of()}] * 3
    assert time.monotonic() - began_s < DENIAL_MS / 1000
