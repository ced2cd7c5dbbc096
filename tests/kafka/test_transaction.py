"""A transactional producer whose brokers go away."""

from __future__ import annotations

import time
import uuid

import pytest

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.transaction import Record, TransactionalProducer, Uncertain
from tests.conftest import READY_S, CreateTopic

pytestmark = pytest.mark.broker


def test_a_producer_that_has_lost_its_only_broker_is_given_up_for_one_that_finds_it(
    config: dict[str, str], create_topic: CreateTopic
) -> None:
    # A lone broker that was fenced for a moment may be lost to a client. Here another one takes its place.
    topic, deadline = create_topic(), Deadline.after_ms(120_000)
    record = Record(topic, 0, None, b"value")
    with EmbeddedKafka(properties={"auto.create.topics.enable": False}, ready_timeout_s=READY_S) as former:
        at_former = {"bootstrap.servers": former.bootstrap_servers}
        ClusterAdmin(at_former).create({topic: (1, {})})
        lost = TransactionalProducer(at_former | {"log_level": "0"}, uuid.uuid4().hex)
        lost.open(deadline)
        assert lost.commit([record], [], deadline)
    lost._config |= config
    began = time.monotonic()
    with pytest.raises(Uncertain, match="only a new producer"):
        lost.commit([record], [], deadline)
    assert time.monotonic() - began < 20  # about 4 s; 30 s without the look
    assert not lost.is_open
