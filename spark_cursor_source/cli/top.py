"""``cursorq top``: a live table of all subscriptions with their rates."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.output import (
    age,
    console,
    print_line,
    print_table,
    repeated,
    table_of,
    until_interrupted,
)
from spark_cursor_source.core.counted import counted

if TYPE_CHECKING:
    from rich.table import Table

    from spark_cursor_source.core.stats import Stats, SubscriptionStats

RATES = {"acked": "acked", "again": "redelivered", "dead": "dead_lettered"}
COLUMNS = (
    "topic",
    "subscription",
    "oldest",
    "backlog",
    "leased",
    "avail",
    "delayed",
    "blocked",
    "held",
    *(f"{name}/s" for name in RATES),
    "readers",
)


_WIDE = 118  # characters of a terminal that has room for all columns
_LESS = ("delayed", "blocked", "held", "readers")


class Round(NamedTuple):
    """One look at the subscriptions."""

    at_s: float  #: by the monotonic clock of this process
    stats: Stats


@connected
def top(
    cluster: Cluster,
    subscription: Annotated[str | None, typer.Option(metavar="NAME", help="default: all")] = None,
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="default: all")] = None,
    every: Annotated[str, typer.Option(metavar="TIME", help="time between two looks")] = "2s",
    rounds: Annotated[
        int | None, typer.Option("--rounds", "-n", metavar="N", min=1, help="end after N")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="print a line of JSON for each round")] = False,
) -> None:
    """Shows all subscriptions, live: those with the oldest unacked message first, until Ctrl-C.

    `acked/s`, `again/s` (redeliveries) and `dead/s` (dead letters) are rates since the look before. Without a
    terminal, each round is printed below the last one.
    """
    from spark_cursor_source.admin.stats import read_stats

    def looks() -> Iterator[tuple[Round | None, Round]]:
        before = None
        for number in repeated(every):
            found = read_stats(
                cluster.kafka,
                subscription=subscription,
                topic=topic,
                **cluster.names,
            )
            now = Round(time.monotonic(), found)
            yield before, now
            before = now
            if rounds is not None and number + 1 >= rounds:
                return

    with until_interrupted():
        if json:
            for before, now in looks():
                print_line([dict(zip(COLUMNS, row, strict=True)) for row in rows_of(before, now)])
        elif sys.stdout.isatty():
            _live(looks())
        else:
            for before, now in looks():
                print_table(COLUMNS, _shown(rows_of(before, now)))
                print(_summary(now), flush=True)


_Row = tuple[
    str, str, int | None, int | None, int, int, int, int, int, float | None, float | None, float | None, int
]


def rows_of(before: Round | None, now: Round) -> list[_Row]:
    """Returns a row for each subscription, the oldest message first; ``oldest`` is its age in ms."""
    earlier = (
        {} if before is None else {(one.topic, one.subscription): one for one in before.stats.subscriptions}
    )
    passed_s = 0.0 if before is None else now.at_s - before.at_s
    rows: list[_Row] = []
    for one in now.stats.subscriptions:
        acked, again, dead = _rates(earlier.get((one.topic, one.subscription)), one, passed_s)
        counts = [one.total(count) for count in ("leased", "available", "delayed", "blocked", "held")]
        leased, available, delayed, blocked, held = counts
        known = (one.topic, one.subscription, one.oldest_unacked_age_ms, one.backlog)
        states = (leased, available, delayed, blocked, held)
        rows.append((*known, *states, acked, again, dead, len(one.consumers)))
    return sorted(rows, key=lambda row: (-(row[2] or 0), row[0], row[1]))


def _rates(
    before: SubscriptionStats | None, now: SubscriptionStats, passed_s: float
) -> tuple[float | None, float | None, float | None]:
    if before is None or passed_s <= 0:
        return None, None, None
    acked, again, dead = (
        round(max(0, now.total(count) - before.total(count)) / passed_s, 1) for count in RATES.values()
    )
    return acked, again, dead


def _shown(rows: list[_Row]) -> list[tuple[object, ...]]:
    return [(*row[:2], age(row[2]), *row[3:]) for row in rows]


def fitting_table(rows: list[tuple[object, ...]], width: int) -> Table:
    """Returns the table with the columns that a terminal of this width has room for."""
    shown = [at for at, name in enumerate(COLUMNS) if width >= _WIDE or name not in _LESS]
    columns = [COLUMNS[at] for at in shown]
    return table_of(columns, [[row[at] for at in shown] for row in rows])


def _summary(now: Round) -> str:
    unread = now.stats.markers_unread
    line = counted(len(now.stats.subscriptions), "subscription")
    if unread is not None:
        line += f", {counted(unread, 'marker')} unread by the tracker"
    warnings = [str(one) for one in now.stats.weak_topics]
    for what, trouble in (("end", "end_trouble"), ("oldest", "oldest_trouble")):
        reasons = {one.topic: getattr(one, trouble) for one in now.stats.subscriptions}
        warnings += [f"{what} unknown: {why}" for why in reasons.values() if why is not None]
    return "\n".join([line, *(f"warning: {one}" for one in warnings)])


def _live(looks: Iterator[tuple[Round | None, Round]]) -> None:
    from rich.console import Group
    from rich.live import Live

    out = console()
    shown = Group()
    # A terminal shows the beginning of what is too long for it: the warnings come first.
    with Live(console=out, screen=True, auto_refresh=False) as live:
        for before, now in looks:
            table = fitting_table(_shown(rows_of(before, now)), out.width)
            shown = Group(_summary(now), "", table)
            live.update(shown, refresh=True)
    out.print(shown)  # after the last round: the screen of the rounds before is gone
