"""Counts of a process: of consumers, and of names without a limit."""

from __future__ import annotations

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, KeepAlive, Reject, Release
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.metrics.consumers import ConsumerCounts, ServiceCounts
from spark_cursor_source.metrics.counts import Counts
from spark_cursor_source.metrics.table import Histogram, Sample

CELL = Cell(subscription="s", topic="t", partition=0)
OTHER_CELL = Cell(subscription="s", topic="t", partition=1)
LABELS = ("t", "s", "q")


def offsets(*ranges: tuple[int, int]) -> OffsetSet:
    return OffsetSet.of(*ranges)


def plain(samples: list[Sample]) -> dict[tuple[str, ...], float]:
    return {
        (one.metric.name.removeprefix("cursorq_"), *one.labels): one.value
        for one in samples
        if not isinstance(one.value, Histogram)
    }


def test_a_consumer_counts_deliveries_settlements_and_extensions_in_messages() -> None:
    service = ServiceCounts()
    consumer = service.consumer(*LABELS)
    consumer.held, consumer.buffered = lambda: 7, lambda: 2
    consumer.started(CELL, offsets((0, 10)), delivery_count=1)
    consumer.started(CELL, offsets((20, 22)), delivery_count=3)
    consumer.written(
        [
            KeepAlive(cell=CELL, offsets=offsets((0, 10)), lease_ms=1_000, run_id="r"),
            End(cell=CELL, offsets=offsets((0, 4))),
            Release(cell=CELL, offsets=offsets((4, 6)), delivery_count=1),
            Reject(cell=CELL, offsets=offsets((6, 7)), delivery_count=1, reason="bad"),
        ]
    )
    assert plain(list(service.samples())) == {
        ("client_in_flight_messages", *LABELS): 7,
        ("client_buffered_messages", *LABELS): 2,
        ("client_deliveries_total", *LABELS): 12,
        ("client_redeliveries_total", *LABELS): 2,
        ("lease_extensions_total", *LABELS): 10,
        ("client_settlements_total", *LABELS, "ack"): 4,
        ("client_settlements_total", *LABELS, "release"): 2,
        ("client_settlements_total", *LABELS, "reject"): 1,
    }
    consumer.close()
    assert not any("messages" in name for name, *_ in plain(list(service.samples())))


def test_the_processing_time_goes_from_the_start_of_a_lease_to_the_stored_settlement() -> None:
    # 0 s Start 0..10 | 2 s Start 5..7 of another cell | 3 s End 0..4 | 20 s End of the rest, and 5..7
    now_s = iter([0.0, 2.0, 3.0, 20.0, 20.0]).__next__
    counts = Counts()
    consumer = ConsumerCounts(counts, LABELS, lambda one: None, now_s=now_s)
    consumer.started(CELL, offsets((0, 10)), delivery_count=1)
    consumer.started(OTHER_CELL, offsets((5, 7)), delivery_count=1)
    consumer.written([End(cell=CELL, offsets=offsets((0, 4)))])
    consumer.written(
        [End(cell=CELL, offsets=offsets((4, 10))), End(cell=OTHER_CELL, offsets=offsets((5, 7)))]
    )
    (histogram,) = [one.value for one in counts.samples() if isinstance(one.value, Histogram)]
    assert (sum(histogram.buckets), histogram.sum) == (12, 4 * 3 + 6 * 20 + 2 * 18)


def test_names_above_the_limit_share_one_label_value() -> None:
    service = ServiceCounts(most_names=2)
    for name in ("a", "b", "c", "d", "a"):
        service.consumer("t", name, name).started(CELL, offsets((0, 1)), delivery_count=1)
    found = plain(list(service.samples()))
    assert {key[2:]: value for key, value in found.items() if key[0] == "client_deliveries_total"} == {
        ("a", "a"): 2,
        ("b", "b"): 1,
        ("other", "other"): 2,
    }
