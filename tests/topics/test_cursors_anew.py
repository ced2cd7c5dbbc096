"""A cursors topic that is made anew or grows under its tracker: no cursor is lost, and none comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import Delete, Hello, Marker, Start
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import TopicNotFound
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.tracker import Tracker
from tests.kafka.control_plane import PARTITIONS, Control, read_all
from tests.kafka.tracker_thread import options_of, running_tracker
from tests.tracker.spark_twin import SparkTwin
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

GROWN = 2 * PARTITIONS
Say = Callable[..., None]


@pytest.fixture
def say(control: Control) -> Iterator[Say]:
    with closing(MarkerSender(control.config, control.markers, PARTITIONS)) as sender:

        def send(*markers: Marker) -> None:
            sender.send(markers)
            sender.flush()

        yield send


def waits(control: Control, cell: Cell) -> bool:
    found = cursor(control, cell)
    return found is not None and len(found.waiting) == 3


def leased(cell: Cell, *, lease_ms: int = 600_000) -> list[Marker]:
    """A run has met the cell, and has been given three messages."""
    started = Start(
        cell=cell, offsets=OffsetSet.of((0, 3)), lease_ms=lease_ms, delivery_count=1, run_id="run"
    )
    return [Hello(cell=cell, run_id="run", position=0), started]


def cursor(control: Control, cell: Cell) -> CursorSnapshot | None:
    with closing(CursorTable(control.config, control.cursors)) as tail:
        tail.refresh()
        return tail.get(cell)


def has_leases(control: Control, *cells: Cell) -> bool:
    found = [cursor(control, cell) for cell in cells]
    return all(one is not None and len(one.leased) == 3 for one in found)


def make_anew(control: Control) -> None:
    """Delete the cursors topic, and create it again as whoever starts first does."""
    topics = ClusterAdmin(control.config)
    topics.delete(control.cursors)
    topics.ensure_cursors(control.cursors)


def test_all_cursors_are_written_to_a_cursors_topic_that_was_made_anew_while_no_tracker_ran(
    control: Control, say: Say, tmp_path: Path
) -> None:
    # three messages of each of two cells are leased | the topic is made anew | both cursors are there
    cells = [Cell(subscription=name, topic=control.queue, partition=0) for name in ("s", "t")]
    with SparkTwin(options_of(control, tmp_path)):
        say(*leased(cells[0]), *leased(cells[1]))
        wait_until(lambda: has_leases(control, *cells))
    make_anew(control)
    with SparkTwin(options_of(control, tmp_path)):
        wait_until(lambda: has_leases(control, *cells))


@pytest.mark.parametrize("kind", [SparkTwin, Tracker])
def test_a_tracker_that_runs_writes_all_cursors_to_a_cursors_topic_that_was_made_anew(
    control: Control, say: Say, tmp_path: Path, kind: type[SparkTwin | Tracker]
) -> None:
    # leased for 2 s | the cursors topic is made anew | the cursor is there, and the lease runs out
    cell = Cell(subscription="s", topic=control.queue, partition=0)
    with kind(options_of(control, tmp_path)) as tracker:
        say(*leased(cell, lease_ms=2_000))
        wait_until(lambda: bool(cursor(control, cell)))
        make_anew(control)
        wait_until(lambda: bool(tracker.failure) or waits(control, cell))
    if isinstance(tracker.failure, TopicNotFound):  # it has looked while there was none
        with SparkTwin(options_of(control, tmp_path)):
            wait_until(lambda: waits(control, cell))
    assert waits(control, cell)


def test_a_deleted_cursor_does_not_come_back_from_where_it_was_before_its_topic_grew(
    control: Control, say: Say, tmp_path: Path
) -> None:
    # written | the topic grows, so that the key belongs to another partition | deleted
    cells = (Cell(subscription=f"s{n}", topic=control.queue, partition=0) for n in range(100))
    cell = next(one for one in cells if one.control_partition(PARTITIONS) != one.control_partition(GROWN))
    with running_tracker(control, tmp_path):
        say(*leased(cell))
        wait_until(lambda: has_leases(control, cell))
    admin = AdminClient(control.config)
    admin.create_partitions([NewPartitions(control.cursors, GROWN)])[control.cursors].result(timeout=20)
    with running_tracker(control, tmp_path):
        say(Delete(cell=cell))
        wait_until(lambda: any(one.value() is None for one in read_all(control.config, control.cursors)))
    wait_until(lambda: cursor(control, cell) is None)  # each partition shows the transaction in its own time
