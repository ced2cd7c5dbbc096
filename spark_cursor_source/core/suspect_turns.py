"""Turns of suspects in a consumer that delivers messages one by one.

The rule is that of :mod:`admission`, without batches. The consumer waits until leased messages are settled,
delivers the suspect alone, and waits until the suspect is settled. Each wait takes a few seconds at most.
Other messages are then delivered for as long as the suspect kept them waiting.
"""

from __future__ import annotations

from enum import Enum, auto

TURN_MS = 5_000  #: a handler that takes longer continues, and other messages are delivered beside it


class Turn(Enum):
    """Next action of a consumer."""

    OTHERS = auto()  #: deliver anything but suspects
    WAIT = auto()  #: deliver nothing yet
    SUSPECT = auto()  #: deliver the suspect


class SuspectTurns:
    """Turns of one consumer; the caller passes in the time and the waiting messages.

    >>> turns = SuspectTurns(lease_ms=60_000)
    >>> [turns.next(ms, suspect=True, held=held, others=True).name for ms, held in ((0, True), (900, False))]
    ['WAIT', 'SUSPECT']
    >>> [turns.next(ms, suspect=True, held=ms < 1_000, others=True).name for ms in (950, 1_000, 1_990, 2_100)]
    ['WAIT', 'OTHERS', 'OTHERS', 'SUSPECT']
    """

    def __init__(self, *, lease_ms: int) -> None:
        self._lease_ms, self._turn_ms = lease_ms, min(lease_ms, TURN_MS)
        self._began_ms: int | None = None  # start of the suspect's turn
        self._went_ms: int | None = None  # delivery of the suspect, while its outcome is pending
        self._waited_ms = 0  # time spent waiting in earlier turns of this suspect
        self._others_until_ms = 0

    def next(self, now_ms: int, *, suspect: bool, held: bool, others: bool) -> Turn:
        """Returns the next action.

        ``suspect`` is true if a suspect waits, ``held`` if messages are leased and not settled, and
        ``others`` if another message was delivered just now.
        """
        if self._went_ms is not None:
            if held and now_ms < self._went_ms + self._turn_ms:
                return Turn.WAIT
            self._yield_to_others(now_ms)
        if not suspect or (now_ms < self._others_until_ms and (others or held)):
            return Turn.OTHERS
        if self._began_ms is None:
            self._began_ms = now_ms
        if held and self._waited_ms + now_ms - self._began_ms < self._lease_ms:
            if now_ms < self._began_ms + self._turn_ms:
                return Turn.WAIT
            waited_ms = self._waited_ms + now_ms - self._began_ms
            self._yield_to_others(now_ms)
            self._waited_ms = waited_ms
            return Turn.OTHERS
        # No messages are leased, or the suspect has waited for a whole lease and must not wait forever.
        self._went_ms, self._waited_ms = now_ms, 0
        return Turn.SUSPECT

    def _yield_to_others(self, now_ms: int) -> None:
        began_ms = now_ms if self._began_ms is None else self._began_ms
        self._others_until_ms = now_ms + (now_ms - began_ms)
        self._began_ms = self._went_ms = None
