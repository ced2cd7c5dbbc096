"""What the tests of the page share: a cluster with cursors of every kind, and the page of a collector."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from starlette.testclient import TestClient

from spark_cursor_source.core.blocked import Blocked
from spark_cursor_source.core.cursor import (
    Available,
    CursorSnapshot,
    Delayed,
    HeldLetters,
    Lease,
    Totals,
)
from spark_cursor_source.core.marker import Block, Release, Start
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.ui import Collector, UiSettings, create_app
from spark_cursor_source.wire import cursor as cursor_wire
from spark_cursor_source.wire import marker as marker_wire
from tests.kafka.control_plane import PARTITIONS, Control, cell_of, control_on, offsets, produce
from tests.waiting import wait_until

Open = Callable[..., TestClient]


def settings_of(control: Control, **more: object) -> UiSettings:
    return UiSettings(
        kafka=control.config,
        **control.topics,
        redeliveries_topic=control.redeliveries,
        **control.groups,
        refresh_ms=100,
        sample_ms=100,
        **more,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def queue(broker: EmbeddedKafka) -> Control:
    """Ten messages of a queue, of which `billing` has one in each state, and `<b>&` all unread."""
    control = control_on(broker).create()
    ClusterAdmin(control.config).create({control.queue: (1, {}), f"{control.queue}-billing-DLQ": (1, {})})
    values = [b'{"order": 17, "name": "<script>alert(1)</script>"}', b"plain", b"\xff\x00", *[b"x"] * 7]
    headers = [("trace", b"t-1"), ("bad", b"\xff")]
    produce(
        control.config,
        control.queue,
        [{"key": b"k%d" % at, "value": value, "headers": headers} for at, value in enumerate(values)],
    )
    full = CursorSnapshot(
        cell=cell_of(control.queue),
        read_position=7,
        next_marker=0,
        leases=((Lease(2_000_000_000_000, 3, "run-a"), offsets((0, 1))),),
        available=((Available(1, False), offsets((2, 3))),),
        delayed=((Delayed(2_000_000_000_000, 1, False), offsets((3, 4))),),
        held=((HeldLetters(5, "bad", trouble="no topic", tries=1, retry_ms=1), offsets((4, 5))),),
        blocked=Blocked(offsets=offsets((5, 6)), behind=(0,), delivery_counts=(0,)),
        owner="run-a",
        totals=Totals(delivered=8, acked=5, redelivered=2, dead_lettered=1),
    )
    odd = CursorSnapshot(cell=cell_of(control.queue, 0, "<b>&"), read_position=0, next_marker=0)
    produce(
        control.config,
        control.cursors,
        [{"key": one.cell.key, "value": cursor_wire.encode(one)} for one in (full, odd)],
    )
    cell = full.cell
    release = Release(
        cell=cell, offsets=offsets((0, 1)), delivery_count=2, delay_ms=0, reason="<i>no bank</i>"
    )
    starts = [
        Start(cell=cell, offsets=offsets((0, 2)), lease_ms=60_000, delivery_count=count, run_id="run-a")
        for count in (2, 3)
    ]
    block = Block(cell=cell, offsets=offsets((5, 6)), behind=(0,), delivery_count=1)
    produce(
        control.config,
        control.markers,
        [
            {
                "key": cell.key,
                "value": marker_wire.encode(one),
                "partition": cell.control_partition(PARTITIONS),
            }
            for one in (starts[0], release, starts[1], block)
        ],
    )
    produce(control.config, control.markers, [{"key": b"k", "value": b"<b>no marker</b>", "partition": 0}])
    letters = [(0, b"BankClosed: account 17"), (1, b"BankClosed: account 18"), (2, b"Timeout")]
    produce(
        control.config,
        f"{control.queue}-billing-DLQ",
        [
            {
                "key": b"k",
                "timestamp": 1_700_000_000_000 + 60_000 * at,
                "headers": [
                    ("cursorq-reason", b"rejected"),
                    ("cursorq-error", error),
                    ("cursorq-topic", control.queue.encode()),
                    ("cursorq-partition", b"0"),
                    ("cursorq-offset", b"%d" % at),
                    ("cursorq-subscription", b"billing"),
                    ("cursorq-delivery-count", b"1"),
                ],
            }
            for at, error in letters
        ],
    )
    return control


@pytest.fixture(scope="module")
def collector(queue: Control) -> Iterator[Collector]:
    with Collector(settings_of(queue)) as running:
        # A first look may fail on a busy machine, and the next one shows all.
        wait_until(lambda: bool(running.snapshot.rows) and running.snapshot.failure is None)
        wait_until(lambda: all(row.consumers is not None for row in running.snapshot.rows))
        yield running


@pytest.fixture(scope="module")
def open_page(queue: Control, collector: Collector) -> Open:
    """``open_page(token="t")``: a client of a page with these settings."""

    def page(**more: object) -> TestClient:
        return TestClient(create_app(collector, settings_of(queue, **more)), base_url="http://localhost")

    return page


@pytest.fixture(scope="module")
def page(open_page: Open) -> TestClient:
    return open_page()
