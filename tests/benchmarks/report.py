"""Figures of the benchmarks: one table with ratios, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

_MORE_IS_BETTER = frozenset({"/s", "up"})


class Median(float):
    """Median of several runs, which are kept for the spread.

    >>> found = Median.of([3.0, 1.0, 2.5])
    >>> found, found.runs, found.spread
    (2.5, (1.0, 2.5, 3.0), 0.8)
    """

    runs: tuple[float, ...]

    @classmethod
    def of(cls, runs: Iterable[float]) -> Median:
        """The median of these runs."""
        ordered = tuple(sorted(runs))
        made = cls(median(ordered))
        made.runs = ordered
        return made

    @property
    def spread(self) -> float:
        """The range of the runs as a share of the median."""
        return round((self.runs[-1] - self.runs[0]) / self, 3) if self else 0.0

    def of_count(self, count: float) -> Median:
        """The rates at which runs of these seconds do ``count`` things."""
        return Median.of(count / run for run in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number, and where there is one, its peer's of the same run."""

    what: str
    value: float
    unit: str = "s"  #: ``s``, ``ms``, ``/s``, ``MiB``, ``B``, ``%`` of a core, or ``up``: a count of queries
    peer: float | None = None
    peer_is: str = ""
    goal: float | None = None  #: of the ratio if there is a peer, else of the value

    @property
    def ratio(self) -> float | None:
        """How many times better this library is than the peer.

        >>> Figure(what="read", value=2.0, peer=3.0).ratio
        1.5
        >>> Figure(what="read", value=200.0, unit="/s", peer=400.0).ratio
        0.5
        """
        if not self.peer or not self.value:
            return None
        return self.value / self.peer if self.unit in _MORE_IS_BETTER else self.peer / self.value


def rate(count: int, seconds: float) -> float:
    """Messages a second, with the spread of the seconds."""
    return seconds.of_count(count) if isinstance(seconds, Median) else count / seconds


def shown(value: float | None, unit: str) -> str:
    """The number with its unit.

    >>> [shown(0.1234, "s"), shown(123456.0, "/s"), shown(0.5, "ms"), shown(0.4, "%"), shown(7, "")]
    ['0.12 s', '123,456/s', '0.50 ms', '0.4 %', '7']
    """
    if value is None:
        return ""
    digits = 0 if unit in ("/s", "", "B", "MiB") or value >= 100 else 1 if unit == "%" or value >= 10 else 2
    return f"{value:,.{digits}f}{'' if unit in ('/s', '') else ' '}{unit}"


def print_report(found: Mapping[str, Sequence[Figure]], *, runs: int) -> None:
    """One table of all figures."""
    columns = ("", "here", "spread", "peer", "", "ratio", "goal")
    table = Table(*columns, title=f"medians of {runs} runs; a ratio above 1 is better than the peer")
    for name, figures in found.items():
        table.add_section()
        table.add_row(f"[bold]{name}[/bold]")
        for one in figures:
            spread = f"{one.value.spread:.0%}" if isinstance(one.value, Median) else ""
            ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
            goal = shown(one.goal, one.unit if one.peer is None else "")
            if one.goal is not None and one.peer is not None:
                goal = f"{one.goal:.2f}"
            peer = shown(one.peer, one.unit)
            table.add_row(one.what, shown(one.value, one.unit), spread, peer, one.peer_is, ratio, goal)
    Console(width=160).print(table)


def to_json(found: Mapping[str, Sequence[Figure]], *, runs: int) -> str:
    """The same figures for a program."""

    def one(figure: Figure) -> dict[str, object]:
        spread = figure.value.runs if isinstance(figure.value, Median) else None
        return asdict(figure) | {"value": float(figure.value), "ratio": figure.ratio, "runs": spread}

    benchmarks = {name: [one(figure) for figure in figures] for name, figures in found.items()}
    return json.dumps({"runs": runs, "benchmarks": benchmarks}, indent=2)
