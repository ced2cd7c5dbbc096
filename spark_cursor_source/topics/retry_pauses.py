"""Pauses between the tries to write dead letters where that fails: each place has its own, and they grow."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from spark_cursor_source.core.cursor import CursorSnapshot, HeldLetters
from spark_cursor_source.core.marker import Withhold
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.tracker import DeadLetter
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.wire.marker import kept

log = logging.getLogger(__name__)

FIRST_PAUSE_MS = 2_000
LONGEST_PAUSE_MS = 600_000
_SHARE = 3  # what failed after a long wait is left alone for so many times that wait


class Place(NamedTuple):
    """What a trouble is about: a topic that is read, or a dead-letter topic that is written."""

    verb: str  #: read or write
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """Dead letters that could not be written, and when they are to be tried again."""

    decision: DeadLetter
    offsets: OffsetSet  #: of these messages
    why: str
    tries: int  #: how often they could not be written, this time included
    delay_ms: int  #: until the next try


def log_withheld(withheld: Iterable[Withheld]) -> None:
    """Tell of letters that are held, once for a reason and time of the next try of a subscription."""
    counts: Counter[tuple[str, str, str, int]] = Counter()
    for one in withheld:
        cell = one.decision.cell
        counts[cell.subscription, cell.topic, one.why, one.delay_ms // 1000] += len(one.offsets)
    for (subscription, topic, why, next_s), count in counts.items():
        log.error(
            "dead_letters_held subscription=%s topic=%s messages=%d next_try_s=%d: they are not in the "
            "dead-letter topic yet, because %s",
            subscription,
            topic,
            count,
            next_s,
            why,
        )


def withhold_marker(withheld: Withheld) -> Withhold:
    """The marker by which the tracker's state takes the letters back."""
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


def withholding(cursors: Iterable[CursorSnapshot], withheld: Iterable[Withheld]) -> list[CursorSnapshot]:
    """The cursors with the letters that are withheld: held, until the marker about them has been read."""
    found = {cursor.cell: cursor for cursor in cursors}
    for one in withheld:
        letter = one.decision
        held = HeldLetters(
            letter.delivery_count,
            letter.reason,
            letter.error,
            letter.last_delivery_ms or 0,
            kept(one.why),
            0,  # the broker's time of the marker is not known yet
            one.tries,
        )
        if letter.cell in found:
            found[letter.cell] = found[letter.cell].withholding(held, one.offsets)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Pause:
    why: str
    tries: int
    until: Deadline
    until_again: Deadline  #: for letters that failed before, whose time is kept with them


def pause_ms(tries: int, spent_ms: int = 0) -> int:
    """How long to wait after so many tries that failed, the last of which took ``spent_ms``.

    >>> [pause_ms(tries) for tries in (1, 2, 3, 7, 1_000)], pause_ms(1, spent_ms=5_000)
    ([2000, 4000, 8000, 128000, 600000], 15000)
    """
    growing_ms = FIRST_PAUSE_MS << min(tries - 1, 20)
    return int(min(max(growing_ms, _SHARE * spent_ms), LONGEST_PAUSE_MS))


class RetryPauses:
    """The places where the last try failed. While a pause lasts nothing new is tried there.

    What failed before comes when its own time is over, or when the operator says so: it is tried again
    unless a try has just failed.
    """

    def __init__(self) -> None:
        self._pauses: dict[Place, _Pause] = {}

    def why_not_yet(self, place: Place, letter: DeadLetter) -> str | None:
        """Why not to try a letter now; None where it is to be tried."""
        pause = self._pauses.get(place)
        if pause is None or (pause.until_again if letter.tries else pause.until).over:
            return None
        return pause.why

    def is_known(self, place: Place) -> bool:
        """Whether the last try there failed."""
        return place in self._pauses

    def failed(self, place: Place, why: str, *, tries_before: int, spent_ms: int) -> None:
        """Remember a failure; ``tries_before`` is how often letters of the place had failed.

        ``spent_ms`` is how long the try took, for which it held up everything else.
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
        """Forget the failure."""
        if self._pauses.pop(place, None) is not None:
            log.warning("dead_letters_resumed topic=%s: what was held can be written again", place.topic)

    def withheld(
        self, decision: DeadLetter, offsets: OffsetSet, why: str, place: Place | None, *, tried: bool
    ) -> Withheld:
        """The letters with the time of their next try: that of their place, or else their own."""
        tries = max(decision.tries + tried, 1)
        pause = None if place is None else self._pauses.get(place)
        if pause is None:
            delay_ms = pause_ms(tries)
        else:
            until = pause.until if tried or not decision.tries else pause.until_again
            delay_ms = int(until.left_s() * 1000)
        return Withheld(decision=decision, offsets=offsets, why=why, tries=tries, delay_ms=delay_ms)
