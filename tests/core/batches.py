"""Batches and announcements, said in short."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from spark_cursor_source.core.batch import (
    BatchPlan,
    Delivery,
    SourceOffset,
)
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.tracker import Redeliver

RUN, DEAD = "this run", "a run that died"
TOPIC = "t"


def cell(partition: int = 0) -> Cell:
    return Cell(subscription="s", topic=TOPIC, partition=partition)


def some(*offsets: int) -> OffsetSet:
    return OffsetSet.from_offsets(offsets)


def span(start: int, stop: int) -> OffsetSet:
    return OffsetSet.of((start, stop))


def announced(
    offsets: OffsetSet, *, count: int = 1, partition: int = 0, alone: bool = False, run: str = RUN
) -> Redeliver:
    return Redeliver(cell=cell(partition), offsets=offsets, delivery_count=count, run_id=run, alone=alone)


def at(queue: Mapping[int, int], redeliveries: Mapping[int, int] | None = None) -> SourceOffset:
    return SourceOffset(queue={(TOPIC, p): n for p, n in queue.items()}, redeliveries=redeliveries or {0: 0})


def delivered(batch: BatchPlan) -> dict[tuple[int, int], tuple[tuple[int, int], ...]]:
    """Ranges by (partition, delivery count)."""
    return {(d.cell.partition, d.delivery_count): d.offsets.ranges for d in batch.deliveries}


def handed_back(batch: BatchPlan) -> dict[tuple[int, int], tuple[tuple[int, int], ...]]:
    return {(b.cell.partition, b.delivery_count): b.offsets.ranges for b in batch.hand_backs}


def delivery(start: int, stop: int, *, partition: int = 0, count: int = 1) -> Delivery:
    return Delivery(cell=cell(partition), offsets=span(start, stop), delivery_count=count)


offset_sets = st.frozensets(st.integers(0, 30), max_size=12).map(OffsetSet.from_offsets)
announcements = st.lists(
    st.builds(announced, offset_sets.filter(bool), count=st.integers(1, 4), partition=st.integers(0, 1)),
    max_size=6,
)
ranges = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted)
