"""Copies that no broker confirms, and messages that a broker denies."""

from __future__ import annotations

import pytest

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import CopiesNotDurable
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.copies import MessageCopier, still_there
from tests.conftest import CreateTopic
from tests.kafka.behind import deny_once
from tests.kafka.control_plane import produce


def test_a_copy_that_nobody_confirms_in_time_is_an_error() -> None:
    copies = MessageCopier({"bootstrap.servers": "127.0.0.1:9"}, patience_ms=300)
    copies.add("orders", 0, key=b"k", value=b"v", headers=[])
    with pytest.raises(CopiesNotDurable):
        copies.flush()
    copies.discard()


@pytest.mark.broker
@pytest.mark.parametrize("below", [0, 1])
def test_messages_that_one_broker_does_not_know_yet_are_still_there(
    config: dict[str, str],
    topics: ClusterAdmin,
    create_topic: CreateTopic,
    monkeypatch: pytest.MonkeyPatch,
    below: int,
) -> None:
    topic = create_topic(2)
    produce(config, topic, [{"value": b"v", "partition": 1}])
    deny_once(monkeypatch, topic, below=below)
    wanted = {1: OffsetSet.of((0, 1))}
    assert still_there(topics, topic, wanted) == wanted
