"""Search for the rows on which a function of many rows fails."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

Call = Callable[[range], Exception | None]  #: calls the function with these rows; returns its exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """Result of :func:`bisect`.

    ``failing`` has the rows that did not pass, with the exception of the last call that had them. Ranges of
    several rows are left if the calls ran out. ``passed`` is True if the function has returned for any row.
    """

    failing: Sequence[tuple[range, Exception]]
    calls: int
    passed: bool


def bisect(count: int, error: Exception, call: Call, *, suspects: int = 0, max_calls: int) -> Bisection:
    """Finds the rows on which a function fails, after it has failed with ``error`` on ``count`` rows.

    Up to three rows are tried alone. If none of them passes, the function fails for reasons other than single
    rows, and the search ends: the result has ``passed=False``. Otherwise the function is called with halves,
    the largest first, until the failing rows are alone. The first ``suspects`` rows form a part of their own.
    ``max_calls`` and the calls of the result include the one that has failed.

    With ``passed=True``, each row is in exactly one call that returned, or in ``failing``.

    >>> def call(rows: range) -> Exception | None:
    ...     return ValueError("5 is bad") if 5 in rows else None
    >>> found = bisect(8, ValueError("5 is bad"), call, max_calls=20)
    >>> found.failing, found.calls, found.passed
    ([(range(5, 6), ValueError('5 is bad'))], 8, True)
    """
    if count == 1:
        return Bisection(failing=[(range(1), error)], calls=1, passed=False)
    failing: list[tuple[range, Exception]] = []
    calls, probed, passed = 1, set[int](), False
    for row in _probes(count):
        alone = range(row, row + 1)
        probed.add(row)
        why, calls = call(alone), calls + 1
        if why is None:
            passed = True
            break
        failing.append((alone, why))
    if not passed:
        return Bisection(failing=failing, calls=calls, passed=False)
    pending = deque(_pieces(count, suspects, probed))
    while pending:
        piece = pending.popleft()
        if calls >= max_calls:
            failing.append((piece, error))
            continue
        why, calls = call(piece), calls + 1
        if why is None:
            continue
        error = why
        if len(piece) == 1:
            failing.append((piece, why))
        else:
            pending += _halves(piece)
    return Bisection(failing=failing, calls=calls, passed=True)


def _probes(count: int) -> Sequence[int]:
    """Returns the rows to try alone. Suspects are first, so they are tried last."""
    return list(dict.fromkeys((count - 1, count // 2, 0)))


def _pieces(count: int, suspects: int, without: set[int]) -> list[range]:
    cut = suspects if 0 < suspects < count else count // 2
    cuts = sorted({0, cut, count, *without, *(row + 1 for row in without)})
    pieces = [range(start, stop) for start, stop in pairwise(cuts) if start not in without]
    return sorted(pieces, key=len, reverse=True)


def _halves(piece: range) -> tuple[range, range]:
    middle = len(piece) // 2
    return piece[:middle], piece[middle:]
