"""When a consumer that hands out messages one by one lets a suspect go with nothing beside it.

The rule of :mod:`admission` where there are no batches: what is held is waited for, then the suspect goes,
and what becomes of it is waited for. Each of the two takes a turn of some seconds at most. Then the others
go, for as long as the suspect kept them waiting.
"""

from __future__ import annotations

from enum import Enum, auto

TURN_MS = 5_000  #: a handler that takes longer goes on, and others go beside it


class Turn(Enum):
    """What a consumer does next."""

    OTHERS = auto()  #: deliver anything but suspects
    WAIT = auto()  #: deliver nothing yet
    SUSPECT = auto()  #: deliver the suspect


class SuspectTurns:
    """Told the time, and what there is; one consumer's.

    >>> turns = SuspectTurns(lease_ms=60_000)
    >>> [turns.next(ms, suspect=True, held=held, others=True).name for ms, held in ((0, True), (900, False))]
    ['WAIT', 'SUSPECT']
    >>> [turns.next(ms, suspect=True, held=ms < 1_000, others=True).name for ms in (950, 1_000, 1_990, 2_100)]
    ['WAIT', 'OTHERS', 'OTHERS', 'SUSPECT']
    """

    def __init__(self, *, lease_ms: int) -> None:
        self._lease_ms, self._turn_ms = lease_ms, min(lease_ms, TURN_MS)
        self._began_ms: int | None = None  # the suspect's turn
        self._went_ms: int | None = None  # the suspect, whose outcome is waited for
        self._waited_ms = 0  # for held messages, in earlier turns of this suspect
        self._others_until_ms = 0

    def next(self, now_ms: int, *, suspect: bool, held: bool, others: bool) -> Turn:
        """What to do now.

        ``suspect`` says whether one waits, ``held`` whether messages are leased and not settled, ``others``
        whether anything else went just now.
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
        # Nothing is held; or a lease's time was waited for what is, and it is not to wait for ever.
        self._went_ms, self._waited_ms = now_ms, 0
        return Turn.SUSPECT

    def _yield_to_others(self, now_ms: int) -> None:
        began_ms = now_ms if self._began_ms is None else self._began_ms
        self._others_until_ms = now_ms + (now_ms - began_ms)
        self._began_ms = self._went_ms = None
