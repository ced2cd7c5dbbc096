"""The tracker's state in Spark, row by row and without a JVM."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import Delete, End, EndUpTo, Hello, KeepAlive, Marker, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.interop import lease_table_wire as table_wire
from spark_cursor_source.interop import markers_wire as message_wire
from spark_cursor_source.interop.lease_table import START, MessageMarkers
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.spark.tracker import TrackerBatch
from spark_cursor_source.spark.tracker_state import TrackerProcessor
from spark_cursor_source.tracker.alerts import UnmatchedAcksLog
from spark_cursor_source.tracker.fold import MarkerFold
from spark_cursor_source.tracker.rows import Decided, Folded
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import marker as marker_wire
from tests.logged import events

CELL = Cell(subscription="mailer", topic="q", partition=0)
SOME = OffsetSet.of((0, 3))
HELLO = Hello(cell=CELL, run_id="run", position=0)


class State:
    """The state of one markers partition."""

    def __init__(self) -> None:
        self._tester = TwsTester(TrackerProcessor(lambda subscription: RedeliveryPolicy()))
        self._end = 0

    def batch(self, *markers: Marker, cursors: tuple[CursorSnapshot, ...] = ()) -> dict[str, list[Row]]:
        """What is decided, by its kind."""
        rows = [self.row(Folded.CURSOR, cursor_wire.encode(cursor), -1) for cursor in cursors]
        for marker in markers:
            rows.append(self.row(Folded.MARKER, marker_wire.encode(marker), self._end))
            self._end += 1
        return self.rows(*rows)

    def rows(self, *given: Row) -> dict[str, list[Row]]:
        """The same of a batch of any rows."""
        rows = [*given, self.row(Folded.TICK, b"tracker", self._end)]
        found: dict[str, list[Row]] = {}
        for row in self._tester.test(0, rows):
            found.setdefault(row.kind, []).append(row)
        return found

    @staticmethod
    def row(kind: Folded, body: bytes, sequence: int) -> Row:
        return Row(markers_partition=0, sequence=sequence, at_ms=1_000, kind=kind.value, body=body)


def cells(rows: list[Row]) -> list[Cell]:
    return [Cell.from_key(row.cell) for row in rows]


def test_a_marker_about_a_cell_that_is_not_there_writes_and_deletes_nothing() -> None:
    state = State()
    decided = state.batch(End(cell=CELL, offsets=SOME))
    assert decided.keys() & {Decided.CURSOR, Decided.DELETED} == set()


def test_a_cell_that_was_there_is_deleted_and_named_whole() -> None:
    state = State()
    assert cells(state.batch(HELLO)[Decided.CURSOR]) == [CELL]
    assert cells(state.batch(Delete(cell=CELL))[Decided.DELETED]) == [CELL]
    assert Decided.DELETED not in state.batch(Delete(cell=CELL))
    assert Decided.DELETED not in state.batch(HELLO, Delete(cell=CELL)), "there was none before the batch"


def test_a_cell_that_is_deleted_as_a_tracker_is_rebuilt_does_not_stay_in_the_cursors() -> None:
    cursor = CursorSnapshot(cell=CELL, read_position=9, next_marker=0)
    assert cells(State().batch(Delete(cell=CELL), cursors=(cursor,))[Decided.DELETED]) == [CELL]


def test_all_that_is_known_is_written_again_to_a_cursors_topic_that_was_made_anew() -> None:
    state = State()
    other = Cell(subscription="s", topic="q", partition=0)
    state.batch(HELLO, Hello(cell=other, run_id="run", position=7))
    state.rows(message_row())
    decided = state.rows(state.row(Folded.REWRITE, b"", -3))
    assert set(cells(decided[Decided.CURSOR])) == {CELL, other}
    assert table_wire.decode(decided[Decided.LEASE_TABLE][0].body).offsets.tolist() == [40]
    assert len(decided[Decided.REWRITTEN]) == 1


def message_row() -> Row:
    """A Start of kafka-mq-go's."""
    markers = MessageMarkers.of([(2, 1_000, START, 0, 40, 60_000)])
    return State.row(Folded.MESSAGES, message_wire.encode(markers), 2)


def test_a_cell_whose_key_cannot_be_read_back_is_quarantined() -> None:
    cell = Cell(subscription="mailer", topic="orders,", partition=0)
    fold = MarkerFold(0, "markers", None)
    fold.add(0, 1_000, cell.key, marker_wire.encode(End(cell=cell, offsets=SOME)))
    ((kind, body),) = [(row.kind, row.body) for row in fold.rows()]
    assert kind == Folded.QUARANTINED
    assert b"'orders,' is no name" in body


def test_what_is_acked_where_no_cell_is_is_counted_by_subscription_and_topic() -> None:
    state = State()
    other = Cell(subscription="mailer", topic="q", partition=77)
    of_query = KeepAlive(cell=CELL, offsets=SOME, lease_ms=1, run_id="run")
    of_operator = EndUpTo(cell=CELL, position=0)  # the note of a redrive
    decided = state.batch(End(cell=CELL, offsets=SOME), End(cell=other, offsets=SOME), of_query, of_operator)
    assert [(row.sequence, row.body) for row in decided[Decided.NO_CELL]] == [(6, b"mailer,q")]
    start = Start(cell=CELL, offsets=SOME, lease_ms=60_000, delivery_count=1, run_id="run")
    assert Decided.NO_CELL not in state.batch(HELLO, start, End(cell=CELL, offsets=OffsetSet.of((0, 10**9))))


def test_acks_beyond_the_read_position_are_unknown_ends() -> None:
    state = State()
    start = Start(cell=CELL, offsets=SOME, lease_ms=60_000, delivery_count=1, run_id="run")
    beyond = OffsetSet.of((2, 3), (10**9, 10**9 + 4))
    (row,) = state.batch(HELLO, start, End(cell=CELL, offsets=beyond))[Decided.CURSOR]
    totals = cursor_wire.decode(row.body).totals
    assert (totals.acked, totals.unknown_ends) == (1, 4)


def test_acks_of_nothing_are_told_once_in_a_while_for_each_subscription(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = UnmatchedAcksLog()

    def told(*counts: Any) -> list[str]:
        caplog.clear()
        for subscription, topic, messages in counts:
            log.add(subscription, topic, messages=messages)
        log.tell()
        assert {record.levelno for record in caplog.records} <= {logging.WARNING}
        return events(caplog.records)

    assert told(("bilingg", "orders", 3), ("bilingg", "orders", 4)) == [
        "acks_of_nothing subscription=bilingg topic=orders messages=7"
    ]
    assert told(("bilingg", "orders", 1)) == []
    assert told(("audit", "ordres", 1)) == ["acks_of_nothing subscription=audit topic=ordres messages=1"]


def test_what_carries_batches_out_can_be_sent_to_where_they_are() -> None:
    options = TrackerOptions.parse({"kafka.bootstrap.servers": "b:9092", "checkpointLocation": "cp"})
    there = pickle.loads(pickle.dumps(TrackerBatch(options)))
    there.close()
