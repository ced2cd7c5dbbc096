"""Copies in the rescue topic, where a broker does not know it yet or where it does not exist."""

from __future__ import annotations

import time
import uuid

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
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

ONE = {0: OffsetSet.of((0, 1))}
NONE = {0: OffsetSet.of()}


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


def test_copies_are_found_if_a_broker_forgets_a_topic_that_was_there(
    config: dict[str, str], topics: ClusterAdmin, create_topic: CreateTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    # no rescue topic | it is created, and a copy is written | a broker denies the topic once
    queue, name = create_topic(), f"rescue-{uuid.uuid4().hex}"
    rescue = Rescue(config, name, "markers")
    assert rescue.has(queue, ONE) == NONE
    create_topic(cleanup_policy="compact", name=name)
    place = RescuePlace(queue, topics.describe([queue])[queue].topic_id, 0)
    produce(config, name, [{"key": wire.record_key("markers", place, 0), "value": b"copy"}])
    wait_until(lambda: rescue.has(queue, ONE) == ONE)
    deny_once(monkeypatch, name)
    assert rescue.has(queue, ONE) == ONE


@pytest.mark.parametrize("later_s", [0, 120])
def test_a_reader_does_not_wait_again_if_there_is_no_rescue_topic(
    config: dict[str, str], create_topic: CreateTopic, monkeypatch: pytest.MonkeyPatch, later_s: int
) -> None:
    queue, rescue = create_topic(), Rescue(config, "no-rescue", "markers")
    rescue.has(queue, ONE)
    now_s = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now_s() + later_s)
    began_s = time.monotonic()
    assert [rescue.has(queue, ONE) for _ in range(3)] == [NONE] * 3
    assert time.monotonic() - began_s < DENIAL_MS / 1000
