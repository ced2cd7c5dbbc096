"""What happens to a message that was not acknowledged: how often it comes back, when, and where it ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

from spark_cursor_source.core.breaker import NO_BREAKER, BreakerPolicy
from spark_cursor_source.core.names import DEFAULT_DEAD_LETTER_TOPIC, dead_letter_topic
from spark_cursor_source.core.ttl import LEAST_LOOK_MS
from spark_cursor_source.errors import InvalidOption

DEFAULT_MAX_DELIVERIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBackoff:
    """A delay for each delivery; the last one repeats, and no delays at all are no delay.

    >>> backoff = StepBackoff(delays_ms=(1_000, 10_000))
    >>> [backoff.delay_ms(count) for count in (1, 2, 3, 4)]
    [1000, 10000, 10000, 10000]
    """

    delays_ms: tuple[int, ...]  #: delay after the first, second, ... delivery (option backoff, a list)

    def __post_init__(self) -> None:
        if any(delay < 0 for delay in self.delays_ms):
            raise InvalidOption(
                "backoff", self.delays_ms, "a delay is not negative", "give delays of 0s or more"
            )

    def delay_ms(self, delivery_count: int) -> int:
        """How long a message waits after its ``delivery_count``-th delivery was not acknowledged."""
        _check_count(delivery_count)
        if not self.delays_ms:
            return 0
        return self.delays_ms[min(delivery_count, len(self.delays_ms)) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialBackoff:
    """A delay that grows by a factor with each delivery, up to a maximum.

    >>> backoff = ExponentialBackoff(min_ms=1_000, max_ms=60_000, multiplier=4)
    >>> [backoff.delay_ms(count) for count in (1, 2, 3, 4, 10_000)]
    [1000, 4000, 16000, 60000, 60000]
    """

    min_ms: int  #: delay after the first delivery (option backoff.min)
    max_ms: int  #: no delay is longer (option backoff.max)
    multiplier: float  #: each delay is this many times the one before (option backoff.multiplier)

    def __post_init__(self) -> None:
        if not 0 <= self.min_ms <= self.max_ms:
            raise InvalidOption("backoff.min", self.min_ms, "min is above max", "give 0s <= min <= max")
        if not 1.0 <= self.multiplier <= 1_000_000:  # also refuses nan
            raise InvalidOption("backoff.multiplier", self.multiplier, "not in 1 to 1000000", "give 2, say")

    def delay_ms(self, delivery_count: int) -> int:
        """How long a message waits after its ``delivery_count``-th delivery was not acknowledged."""
        _check_count(delivery_count)
        try:
            return int(min(self.min_ms * float(self.multiplier) ** (delivery_count - 1), self.max_ms))
        except OverflowError:
            return self.max_ms if self.min_ms else 0


Backoff = StepBackoff | ExponentialBackoff
NO_BACKOFF = StepBackoff(delays_ms=())


class ExpiredTo(StrEnum):
    """What becomes of messages that are older than the TTL."""

    DROP = "drop"  #: they end, and are counted
    DEAD_LETTERS = "dead-letters"  #: they are copied to the dead letters first


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryPolicy:
    """How the messages of one subscription come back, and when they stop to.

    >>> policy = RedeliveryPolicy(max_deliveries=3)
    >>> policy.exhausted(2), policy.exhausted(3), RedeliveryPolicy(max_deliveries=None).exhausted(10**9)
    (False, True, False)
    >>> policy.dead_letter_topic_for(topic="orders", subscription="billing")
    'orders-billing-DLQ'
    """

    #: deliveries a message gets before it is a dead letter, None for no limit (option maxDeliveries)
    max_deliveries: int | None = DEFAULT_MAX_DELIVERIES
    #: wait before a message that was not acknowledged comes back (option backoff)
    backoff: Backoff = NO_BACKOFF
    #: by which part of itself a wait may be shorter, 0.0 to 1.0 (option backoffJitter)
    jitter: float = 0.0
    #: template of the topic of the dead letters (option deadLetterTopic)
    dead_letter_topic: str = DEFAULT_DEAD_LETTER_TOPIC
    #: messages that are older expire, None for never (option messageTtl)
    message_ttl_ms: int | None = None
    #: what becomes of them (option expiredTo)
    expired_to: ExpiredTo = ExpiredTo.DROP
    #: how many dead letters are too many (options breaker, breakerPause)
    breaker: BreakerPolicy = NO_BREAKER

    def __post_init__(self) -> None:
        if self.max_deliveries is not None and self.max_deliveries < 1:
            raise InvalidOption("maxDeliveries", self.max_deliveries, "below 1", "give None for no limit")
        if not 0.0 <= self.jitter <= 1.0:  # also refuses nan
            raise InvalidOption("backoffJitter", self.jitter, "not in 0 to 1", "give 0.2, say")
        if self.message_ttl_ms is not None and self.message_ttl_ms < LEAST_LOOK_MS:
            raise InvalidOption("messageTtl", self.message_ttl_ms, "below a second", "give None for no limit")

    def exhausted(self, delivery_count: int) -> bool:
        """Whether the delivery of this count was the last one that a message gets."""
        return self.max_deliveries is not None and delivery_count >= self.max_deliveries

    def wait_ms(self, delivery_count: int, *, of: bytes) -> int:
        """How long to wait after that delivery of what ``of`` names.

        The jitter is no chance, so that a batch of the tracker that is repeated decides the same again: it
        depends on ``of`` alone, and differs from one name, and from one delivery, to the next.

        >>> policy = RedeliveryPolicy(backoff=StepBackoff(delays_ms=(60_000,)), jitter=0.5)
        >>> [policy.wait_ms(1, of=name) for name in (b"orders 17", b"orders 17", b"orders 18")]
        [58053, 58053, 51993]
        """
        delay_ms = self.backoff.delay_ms(delivery_count)
        if not self.jitter or not delay_ms:
            return delay_ms
        digest = blake2b(of + b" %d" % delivery_count, digest_size=4).digest()
        share = int.from_bytes(digest) / 2**32
        return int(delay_ms * (1.0 - self.jitter * share))

    def dead_letter_topic_for(self, *, topic: str, subscription: str) -> str:
        """Where the dead letters of this queue topic go."""
        return dead_letter_topic(self.dead_letter_topic, topic=topic, subscription=subscription)


def _check_count(delivery_count: int) -> None:
    if delivery_count < 1:
        raise ValueError(f"a delivery count starts at 1, not {delivery_count}")
