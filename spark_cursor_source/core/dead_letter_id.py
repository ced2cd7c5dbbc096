"""Identity of a dead letter: its message and its subscription."""

from __future__ import annotations

from hashlib import blake2b


def letter_id(
    *,
    topic: str,
    partition: int,
    offset: int,
    subscription: str,
    original_ms: int | None,
    last_delivery_ms: int | None = None,
    generation_ms: int | None = None,
) -> int:
    """Returns a number that all copies of one dead letter of one message and one subscription share.

    A tracker that dies between its copies and its commit writes a dead letter a second time. The message
    timestamp is part of the identity, because a recreated queue topic has other messages at the same offsets.
    So is the time of the last delivery, because a message that was queued again can be given up again. If it
    is not known, as of a message that expired, ``generation_ms`` takes its place: broker time of the command
    that brought ended messages back.

    >>> one = {"topic": "orders", "partition": 0, "offset": 7, "subscription": "billing"}
    >>> letter_id(**one, original_ms=5) == letter_id(**one, original_ms=5) != letter_id(**one, original_ms=6)
    True
    """
    facts: tuple[object, ...] = (topic, partition, offset, subscription, original_ms)
    if last_delivery_ms is not None:
        facts = (*facts, last_delivery_ms)
    elif generation_ms is not None:
        facts = (*facts, "generation", generation_ms)
    text = repr(facts)
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=12).digest())
