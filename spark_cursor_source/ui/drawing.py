"""Geometry of the inline drawings: the strips of the hole map, and the curves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from spark_cursor_source.admin.partition_map import MapCell, PartitionMap
from spark_cursor_source.ui.history import Curve

CELLS = 120  #: cells of a strip
HEIGHT = 26  #: of a strip, in pixels
_UNREAD_SHARE = 0.25  #: unread messages take at most this share of a strip
_LEAST = 3.0  #: height in pixels of the smallest share of a state
GRID = 600  #: a range of at most this many messages is shown message by message


class Block(NamedTuple):
    """Rectangle of a strip: one state in some cells. Positions along the strip are percents."""

    state: str
    x: float
    width: float
    y: float
    height: float


class Column(NamedTuple):
    """Adjacent cells of equal shares: a target of clicks with its blocks."""

    first: int
    end: int
    x: float
    width: float
    blocks: tuple[Block, ...]
    title: str


class Strip(NamedTuple):
    """Drawing of a partition, or of a range of it."""

    columns: tuple[Column, ...]
    border: float | None  #: position in percent of the read position, if the unread part is shortened


def strip_of(one: PartitionMap, first: int | None = None, end: int | None = None) -> Strip:
    """Returns the strip of a map, or of a part of it.

    A long unread part of a whole map is shortened, so that the outstanding messages stay visible.
    """
    if first is not None or end is not None:
        return Strip(tuple(_columns(one.cells(CELLS, first=first, end=end), 0.0, 100.0)), None)
    read = max(0, one.read_position - one.first)
    unread = max(0, one.end - one.read_position)
    share = unread / max(1, read + unread)
    if not read or share <= _UNREAD_SHARE:
        return Strip(tuple(_columns(one.cells(CELLS), 0.0, 100.0)), None)
    border = 100.0 * (1 - _UNREAD_SHARE)
    worked = one.cells(int(CELLS * (1 - _UNREAD_SHARE)), end=one.read_position)
    rest = one.cells(1, first=one.read_position)
    columns = [*_columns(worked, 0.0, border), *_columns(rest, border, 100.0 - border)]
    return Strip(tuple(columns), border)


def _columns(cells: Sequence[MapCell], x: float, width: float) -> Iterator[Column]:
    step = width / max(1, len(cells))
    start = 0
    for at in range(1, len(cells) + 1):
        if at < len(cells) and _pure(cells[at]) is not None and _pure(cells[at]) == _pure(cells[start]):
            continue
        counts = [sum(of) for of in zip(*(cell.counts for cell in cells[start:at]), strict=True)]
        whole = MapCell(first=cells[start].first, end=cells[at - 1].end, counts=tuple(counts))
        yield _column(whole, x + step * start, step * (at - start))
        start = at


def _pure(cell: MapCell) -> str | None:
    return cell.present[0][0] if len(cell.present) == 1 else None


def _column(cell: MapCell, x: float, width: float) -> Column:
    present = cell.present
    total = max(1, cell.end - cell.first)
    heights = [max(_LEAST, HEIGHT * count / total) for _, count in present]
    # The largest share gives what the smallest ones need to be seen.
    heights[heights.index(max(heights))] -= sum(heights) - HEIGHT
    blocks, y = [], 0.0
    for (state, _), height in zip(present, heights, strict=True):
        blocks.append(Block(state, round(x, 3), round(width, 3), round(y, 2), round(height, 2)))
        y += height
    told = ", ".join(f"{count:,} {state}" for state, count in present)
    title = f"offsets {cell.first:,} to {cell.end - 1:,}: {told}"
    return Column(cell.first, cell.end, round(x, 3), round(width, 3), tuple(blocks), title)


WIDTH, TALL = 280, 64  #: of a curve, in units of its view box
_LEAST_S = 10.0  # time that a curve covers at least
_LEAST_SPANS = 24  # of a chart with bars


class Drawn(NamedTuple):
    """Curve as the paths of an SVG."""

    title: str
    unit: str
    last: float | None
    highest: float
    line: str
    area: str
    span_ms: float  #: time that the curve covers


def drawn(curve: Curve) -> Drawn:
    """Returns the paths of a curve. The right edge is now, the top is the highest value rounded up.

    Where values are unknown, the line has a gap.
    """
    span = max([_LEAST_S, *curve.seconds])
    top = nice(curve.highest)
    pieces: list[list[tuple[float, float]]] = [[]]
    for age, value in zip(curve.seconds, curve.values, strict=True):
        if value is not None:
            pieces[-1].append((WIDTH * (1 - age / span), TALL - (TALL - 4) * value / top))
        elif pieces[-1]:
            pieces.append([])
    lines = [(points, _line(points)) for points in pieces if points]
    line = " ".join(one for _, one in lines)
    area = " ".join(
        f"{one} L{points[-1][0]:.1f},{TALL} L{points[0][0]:.1f},{TALL} Z" for points, one in lines
    )
    return Drawn(curve.title, curve.unit, curve.last, curve.highest, line, area, span * 1000)


def _line(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{'L' if at else 'M'}{x:.1f},{y:.1f}" for at, (x, y) in enumerate(points))


class Bar(NamedTuple):
    """One span of time, in units of the view box of its chart."""

    x: float
    width: float
    y: float
    height: float
    total: int  #: events of the span
    start_ms: int


class Bars(NamedTuple):
    """Chart of counts over time."""

    bars: tuple[Bar, ...]
    first_ms: int
    end_ms: int
    span_ms: int
    highest: int


OverTime = Sequence[tuple[int, int]]


def bars_of(
    over_time: Iterable[OverTime], span_ms: int, *, between: Bars | None = None, tall: float = TALL
) -> Bars | None:
    """Returns the chart of the sum of counts over time; None: there are none.

    The chart begins and ends with another one if ``between`` is given.
    """
    sums: Counter[int] = Counter()
    for counts in over_time:
        for start_ms, count in counts:
            sums[start_ms] += count
    if not sums:
        return None
    end_ms = max(sums) + span_ms if between is None else between.end_ms
    # The bars of few spans are not as wide as the chart.
    first_ms = min(min(sums), end_ms - _LEAST_SPANS * span_ms) if between is None else between.first_ms
    highest, step = max(sums.values()), WIDTH * span_ms / (end_ms - first_ms)
    bars = []
    for start_ms, total in sorted(sums.items()):
        height = max(2.0, (tall - 4) * total / highest)
        x = step * ((start_ms - first_ms) // span_ms)
        top, wide = round(tall - height, 2), round(step * 0.84, 2)
        bars.append(Bar(round(x, 2), wide, top, round(height, 2), total, start_ms))
    return Bars(tuple(bars), first_ms, end_ms, span_ms, highest)


def nice(number: float) -> float:
    """Returns the next of 1, 2, 5 times a power of ten.

    >>> nice(0), nice(3.2), nice(1_200)
    (1.0, 5.0, 2000.0)
    """
    if number <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(number))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= number)
