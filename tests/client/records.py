"""Records that no broker has sent."""

from __future__ import annotations

import pytest
from confluent_kafka import Message


def new_record(offset: int) -> Message:
    """A record of partition 0 of topic 't'. Skips the test if only a client of Kafka can make one."""
    try:
        return Message(topic="t", partition=0, offset=offset)
    except TypeError:
        pytest.skip("this version of confluent-kafka cannot make messages")
