"""An operator's hand on a subscription, with a tracker and a running query."""

from __future__ import annotations

from collections import Counter

import pytest

from spark_cursor_source.admin.stats import read_stats
from spark_cursor_source.admin.subscriptions import LATEST, Subscriptions, at_offsets
from spark_cursor_source.core.cursor import CursorSnapshot
from tests.spark.harness import Bench

pytestmark = pytest.mark.broker


@pytest.fixture
def bench(plain_bench: Bench) -> Bench:
    """Spark is not under test here."""
    return plain_bench


def open_subscriptions(bench: Bench) -> Subscriptions:
    return Subscriptions(
        bench.control.config,
        **bench.control.topics,
        group_id_prefix=bench.group_prefix,
    )


def test_a_subscription_is_created_read_described_and_deleted(bench: Bench) -> None:
    # Seek(4) by create   H S of 4 to 10   E   D
    topic = bench.create_topic()
    bench.produce(topic, [b"%d" % number for number in range(10)])
    options = bench.options(topic, "made")
    with open_subscriptions(bench) as subscriptions:
        assert subscriptions.create("made", topic, at_offsets(topic, {0: 4})) == {0: 4}
        seen = bench.plain(options)
        bench.until_acked(topic, 10, "made")
        (stats,) = read_stats(
            bench.control.config,
            topic=topic,
            **bench.control.topics,
            group_id_prefix=bench.group_prefix,
        ).subscriptions
        (consumer,) = stats.consumers
        seen.stop()
        subscriptions.delete("made", force=True)  # its member may be in the group for a session timeout
        assert bench.cursor(topic, "made") is None
    assert seen.ids() == [(0, offset) for offset in range(4, 10)]
    assert (stats.backlog, stats.total("acked"), stats.total("overlapped")) == (0, 6, 0)
    assert (consumer.type, consumer.partitions) == ("exclusive", (0,))
    assert consumer.query_id == stats.partitions[0].owner
    assert consumer.last_seen_ms is not None


def test_a_query_that_runs_follows_a_seek_back_and_forward_without_a_restart(bench: Bench) -> None:
    # S 0-10 E   Seek(6)   S 6-10 E   S 10-12 E   Seek(12)   S 12-15 E
    topic = bench.create_topic()
    bench.produce(topic, [b"%d" % number for number in range(10)])
    seen = bench.plain(bench.options(topic, "sought"))
    bench.until_acked(topic, 10, "sought")

    def acked_again(state: CursorSnapshot | None, total: int) -> bool:
        return state is not None and state.totals.acked == total and not state.outstanding

    with open_subscriptions(bench) as subscriptions:
        assert subscriptions.seek("sought", topic, at_offsets(topic, {0: 6})) == {0: 6}
        bench.until(
            lambda: acked_again(bench.cursor(topic, "sought"), 14), "what it was sought back to is acked"
        )
        bench.produce(topic, [b"more"] * 2)
        bench.until_acked(topic, 12, "sought")
        subscriptions.seek("sought", topic, LATEST)
        bench.produce(topic, [b"more"] * 3)
        bench.until_acked(topic, 15, "sought")
    state = bench.cursor(topic, "sought")
    assert state is not None
    delivered = Counter(seen.ids())
    assert set(delivered) == {(0, n) for n in range(15)}
    assert all(delivered[0, n] == (2 if n >= 6 else 1) for n in range(10))
    # What it started before it had noticed comes again, and is counted.
    assert sum(delivered.values()) - 15 - 4 == state.totals.overlapped
