"""Records that no broker has sent."""

from __future__ import annotations

import pytest
from confluent_kafka import Message


def new_record(offset: int) -> Message:
    """A record of partition 0 of topic 't'."""
    return Message(topic="t", partition=0, offset=offset)


def _are_possible() -> bool:
    try:
        new_record(0)
    except TypeError:
        return False
    return True


needs_records = pytest.mark.skipif(
    not _are_possible(), reason="only clients make messages of this version of confluent-kafka"
)
