"""Copies in the rescue topic: of topics that a broker does not know yet, and beside records of others."""

from __future__ import annotations

import logging
import time
import uuid

import pytest

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.rescue import RescuePlace
from spark_cursor_source.errors import LaterCursorVersion
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.admin_requests import DENIAL_MS
from spark_cursor_source.topics.rescue import Rescue
from spark_cursor_source.wire import rescue as wire
from spark_cursor_source.wire.rescue_pb2 import RescuedMessage
from tests.conftest import CreateTopic
from tests.kafka.behind import deny_once
from tests.kafka.control_plane import produce
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

ONE = {0: OffsetSet.of((0, 1))}
COPY = wire.encode(wire.RescuedRecord(value=b"copy"))
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
    produce(config, rescue, [{"key": wire.record_key("markers", place, 0), "value": COPY}])
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
    produce(config, name, [{"key": wire.record_key("markers", place, 0), "value": COPY}])
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


def test_a_record_of_another_program_is_skipped_and_the_copies_beside_it_are_read(
    config: dict[str, str],
    topics: ClusterAdmin,
    create_topic: CreateTopic,
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue, rescue = create_topic(), create_topic(cleanup_policy="compact")
    place = RescuePlace(queue, topics.describe([queue])[queue].topic_id, 0)
    key = [wire.record_key("markers", place, offset) for offset in (None, 0, 1, 2, 3)]
    wrong_places = [wire.record_key("markers", place, offset) for offset in (-1, 2**63)]
    produce(
        config,
        rescue,
        [
            *({"key": one, "value": COPY} for one in (*key[1:3], *wrong_places, wrong_places[0] + b"_0")),
            {"key": key[0], "value": wire.encode_gaps(OffsetSet.of((5, 6)))},
            *({"key": one, "value": b"torn"} for one in (key[0], key[2], key[3])),
            {"key": key[4], "value": COPY},
        ],
    )
    wanted = OffsetSet.of((0, 9))
    copies = Rescue(config, rescue, "markers")
    with caplog.at_level(logging.WARNING):
        assert copies.has(queue, {0: wanted}) == {0: OffsetSet.of((0, 1), (3, 4))}
    assert [one.at for some in copies.messages(queue, 0, wanted) for one in some] == [0, 3]
    assert not copies.without_message(queue, 0, wanted)
    assert caplog.text.count("event=rescue_record_skipped") == 3


def test_a_copy_of_a_later_version_is_not_lost_and_cannot_be_read(
    config: dict[str, str], topics: ClusterAdmin, create_topic: CreateTopic
) -> None:
    queue, rescue = create_topic(), create_topic(cleanup_policy="compact")
    place = RescuePlace(queue, topics.describe([queue])[queue].topic_id, 0)
    later = RescuedMessage(version=wire.VERSION + 1).SerializeToString()
    produce(config, rescue, [{"key": wire.record_key("markers", place, 0), "value": later}])
    copies = Rescue(config, rescue, "markers")
    assert copies.has(queue, ONE) == ONE
    with pytest.raises(LaterCursorVersion):
        list(copies.messages(queue, 0, ONE[0]))
