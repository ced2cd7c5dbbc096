"""A batch of the tracker that is repeated under other policies, and a checkpoint that is too old by time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from spark_cursor_source.core.marker import End, Hello, Start
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.errors import TrackerOwnedByAnother, TrackerProgressLost
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.spark.tracker_source import MarkerStreamReader
from spark_cursor_source.spark.tracker_state import TrackerProcessor
from spark_cursor_source.topics.tracker_progress import read_progress
from spark_cursor_source.tracker.fold import MarkerFold
from spark_cursor_source.tracker.planner import TrackerPlanner
from spark_cursor_source.tracker.rows import Decided, FoldedRow, cursor_row, reset_row, tick_row
from spark_cursor_source.wire import marker as marker_wire
from tests.e2e.micro_batches import MicroBatches
from tests.e2e.plain_app import TrackerBatches
from tests.kafka.control_plane import (
    PARTITIONS,
    Control,
    cell_of,
    cursor_of,
    offsets,
    outbox_of,
    produce,
    read_all,
)


class DiedError(Exception):
    """The tracker's process is gone."""


def options_of(control: Control, checkpoint: Path, **given: object) -> TrackerOptions:
    return TrackerOptions.parse(control.options(checkpointLocation=str(checkpoint), **given))


def run(options: TrackerOptions, *, step: Callable[[str], None], until: Callable[[], bool]) -> None:
    reader = MarkerStreamReader(options)
    batches = TrackerBatches(options, bug=False)
    checkpoint = Path(options.checkpoint_location)
    try:
        MicroBatches(reader, checkpoint, batches.work, step=step).run(0.02, until=until)
    finally:
        reader.stop()


@pytest.mark.broker
def test_a_batch_that_is_repeated_under_a_lower_limit_loses_no_message(
    control: Control, topics: ClusterAdmin, tmp_path: Path
) -> None:
    # limit 5: a lease at count 3 runs out, it is announced, the tracker dies | limit 3: a dead letter
    topics.create({control.queue: (1, {})})
    produce(control.config, control.queue, [{"value": b"poor"}])
    cell = cell_of(control.queue)
    markers = [
        Hello(cell=cell, run_id="run", position=0),
        Start(cell=cell, offsets=offsets((0, 1)), lease_ms=100, delivery_count=3, run_id="run"),
    ]
    home = cell.control_partition(PARTITIONS)
    records = [{"key": cell.key, "value": marker_wire.encode(one), "partition": home} for one in markers]
    produce(control.config, control.markers, records)

    def die_before_the_commit(step: str) -> None:
        # The broker says that a transaction is committed before readers of committed records see it.
        if step == "log the commit" and read_all(control.config, control.redeliveries, committed=False):
            raise DiedError

    with pytest.raises(DiedError):
        run(options_of(control, tmp_path, maxDeliveries=5), step=die_before_the_commit, until=lambda: False)
    dead = f"{control.queue}-{cell.subscription}-DLQ"
    committed: list[str] = []

    def is_done() -> bool:
        return len(committed) > 5 or bool(topics.existing([dead]) and read_all(control.config, dead))

    # The cell is looked at in each batch: a message that was forgotten does not die in any of them.
    def go_on(step: str) -> None:
        if step == "log the commit":
            committed.append(step)
            another = Hello(cell=cell, run_id="run", position=0)
            produce(control.config, control.markers, [record_of(another)])

    run(options_of(control, tmp_path, maxDeliveries=3), step=go_on, until=is_done)
    assert topics.existing([dead])
    assert [letter.value() for letter in read_all(control.config, dead)] == [b"poor"]


def record_of(marker: Hello) -> dict[str, object]:
    home = marker.cell.control_partition(PARTITIONS)
    return {"key": marker.cell.key, "value": marker_wire.encode(marker), "partition": home}


