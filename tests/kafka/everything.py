"""A topic with everything that a log can hold: for readers that must not differ, and not fail."""

from __future__ import annotations

import random
import uuid
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.control_plane import transaction
from tests.kafka_version import KAFKA

NOW_MS = 1_700_000_000_000
KEYS = [None, b"", b"a", b"b", b"\x00\xff", b"k" * 300]
VALUES = [None, b"", b"v", b"\x00" * 7, b"w" * 5_000, b"x" * 700_000]
HEADERS: list[Any] = [
    None,
    None,
    [],
    [("trace", b"\x00")],
    [("a", None), ("a", b""), ("", b"empty name"), ("ünï", b"\xff")],
    [("deliverAt", b"%d" % (NOW_MS + 1_000))],
    [("deliverAt", b"%d" % (NOW_MS - 1_000)), ("more", b"1")],
    [("deliverAfter", b"10s")],
    [("deliverAfter", b"no duration")],
    [(f"h{number}", b"%d" % number) for number in range(40)],
]
TIMES = [NOW_MS, NOW_MS - 5_000, 0, 1, 253_402_300_799_999]


def records(seed: int, count: int) -> list[dict[str, Any]]:
    choose = random.Random(seed)
    weights = [10, 10, 50, 10, 5, 0.3]
    return [
        {
            "key": choose.choice(KEYS),
            "value": choose.choices(VALUES, weights)[0],
            "headers": choose.choice(HEADERS),
            "timestamp": choose.choice(TIMES),
        }
        for _ in range(count)
    ]


# (records, None: outside of a transaction, else whether it is committed)
PARTS = ((400, None), (30, False), (50, True), (5, False), (300, None), (1, False))
END = sum(count + (committed is not None) for count, committed in PARTS)  #: the offset after the last


def fill(config: dict[str, str]) -> str:
    """The name of a new topic with plain records, and transactions that were committed or aborted."""
    name = f"everything-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(config)
    any_time = {"message.timestamp.after.max.ms": str(2**63 - 1)} if KAFKA >= (3, 6) else {}
    admin.create_topics([NewTopic(name, 1, 1, config=any_time)])[name].result(timeout=60)
    producer = Producer(config)
    for seed, (count, committed) in enumerate(PARTS):
        some = records(seed, count)
        if committed is not None:
            transaction(config, [(name, one) for one in some], commit=committed)
            continue
        for one in some:
            producer.produce(name, partition=0, **one)
        assert producer.flush(60) == 0
    return name
