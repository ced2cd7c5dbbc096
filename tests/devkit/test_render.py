"""What the demo shows, as text."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import Available, CursorSnapshot, Lease, Totals
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.devkit.demo.history import Reason
from spark_cursor_source.devkit.demo.progress import Progress, Row, rows_of
from spark_cursor_source.devkit.demo.render import line, table, verdict_view
from spark_cursor_source.devkit.demo.screen import PlainScreen
from spark_cursor_source.devkit.demo.verdict import Check, Verdict

CURSOR = CursorSnapshot(
    cell=Cell(subscription="s", topic="t", partition=0),
    read_position=10,
    next_marker=9,
    leases=((Lease(9_000, 1, "run"), OffsetSet.of((3, 4))),),
    available=((Available(2, False), OffsetSet.of((6, 8))),),
    totals=Totals(delivered=14, acked=6, redelivered=3, dead_lettered=1),
)
PROGRESS = Progress(
    elapsed_s=12.4, consumer="running", tracker="running", rows=rows_of({1: 1_500, 0: 20}, {0: CURSOR})
)


def shown(what: RenderableType) -> str:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(what)
    return console.export_text()


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_row_says_what_the_cursor_says() -> None:
    assert Row.of(0, 20, CURSOR) == Row(
        partition=0,
        produced=20,
        delivered=14,
        acked=6,
        leased=1,
        waiting=2,
        redelivered=4,  # 14 deliveries of the 10 messages below the read position
        dead_lettered=1,
        mark_delete=2,
        holes=2,
    )


def test_a_partition_is_done_when_mark_delete_is_at_its_end() -> None:
    finished = CursorSnapshot(cell=CURSOR.cell, read_position=20, next_marker=9)
    assert Row.of(0, 20, finished).done
    assert not Row.of(0, 21, finished).done
    assert not Row.of(0, 20, None).done


def test_the_table_has_a_row_for_each_partition_and_their_sums_in_80_columns() -> None:
    text = shown(table(PROGRESS))
    assert "12 s · consumer running · tracker running" in text
    rows = words(text)
    assert ["0", "20", "14", "6", "1", "2", "4", "1", "2", "2"] in rows
    assert ["1", "1,500", "0", "0", "0", "0", "0", "0", "-1", "0"] in rows
    assert ["all", "1,520", "14", "6", "1", "2", "4", "1", "2"] in rows
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


def test_a_line_has_the_sums() -> None:
    assert line(PROGRESS) == (
        " 12 s · produced 1,520 · delivered 14 · acked 6 · leased 1 · waiting 2 · redelivered 4"
        " · dead-lettered 1 · holes 2"
    )


def test_a_verdict_names_each_check_and_what_it_comes_to() -> None:
    fine, bad = Check(passed=True, text="none lost"), Check(passed=False, text="2 holes")
    passed = Verdict(checks=(fine,), again={Reason.FAILED: 2}, deliveries=9)
    failed = Verdict(checks=(fine, bad), again={}, deliveries=9)
    assert shown(verdict_view(passed)).splitlines() == [
        "Verdict, from the topics: PASSED",
        "  ok   none lost",
    ]
    assert shown(verdict_view(failed)).splitlines() == [
        "Verdict, from the topics: FAILED",
        "  ok   none lost",
        "  FAIL 2 holes",
    ]


def test_where_there_is_no_terminal_lines_come_seldom_and_the_table_once() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    with PlainScreen(console, every_s=2.0) as screen:
        for tenth in range(30):
            rows = rows_of({0: 20 + tenth}, {0: CURSOR})
            screen.show(Progress(elapsed_s=tenth / 10, consumer="running", tracker="running", rows=rows))
        screen.show(Progress(elapsed_s=9.0, consumer="running", tracker="running", rows=rows))
    text = console.export_text()
    assert text.count("produced 20 ·") == 1
    assert sum("s · produced" in shown_line for shown_line in text.splitlines()) == 2
    assert text.count("parti-") == 1