@pytest.mark.broker
def test_a_tracker_that_took_over_with_nothing_to_do_owns_the_progress_and_goes_on_with_its_checkpoint(
    control: Control, topics: ClusterAdmin, tmp_path: Path
) -> None:
    # the checkpoint of tracker a is lost | b takes over, and finishes a batch without markers | b again
    control.write(Hello(cell=cell_of(control.queue), run_id="run", position=0))
    run_batches(options_of(control, tmp_path / "a"), 1)
    of_a = read_progress(topics, control.markers)
    run_batches(options_of(control, tmp_path / "b", takeOver=True), 1)
    of_b = read_progress(topics, control.markers)
    assert of_b.query_id not in (None, of_a.query_id)
    assert of_b.next_markers == of_a.next_markers
    control.write(Hello(cell=cell_of(control.queue), run_id="run", position=0))
    run_batches(options_of(control, tmp_path / "b"), 1)
    now = read_progress(topics, control.markers)
    assert (now.query_id, now.batch_id) == (of_b.query_id, 1)


def run_batches(options: TrackerOptions, count: int) -> None:
    """Run a tracker until it has finished so many more batches."""
    steps: list[str] = []
    run(options, step=steps.append, until=lambda: steps.count("log the commit") == count)


@pytest.mark.broker
def test_a_checkpoint_of_before_a_batch_that_only_time_has_made_is_refused(
    control: Control, tmp_path: Path
) -> None:
    options = options_of(control, tmp_path)
    with closing(TrackerPlanner(options)) as planner:
        start = planner.latest_offset(planner.initial_offset())
        assert planner.latest_offset(start) is start
    outbox = outbox_of(control, start.tracker_id, policy_for=options.policy_for)
    outbox.open(take_over=False)
    outbox.carry_out(7, decisions=[], cursors=[], next_markers=start.next, identity="later.policies")
    outbox.close()
    with (
        closing(TrackerPlanner(options)) as planner,
        pytest.raises(TrackerOwnedByAnother, match="has continued"),
    ):
        planner.latest_offset(start)


@pytest.mark.broker
def test_a_checkpoint_whose_progress_the_brokers_have_lost_is_refused(
    control: Control, tmp_path: Path
) -> None:
    # markers 0, 1 | a batch up to 1 is committed | the checkpoint has a batch up to 2
    cell = cell_of(control.queue)
    control.write(*[Hello(cell=cell, run_id="run", position=0)] * 2)
    options, home = options_of(control, tmp_path), cell.control_partition(PARTITIONS)
    with closing(TrackerPlanner(options)) as planner:
        start = planner.latest_offset(planner.initial_offset())
    assert start.next[home] == 2
    outbox = outbox_of(control, start.tracker_id, policy_for=options.policy_for)
    outbox.open(take_over=False)
    outbox.carry_out(
        0, decisions=[], cursors=[], next_markers={**start.next, home: 1}, identity="before.policies"
    )
    outbox.close()
    with closing(TrackerPlanner(options)) as planner, pytest.raises(TrackerProgressLost, match="takeOver"):
        planner.latest_offset(start)


def test_a_state_that_is_reset_holds_what_the_cursors_say_and_nothing_else() -> None:
    state = TwsTester(TrackerProcessor(lambda name: RedeliveryPolicy()))
    old, kept = cell_of("orders"), cell_of("orders", 1)
    fold = MarkerFold(0, "m", None)
    for at, cell in enumerate((old, kept)):
        fold.add(at, 1_000, cell.key, marker_wire.encode(Hello(cell=cell, run_id="run", position=0)))
    state.test(0, rows_of(*fold.rows()))
    state.test(0, rows_of(reset_row(0), cursor_row(cursor_of(kept, 40))))
    fold = MarkerFold(0, "m", None)
    for at, cell in enumerate((old, kept), start=50):
        fold.add(at, 1_000, cell.key, marker_wire.encode(End(cell=cell, offsets=offsets((7, 8)))))
    decided = state.test(0, rows_of(*fold.rows(), tick_row(0, 60, None, "tracker", "")))
    assert [row.sequence for row in decided if row.kind == Decided.CURSOR] == [52], "only of the second cell"


def rows_of(*rows: FoldedRow) -> list[Row]:
    return [Row(**row._asdict()) for row in rows]
