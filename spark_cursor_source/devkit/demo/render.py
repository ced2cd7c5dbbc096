"""The demo's table and verdict as rich renderables. This module does not print."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spark_cursor_source.devkit.demo.progress import Progress
from spark_cursor_source.devkit.demo.scenario import Scenario
from spark_cursor_source.devkit.demo.verdict import Check, Verdict

_COLUMNS = {
    "produced": "produced",
    "delivered": "delivered",
    "acked": "acked",
    "leased": "leased",
    "waiting": "waiting",
    "redelivered": "redelivered",
    "dead_lettered": "dead-lettered",
}
_BROKEN = {"delivered": "deliv-\nered", "redelivered": "redeliv-\nered", "dead_lettered": "dead-\nlettered"}


def title(scenario: Scenario) -> str:
    """Returns a one-line description of the demo."""
    return (
        f"{scenario.messages:,} messages in {scenario.partitions} partitions, "
        f"leases of {scenario.lease_s} s, at most {scenario.max_deliveries} deliveries"
    )


def table(progress: Progress) -> Table:
    """Returns the table of partitions with sums. Finished rows are green, rows in progress yellow."""
    shown = Table(
        title=f"{progress.elapsed_s:3.0f} s · consumer {progress.consumer} · tracker {progress.tracker}",
        title_justify="left",
        show_footer=True,
        box=box.SIMPLE_HEAD,
        padding=0,  # keeps the table within 80 columns
    )
    shown.add_column("parti-\ntion", footer="all", justify="right")
    for name, header in _COLUMNS.items():
        shown.add_column(
            _BROKEN.get(name, header), footer=f"{progress.total(name):,}", justify="right", min_width=7
        )
    shown.add_column("mark-\ndelete", justify="right")
    shown.add_column("holes", footer=f"{progress.total('holes'):,}", justify="right")
    for row in progress.rows:
        style = "green" if row.done else "yellow" if row.leased or row.waiting else ""
        figures = [f"{getattr(row, name):,}" for name in _COLUMNS]
        shown.add_row(
            str(row.partition), *figures, f"{row.mark_delete:,}", f"{row.holes:,}", style=style or None
        )
    return shown


def line(progress: Progress) -> str:
    """Returns the sums in one line, for output that is not a terminal."""
    figures = " · ".join(f"{header} {progress.total(name):,}" for name, header in _COLUMNS.items())
    return f"{progress.elapsed_s:3.0f} s · {figures} · holes {progress.total('holes'):,}"


def verdict_view(verdict: Verdict) -> RenderableType:
    """Returns the checks with their figures, and the overall result."""
    word = Text("PASSED", "bold green") if verdict.passed else Text("FAILED", "bold red")
    head = Text.assemble("Verdict, from the topics: ", word)
    return Group(head, *map(_check, verdict.checks))


def _check(check: Check) -> Text:
    mark = Text("  ok   ", "green") if check.passed else Text("  FAIL ", "red")
    return Text.assemble(mark, check.text)
