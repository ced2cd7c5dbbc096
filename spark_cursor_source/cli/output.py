"""Output of the verbs: tables, JSON, ages, and questions on a terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from spark_cursor_source._features import require_library
from spark_cursor_source.core.duration import parse_duration
from spark_cursor_source.wire.instant_text import instant_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_T = TypeVar("_T")
_SHORT = 8  # characters of a text that is never wrapped
_PIPED_WIDTH = 10_000  # nothing is cut where no person looks


def print_json(value: Any) -> None:
    """Prints a value as JSON: a list or an object in several lines."""
    print(json.dumps(value, indent=2, default=str))


def console(*, error: bool = False) -> Console:
    """Returns a console: with colours on a terminal, and without colours and without a width elsewhere."""
    require_library("rich", what="cursorq")
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else _PIPED_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints rows below the names of their columns; numbers are aligned to the right."""
    out = console()
    with out.capture() as text:
        out.print(table_of(columns, [list(row) for row in rows]))
    for line in text.get().splitlines():
        print(line.rstrip())


def table_of(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Returns a table without lines. Long texts wrap where the width is small; numbers are never cut."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for at, name in enumerate(columns):
        cells = [row[at] for row in rows]
        is_number = bool(rows) and all(isinstance(one, int | float | None) for one in cells)
        width = max(len(one) for one in (name, *map(_cell, cells)))
        wraps = width > _SHORT and not is_number
        table.add_column(
            name,
            justify="right" if is_number else "left",
            no_wrap=not wraps,
            overflow="fold",
            min_width=_SHORT if wraps else width,
        )
    for row in rows:
        table.add_row(*(Text(_cell(one)) for one in row))
    return table


def _cell(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:,.1f}"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else plain(str(cell))


def plain(text: str) -> str:
    """Returns text of another program without control characters, which could move a terminal's cursor.

    >>> plain("a\\x1b[2Jb\\n")
    'a\\\\x1b[2Jb\\\\n'
    """
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def age(ms: int | None) -> str:
    """Returns a span of time in one or two units, at most days.

    >>> [age(ms) for ms in (None, 350, 4_000, 150_000, 9_000_000, 200_000_000)]
    ['-', '0s', '4s', '2m30s', '2h30m', '2d7h']
    """
    if ms is None:
        return "-"
    seconds = max(0, ms) // 1000
    for (unit, size), (smaller, less) in (
        (("d", 86_400), ("h", 3_600)),
        (("h", 3_600), ("m", 60)),
        (("m", 60), ("s", 1)),
    ):
        if seconds >= size:
            rest = seconds % size // less
            return f"{seconds // size}{unit}" + (f"{rest}{smaller}" if rest else "")
    return f"{seconds}s"


def instant(ms: int | None) -> str:
    """Returns a time in UTC.

    >>> instant(1_795_248_000_123), instant(None)
    ('2026-11-21T08:00:00.123Z', '-')
    """
    return "-" if ms is None else instant_text(ms)


def repeated(every: str | None) -> Iterator[int]:
    """Yields round numbers, with a pause between two; a single round if ``every`` is None."""
    pause_s = None if every is None else parse_duration(every) / 1000
    if pause_s == 0:
        raise typer.BadParameter(f"'{every}' leaves no time between two rounds")
    yield 0
    for number in count(1) if pause_s is not None else ():
        time.sleep(pause_s or 0)
        yield number


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Ends the block at Ctrl-C, which is how a user ends a verb that follows."""
    with suppress(KeyboardInterrupt):
        yield


def short_time(ms: int | None) -> str:
    """Returns a time in UTC without its year and time zone.

    >>> short_time(1_795_248_000_123)
    '11-21 08:00:00.123'
    """
    return "-" if ms is None else instant(ms)[5:-1].replace("T", " ")


def print_line(value: Any) -> None:
    """Prints a value as one line of JSON, at once."""
    print(json.dumps(value, default=str), flush=True)


def with_progress(items: Iterable[_T], total: int | None, what: str) -> Iterable[_T]:
    """Returns the items, and shows on a terminal's stderr how many of them are done."""
    if not sys.stderr.isatty():
        return items
    from rich.progress import track

    return track(items, description=what, total=total, console=console(error=True), transient=True)


def agree(question: str, *, yes: bool) -> None:
    """Asks before an action; ``yes`` answers. Without a terminal, the action is done, as a script wants.

    Raises:
        typer.Abort: the answer is no.
    """
    if not yes and sys.stdin.isatty() and sys.stdout.isatty():
        typer.confirm(question, abort=True)
