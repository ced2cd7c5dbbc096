"""Limits that an operator sets for a subscription at run time, and the budget of a rate."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

MAX_RATE = 1e9  #: largest limit of messages per second
LEAST_RATE = 0.001  #: smallest limit of messages per second
MAX_OUTSTANDING = 2**53  #: largest limit of outstanding messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a subscription.

    >>> Limits(rate=100, max_outstanding=10).share(1, of=4)
    Limits(rate=25.0, max_outstanding=3)
    """

    rate: float | None = None  #: started messages per second, redeliveries included; None: no limit
    max_outstanding: int | None = None  #: outstanding messages; None: no limit

    @property
    def why_invalid(self) -> str | None:
        """Why no subscription can have these limits; None: one can."""
        if self.rate is not None and not LEAST_RATE <= self.rate <= MAX_RATE:
            return f"the rate is not between {LEAST_RATE} and {MAX_RATE:,.0f} messages per second"
        if self.max_outstanding is not None and not 1 <= self.max_outstanding <= MAX_OUTSTANDING:
            return f"the number of outstanding messages is not between 1 and {MAX_OUTSTANDING}"
        return None

    def share(self, held: int, *, of: int) -> Limits:
        """Returns the part of a consumer that reads ``held`` of the partitions of the subscription.

        The limit of outstanding messages is rounded up, so that each consumer may deliver one message.
        """
        if self == NO_LIMITS or held >= of:
            return self
        held = max(held, 1)
        most = self.max_outstanding
        return Limits(
            rate=None if self.rate is None else self.rate * held / of,
            max_outstanding=None if most is None else -(-most * held // of),
        )

    def words(self) -> str:
        """Returns the limits in words.

        >>> Limits(rate=0.5).words(), Limits(rate=100.0, max_outstanding=7).words(), NO_LIMITS.words()
        ('0.5 messages per second', '100 messages per second and 7 outstanding messages', 'no limits')
        """
        told = [] if self.rate is None else [f"{self.rate:,.12g} messages per second"]
        told += [] if self.max_outstanding is None else [f"{self.max_outstanding:,} outstanding messages"]
        return " and ".join(told) or "no limits"

    def told_of(self, name: str) -> str:
        """Returns a sentence about a subscription with these limits, without its full stop.

        >>> Limits(max_outstanding=7).told_of("billing"), NO_LIMITS.told_of("billing")
        ('billing is limited to 7 outstanding messages', 'billing has no limits')
        """
        return f"{name} has no limits" if self == NO_LIMITS else f"{name} is limited to {self.words()}"


NO_LIMITS = Limits()


def strictest(limits: Iterable[Limits]) -> Limits:
    """Returns the smallest rate and the smallest number of outstanding messages.

    >>> strictest([Limits(rate=5), Limits(rate=7, max_outstanding=3), NO_LIMITS])
    Limits(rate=5, max_outstanding=3)
    """
    limits = list(limits)
    return Limits(
        rate=min((one.rate for one in limits if one.rate is not None), default=None),
        max_outstanding=min(
            (one.max_outstanding for one in limits if one.max_outstanding is not None), default=None
        ),
    )


class RateBudget:
    """Number of messages that a rate allows now: a token bucket that is told the time.

    What was not used is kept for one second, or up to the number of ``wanted`` messages. If more time passes
    between two looks, as while a batch is processed, it is kept for that time, but for ``longest_s`` at most.
    The budget of a new limit is empty.

    >>> budget = RateBudget()
    >>> [budget.look(10, now_s=at) for at in (0.0, 0.25, 100.0)]
    [0, 2, 997]
    >>> budget.took(997)
    >>> [budget.look(10, now_s=at) for at in (100.25, 100.75, 101.5, 102.25)]
    [3, 8, 10, 10]
    >>> [budget.look(10, now_s=at, wanted=25) for at in (103.0, 103.75, 104.5, 105.25)]
    [17, 25, 25, 25]
    """

    def __init__(self, *, longest_s: float = math.inf) -> None:
        self._longest_s = longest_s
        self._tokens = 0.0
        self._looked_s: float | None = None  # None: there is no limit

    def look(self, rate: float | None, *, now_s: float, wanted: int = 1) -> int | None:
        """Returns the number of messages that may start now; None: any number. ``now_s`` is monotonic."""
        if rate is None:
            self._looked_s = None
            return None
        if self._looked_s is None:
            self._tokens, self._looked_s = 0.0, now_s
        passed_s = now_s - self._looked_s
        kept_s = min(max(passed_s, 1.0), self._longest_s)
        self._tokens = min(self._tokens + passed_s * rate, max(wanted, kept_s * rate))
        self._looked_s = now_s
        return max(0, int(self._tokens))

    def took(self, messages: int) -> None:
        """Subtracts started messages from the budget."""
        self._tokens -= messages

    def wait_s(self, rate: float, *, wanted: int = 1) -> float:
        """Returns the time until so many messages may start, as of the last look."""
        return max(0.0, (wanted - self._tokens) / rate)
