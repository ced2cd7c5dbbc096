"""Growing retry pauses after failed writes of dead letters, separate for each topic."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from spark_cursor_source.core.cursor import HeldLetters
from spark_cursor_source.core.marker import Withhold
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.tracker import DeadLetter
from spark_cursor_source.kafka.deadline import Deadline, growing_ms
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire.marker import kept

log = logging.getLogger(__name__)

FIRST_PAUSE_MS = 2_000
LONGEST_PAUSE_MS = 600_000
_SHARE = 3  # after a slow failed attempt, the pause is at least this many times its duration


class Place(NamedTuple):
    """Topic of a failure: a topic that is read, or a dead-letter topic that is written."""

    verb: str  #: read or write
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """Dead letters that could not be written, with their next retry."""

    decision: DeadLetter
    offsets: OffsetSet  #: offsets of the messages
    why: str
    tries: int  #: number of failed attempts, including this one
    delay_ms: int  #: delay until the next retry, in ms


def log_withheld(withheld: Iterable[Withheld]) -> None:
    """Log an error for held letters, once per subscription, topic, reason and retry time."""
    counts: Counter[tuple[str, str, str, int]] = Counter()
    for letters in withheld:
        cell = letters.decision.cell
        counts[cell.subscription, cell.topic, letters.why, letters.delay_ms // 1000] += len(letters.offsets)
    for (subscription, topic, why, next_s), count in counts.items():
        log.error(
            "Dead letters could not be written and are held until the next attempt. "
            "event=dead_letters_held subscription=%s topic=%s messages=%d next_try_s=%d why=%s",
            subscription,
            topic,
            count,
            next_s,
            why,
        )


def withhold_marker(withheld: Withheld) -> Withhold:
    """Return the marker that returns the letters to the tracker's state."""
    letter = withheld.decision
    return Withhold(
        cell=letter.cell,
        offsets=withheld.offsets,
        delivery_count=letter.delivery_count,
        reason=letter.reason,
        error=letter.error,
        last_delivery_ms=letter.last_delivery_ms or 0,
        trouble=withheld.why,
        tries=withheld.tries,
        delay_ms=withheld.delay_ms,
    )


def withholding(cursors: Mapping[bytes, bytes], withheld: Iterable[Withheld]) -> dict[bytes, bytes]:
    """Return the encoded cursors, by key of the cell, with the withheld letters added as held letters.

    They stay held until the tracker has read the withhold marker.
    """
    held_of: dict[bytes, list[tuple[HeldLetters, OffsetSet]]] = {}
    for letters in withheld:
        decision = letters.decision
        held = HeldLetters(
            decision.delivery_count,
            decision.reason,
            decision.error,
            decision.last_delivery_ms or 0,
            kept(letters.why),
            0,  # the broker time of the marker is not known yet
            letters.tries,
        )
        if decision.cell.key in cursors:
            held_of.setdefault(decision.cell.key, []).append((held, letters.offsets))
    changed = {
        key: cursor_wire.encode(cursor_wire.decode(cursors[key]).withholding(some))
        for key, some in held_of.items()
    }
    return {**cursors, **changed}


@dataclass(frozen=True, slots=True)
class _Pause:
    why: str
    tries: int
    until: Deadline
    until_again: Deadline  #: for letters that failed before and keep their own retry time


def pause_ms(tries: int, spent_ms: int = 0) -> int:
    """Return the pause (ms) after ``tries`` failed attempts, of which the last one took ``spent_ms``.

    >>> [pause_ms(tries) for tries in (1, 2, 3, 7, 1_000)], pause_ms(1, spent_ms=5_000)
    ([2000, 4000, 8000, 128000, 600000], 15000)
    """
    growing = growing_ms(tries, first_ms=FIRST_PAUSE_MS, longest_ms=LONGEST_PAUSE_MS)
    return min(max(growing, _SHARE * spent_ms), LONGEST_PAUSE_MS)


class RetryPauses:
    """Places where the last attempt failed. During a pause no new letter is tried there.

    A letter that failed before is retried at its own retry time, or on request of the operator, unless
    another attempt has just failed.
    """

    def __init__(self) -> None:
        self._pauses: dict[Place, _Pause] = {}

    def why_not_yet(self, place: Place, letter: DeadLetter) -> str | None:
        """Return the reason not to try a letter now, or None if it can be tried."""
        pause = self._pauses.get(place)
        if pause is None or (pause.until_again if letter.tries else pause.until).over:
            return None
        return pause.why

    def is_known(self, place: Place) -> bool:
        """True if the last attempt at this place failed."""
        return place in self._pauses

    def failed(self, place: Place, why: str, *, tries_before: int, spent_ms: int) -> None:
        """Record a failure. ``tries_before`` is the number of earlier failures of letters of this place.

        ``spent_ms`` is the duration of the attempt, which blocks all other work.
        """
        known = self._pauses.get(place)
        tries = max(tries_before, known.tries if known is not None else 0) + 1
        self._pauses[place] = _Pause(
            why,
            tries,
            Deadline.after_ms(pause_ms(tries, spent_ms)),
            Deadline.after_ms(pause_ms(1, spent_ms)),
        )

    def succeeded(self, place: Place) -> None:
        """Remove the recorded failure."""
        if self._pauses.pop(place, None) is not None:
            log.warning(
                "Held dead letters can be written again. event=dead_letters_resumed topic=%s", place.topic
            )

    def withheld(
        self, decision: DeadLetter, offsets: OffsetSet, why: str, place: Place | None, *, tried: bool
    ) -> Withheld:
        """Return the letters with their next retry time: the one of their place, or else their own."""
        tries = max(decision.tries + tried, 1)
        pause = None if place is None else self._pauses.get(place)
        if pause is None:
            delay_ms = pause_ms(tries)
        else:
            until = pause.until if tried or not decision.tries else pause.until_again
            delay_ms = int(until.left_s() * 1000)
        return Withheld(decision=decision, offsets=offsets, why=why, tries=tries, delay_ms=delay_ms)
