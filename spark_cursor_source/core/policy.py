"""Redelivery policy of a subscription: delivery limit, backoff, dead letters, TTL and breaker."""

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
    """Backoff with a delay for each delivery. The last delay repeats; an empty list means no delay.

    >>> backoff = StepBackoff(delays_ms=(1_000, 10_000))
    >>> [backoff.delay_ms(count) for count in (1, 2, 3, 4)]
    [1000, 10000, 10000, 10000]
    """

    delays_ms: tuple[int, ...]  #: delay after the first, second, ... delivery (option backoff, a list)

    def __post_init__(self) -> None:
        if any(delay < 0 for delay in self.delays_ms):
            raise InvalidOption(
                "backoff", self.delays_ms, "a delay must not be negative", "give delays of 0s or more"
            )

    def delay_ms(self, delivery_count: int) -> int:
        """Returns the delay in ms after the ``delivery_count``-th delivery, if it was not acknowledged."""
        _check_count(delivery_count)
        if not self.delays_ms:
            return 0
        return self.delays_ms[min(delivery_count, len(self.delays_ms)) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialBackoff:
    """Backoff that grows by a factor with each delivery, up to a maximum.

    >>> backoff = ExponentialBackoff(min_ms=1_000, max_ms=60_000, multiplier=4)
    >>> [backoff.delay_ms(count) for count in (1, 2, 3, 4, 10_000)]
    [1000, 4000, 16000, 60000, 60000]
    """

    min_ms: int  #: delay after the first delivery (option backoff.min)
    max_ms: int  #: upper limit of the delay (option backoff.max)
    multiplier: float  #: ratio of each delay to the one before (option backoff.multiplier)

    def __post_init__(self) -> None:
        if not 0 <= self.min_ms <= self.max_ms:
            raise InvalidOption("backoff.min", self.min_ms, "min is above max", "give 0s <= min <= max")
        if not 1.0 <= self.multiplier <= 1_000_000:  # also refuses nan
            raise InvalidOption(
                "backoff.multiplier", self.multiplier, "not in 1 to 1000000", "use a value such as 2"
            )

    def delay_ms(self, delivery_count: int) -> int:
        """Returns the delay in ms after the ``delivery_count``-th delivery, if it was not acknowledged."""
        _check_count(delivery_count)
        try:
            return int(min(self.min_ms * float(self.multiplier) ** (delivery_count - 1), self.max_ms))
        except OverflowError:
            return self.max_ms if self.min_ms else 0


Backoff = StepBackoff | ExponentialBackoff
NO_BACKOFF = StepBackoff(delays_ms=())


class ExpiredTo(StrEnum):
    """Treatment of messages that are older than the TTL."""

    DROP = "drop"  #: end them and count them
    DEAD_LETTERS = "dead-letters"  #: copy them to the dead-letter topic first


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryPolicy:
    """Rules for the redelivery of one subscription's messages, and for the end of their redelivery.

    >>> policy = RedeliveryPolicy(max_deliveries=3)
    >>> policy.exhausted(2), policy.exhausted(3), RedeliveryPolicy(max_deliveries=None).exhausted(10**9)
    (False, True, False)
    >>> policy.dead_letter_topic_for(topic="orders", subscription="billing")
    'orders-billing-DLQ'
    """

    #: number of deliveries before a message becomes a dead letter; None: no limit (option maxDeliveries)
    max_deliveries: int | None = DEFAULT_MAX_DELIVERIES
    #: delay before a message that was not acknowledged is redelivered (option backoff)
    backoff: Backoff = NO_BACKOFF
    #: largest fraction by which jitter shortens a delay, 0.0 to 1.0 (option backoffJitter)
    jitter: float = 0.0
    #: template of the name of the dead-letter topic (option deadLetterTopic)
    dead_letter_topic: str = DEFAULT_DEAD_LETTER_TOPIC
    #: age at which messages expire, in ms of broker time; None: never (option messageTtl)
    message_ttl_ms: int | None = None
    #: treatment of expired messages (option expiredTo)
    expired_to: ExpiredTo = ExpiredTo.DROP
    #: rate of dead letters that opens the breaker, and its pause (options breaker, breakerPause)
    breaker: BreakerPolicy = NO_BREAKER

    def __post_init__(self) -> None:
        if self.max_deliveries is not None and self.max_deliveries < 1:
            raise InvalidOption("maxDeliveries", self.max_deliveries, "below 1", "give None for no limit")
        if not 0.0 <= self.jitter <= 1.0:  # also refuses nan
            raise InvalidOption("backoffJitter", self.jitter, "not in 0 to 1", "use a value such as 0.2")
        if self.message_ttl_ms is not None and self.message_ttl_ms < LEAST_LOOK_MS:
            raise InvalidOption("messageTtl", self.message_ttl_ms, "below a second", "give None for no limit")

    def exhausted(self, delivery_count: int) -> bool:
        """True if the delivery with this count is the last one that a message gets."""
        return self.max_deliveries is not None and delivery_count >= self.max_deliveries

    def wait_ms(self, delivery_count: int, *, of: bytes) -> int:
        """Returns the delay in ms after that delivery of the messages that ``of`` names.

        The jitter is not random, so that a repeated batch of the tracker makes the same decisions. It depends
        only on ``of`` and the delivery count, and differs from one name or delivery to the next.

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
        """Returns the dead-letter topic of this queue topic and subscription."""
        return dead_letter_topic(self.dead_letter_topic, topic=topic, subscription=subscription)


def _check_count(delivery_count: int) -> None:
    if delivery_count < 1:
        raise ValueError(f"a delivery count starts at 1, not {delivery_count}")
