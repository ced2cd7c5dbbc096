"""The demo's messages and the handler's outcome of each, derived from the message number alone."""

from __future__ import annotations

import enum
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spark_cursor_source.core.outcome import Leave, Outcome, Reject, Release

QUEUE_TOPIC = "payments"
SUBSCRIPTION = "bookkeeping"
DEAD_LETTER_TOPIC = "payments-bookkeeping-DLQ"

UNREADABLE = "amount is not a number"
ACCOUNT_CLOSED = "account 4711 is closed"
SLOW_S = 0.02

_CUSTOMERS = 499


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Size and limits of a demo.

    >>> Scenario(messages=2_000).batch, Scenario(messages=2_000).expected(Fate.REJECTED)
    (200, 4)
    """

    messages: int = 20_000
    partitions: int = 8
    lease_s: int = 15
    max_deliveries: int = 4
    time_limit_s: float = 300.0  #: after this time the verdict is computed from the present state

    @property
    def batch(self) -> int:
        """Largest number of messages in a batch: about ten batches in total."""
        return max(self.messages // 10, 1)

    def expected(self, fate: Fate) -> int:
        """Returns the number of messages with this fate."""
        return sum(fate_of(number) is fate for number in range(self.messages))


class Fate(enum.Enum):
    """The handler's outcome of a message."""

    PLAIN = "acked at once"
    SLOW = "acked after a while"
    FAILS_ONCE = "an exception the first time"
    FAILS_ALWAYS = "an exception every time"
    RELEASED_ONCE = "given back the first time"
    LEFT_ONCE = "left to its lease the first time"
    REJECTED = "rejected"


_FATES = (  # (interval in messages, first number, fate)
    (1_000, 1, Fate.FAILS_ALWAYS),
    (500, 2, Fate.REJECTED),
    (100, 3, Fate.FAILS_ONCE),
    (200, 4, Fate.RELEASED_ONCE),
    (500, 5, Fate.LEFT_ONCE),
    (40, 6, Fate.SLOW),
)


def fate_of(number: int) -> Fate:
    """Returns the fate of a message.

    >>> fate_of(0), fate_of(1_003), fate_of(1_001)
    (<Fate.PLAIN: 'acked at once'>, <Fate.FAILS_ONCE: 'an exception the first time'>, \
<Fate.FAILS_ALWAYS: 'an exception every time'>)
    """
    return next((fate for every, first, fate in _FATES if number % every == first), Fate.PLAIN)


def messages(scenario: Scenario) -> Iterator[tuple[bytes, bytes]]:
    """Yields (key, value) of each message: payments of some customers."""
    for number in range(scenario.messages):
        yield key_of(number), value_of(number)


def key_of(number: int) -> bytes:
    """Returns the customer of a payment as key."""
    return f"customer-{number % _CUSTOMERS}".encode()


def value_of(number: int) -> bytes:
    """Returns the payment as JSON."""
    return json.dumps({"number": number, "amount": 100 + number % 900}).encode()


def number_of(value: bytes) -> int:
    """Returns the number in a payment.

    >>> number_of(value_of(17))
    17
    """
    return int(json.loads(value)["number"])


def handle(message: Any) -> Outcome:
    """The demo's handler, called on executors for each message."""
    fate = fate_of(number_of(message.value))
    first_time = message.delivery_count == 1
    match fate:
        case Fate.SLOW:
            time.sleep(SLOW_S)
        case Fate.FAILS_ALWAYS:
            raise LookupError(ACCOUNT_CLOSED)
        case Fate.FAILS_ONCE if first_time:
            raise ConnectionError("the books cannot be reached")
        case Fate.RELEASED_ONCE if first_time:
            return Release(delay="2s", reason="the day is not closed yet")
        case Fate.LEFT_ONCE if first_time:
            return Leave()
        case Fate.REJECTED:
            return Reject(UNREADABLE)
    return True
