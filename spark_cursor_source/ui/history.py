"""Values of the last hour of each subscription, in a ring of fixed size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_cursor_source.core.stats import SubscriptionStats

SAMPLES = 360  #: an hour, with a sample every ten seconds
#: what a sample holds: monotonic ms, then gauges, then counters that only grow
_AT, _BACKLOG, _OUTSTANDING, _AGE, _IN, _OUT, _AGAIN, _DEAD = range(8)
_UNKNOWN = -1  # value of a sample that was taken while the end of a log could not be read
_RATE_MS = 60_000  #: window of the rates that the overview shows


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Messages per second over the last minute."""

    arrived: float | None  #: None: the end of a log is unknown
    acked: float
    redelivered: float
    dead: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Values of one quantity over time, oldest first."""

    title: str
    unit: str  #: ``messages``, ``ms`` or ``per second``
    seconds: Sequence[float]  #: age of each value, in seconds before the newest
    values: Sequence[float | None]  #: None: unknown

    @property
    def last(self) -> float | None:
        """Newest value; None: no values, or unknown."""
        return self.values[-1] if self.values else None

    @property
    def highest(self) -> float:
        """Highest known value; 0 if there is none."""
        return max((value for value in self.values if value is not None), default=0.0)


class History:
    """Ring of samples of each subscription. The caller serializes its calls."""

    def __init__(self) -> None:
        self._rings: dict[tuple[str, str], _Ring] = {}

    def take(self, aged: Iterable[tuple[SubscriptionStats, int | None]], *, monotonic_ms: int) -> None:
        """Adds a sample of each subscription with its oldest age, and forgets those that are gone."""
        rings: dict[tuple[str, str], _Ring] = {}
        for one, age_ms in aged:
            key = one.topic, one.subscription
            rings[key] = self._rings.get(key) or _Ring()
            rings[key].add(_sample(one, age_ms or 0, monotonic_ms))
        self._rings = rings

    def rates(self, topic: str, subscription: str) -> Rates | None:
        """Returns the rates of a subscription, or None with fewer than two samples."""
        ring = self._rings.get((topic, subscription))
        rows = None if ring is None else ring.rows()
        if rows is None or len(rows) < 2:
            return None
        acked, redelivered, dead = (_rate(rows, column) for column in (_OUT, _AGAIN, _DEAD))
        known = rows[rows[:, _IN] != _UNKNOWN]
        is_known = len(known) > 1 and known[-1, _AT] == rows[-1, _AT]
        arrived = _rate(known, _IN) if is_known else None
        return Rates(arrived=arrived, acked=acked, redelivered=redelivered, dead=dead)

    def curves(self, topic: str, subscription: str) -> tuple[Curve, ...]:
        """Returns the curves of a subscription: two gauges and four rates."""
        ring = self._rings.get((topic, subscription))
        if ring is None:
            return ()
        rows = ring.rows()
        ages = ((rows[-1, _AT] - rows[:, _AT]) / 1000).tolist()
        steps = np.maximum(np.diff(rows[:, _AT]), 1) / 1000
        gauges = [("Backlog", "messages", _BACKLOG), ("Oldest unacked", "ms", _AGE)]
        rates = [("In", _IN), ("Acked", _OUT), ("Redelivered", _AGAIN), ("Dead letters", _DEAD)]
        found = [
            Curve(title=title, unit=unit, seconds=ages, values=_known(rows[:, column], rows[:, column]))
            for title, unit, column in gauges
        ]
        found += [
            Curve(
                title=title,
                unit="per second",
                seconds=ages[1:],
                values=_known(
                    np.maximum(np.diff(rows[:, column]), 0) / steps,
                    np.minimum(rows[1:, column], rows[:-1, column]),
                ),
            )
            for title, column in rates
        ]
        return tuple(found)


class _Ring:
    def __init__(self) -> None:
        self._rows: npt.NDArray[np.int64] = np.zeros((SAMPLES, 8), np.int64)
        self._count = 0

    def add(self, row: Sequence[int]) -> None:
        self._rows[self._count % SAMPLES] = row
        self._count += 1

    def rows(self) -> npt.NDArray[np.int64]:
        """Returns the samples, oldest first."""
        if self._count <= SAMPLES:
            return self._rows[: self._count]
        return np.roll(self._rows, -(self._count % SAMPLES), axis=0)


def _known(values: npt.NDArray[Any], samples: npt.NDArray[np.int64]) -> list[float | None]:
    return [
        None if sample == _UNKNOWN else value
        for value, sample in zip(values.tolist(), samples.tolist(), strict=True)
    ]


def _rate(rows: npt.NDArray[np.int64], column: int) -> float:
    """Returns the growth of a counter per second, over the last minute or the last two samples."""
    last = rows[-1]
    first = rows[np.searchsorted(rows[:-1, _AT], last[_AT] - _RATE_MS).clip(max=len(rows) - 2)]
    seconds = max(1, int(last[_AT] - first[_AT])) / 1000
    return float(max(int(last[column] - first[column]), 0) / seconds)


def _sample(one: SubscriptionStats, age_ms: int, monotonic_ms: int) -> Sequence[int]:
    is_known = all(part.log_end is not None or part.end_trouble is None for part in one.partitions)
    return (
        monotonic_ms,
        (one.backlog or 0) if is_known else _UNKNOWN,
        one.total("outstanding"),
        age_ms,
        sum(part.log_end or 0 for part in one.partitions) if is_known else _UNKNOWN,
        one.total("acked"),
        one.total("redelivered"),
        one.total("dead_lettered"),
    )
