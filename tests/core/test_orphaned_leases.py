"""What a run may ack for the runs that died before it, where the source acks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spark_cursor_source.core.batch import SourceOffset
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import Available, CursorSnapshot, Lease
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.replay import OrphanedLeases, orphaned_leases
from spark_cursor_source.core.tracker import Redeliver

CELL = Cell(subscription="s", topic="t", partition=0)


def cursor(
    *, leased: tuple[int, int] = (0, 0), count: int = 1, available: tuple[int, int] = (0, 0)
) -> CursorSnapshot:
    held, waiting = OffsetSet.of(leased), OffsetSet.of(available)
    return CursorSnapshot(
        cell=CELL,
        read_position=100,
        next_marker=1,
        leases=((Lease(60_000, count, "dead"), held),) if held else (),
        available=((Available(count, True), waiting),) if waiting else (),
        owner="mine",
    )


def found(
    before: CursorSnapshot,
    *,
    position: int | None,
    runs: tuple[str, ...] = ("earlier", "dead"),
    later: tuple[Redeliver, ...] = (),
    replayed: Mapping[Cell, OffsetSet] | None = None,
    delivered: Mapping[Cell, OffsetSet] | None = None,
) -> OrphanedLeases:
    at = {("t", 0): position or 0}
    start = None if position is None else SourceOffset(queue=at, redeliveries={}, runs=runs)
    return orphaned_leases(
        {CELL: before},
        start=start,
        later=lambda: later,
        replayed=replayed or {},
        delivered=delivered or {},
    )


def test_what_a_dead_run_left_of_its_last_committed_batch_is_acked() -> None:
    # Spark has committed up to 100; the run died before its Ends
    left = found(cursor(leased=(90, 100)), position=100)
    assert left == OrphanedLeases(committed={CELL: OffsetSet.of((90, 100))}, unsure={})


def test_without_a_checkpoint_nothing_is_known_as_committed() -> None:
    left = found(cursor(leased=(90, 100)), position=None)
    assert left == OrphanedLeases(committed={}, unsure={CELL: OffsetSet.of((90, 100))})


def test_what_a_run_of_another_checkpoint_left_is_not_acked_wherever_it_is() -> None:
    # this checkpoint is at 100 | a seek | another query leased 90..99, and it may have handled none of them
    left = found(cursor(leased=(90, 100)), position=100, runs=("earlier",))
    assert left == OrphanedLeases(committed={}, unsure={CELL: OffsetSet.of((90, 100))})


def test_a_checkpoint_of_an_earlier_version_names_no_runs_so_that_what_they_left_comes_again() -> None:
    left = found(cursor(leased=(90, 100)), position=100, runs=())
    assert left == OrphanedLeases(committed={}, unsure={CELL: OffsetSet.of((90, 100))})


def test_what_a_run_left_after_it_acquired_the_partition_again_is_not_known_to_an_older_checkpoint() -> None:
    # the checkpoint is copied | a seek, and the same run goes on as "dead.1" | the copy is put back
    before = replace(cursor(), leases=((Lease(60_000, 1, "dead.1"), OffsetSet.of((90, 100))),))
    assert found(before, position=100).committed == {}


def test_what_was_left_is_not_acked_although_its_batch_is_committed() -> None:
    # the sink left 95, or a replay of the batch could not deliver it
    leases = (
        (Lease(60_000, 1, "dead"), OffsetSet.of((90, 95))),
        (
            Lease(60_000, 1, "dead", left=True),
            OffsetSet.of((95, 96)),
        ),
    )
    assert found(replace(cursor(), leases=leases), position=100) == OrphanedLeases(
        committed={CELL: OffsetSet.of((90, 95))}, unsure={CELL: OffsetSet.of((95, 96))}
    )


def test_an_older_checkpoint_knows_its_own_batches_only() -> None:
    left = found(cursor(leased=(90, 100)), position=95)
    assert left == OrphanedLeases(
        committed={CELL: OffsetSet.of((90, 95))}, unsure={CELL: OffsetSet.of((95, 100))}
    )


def test_what_was_announced_after_the_checkpoint_is_in_no_batch_that_it_knows() -> None:
    # 90..94 were redelivered, in a batch of which an older checkpoint knows nothing
    later = Redeliver(cell=CELL, offsets=OffsetSet.of((90, 95)), delivery_count=1, run_id="dead", alone=False)
    left = found(cursor(leased=(90, 100), count=2), position=100, later=(later,))
    assert left == OrphanedLeases(
        committed={CELL: OffsetSet.of((95, 100))}, unsure={CELL: OffsetSet.of((90, 95))}
    )


def test_a_replayed_batch_speaks_for_its_own_messages() -> None:
    # 90..99 are the batch that died: this run delivers them again, and then they are its own to ack
    batch = {CELL: OffsetSet.of((90, 100))}
    left = found(cursor(leased=(90, 100)), position=100, replayed=batch, delivered=batch)
    assert left == OrphanedLeases(committed={}, unsure={})


def test_what_was_handed_back_or_is_available_is_not_to_be_acked_by_everything_up_to_here() -> None:
    batch = {CELL: OffsetSet.of((90, 100))}
    handed_back = found(cursor(leased=(90, 100), count=2), position=100, replayed=batch)
    assert handed_back == OrphanedLeases(committed={}, unsure=batch)
    assert found(cursor(available=(3, 4)), position=100).unsure == {CELL: OffsetSet.of((3, 4))}
