"""What the stats of a subscription add up to."""

from __future__ import annotations

import json
from dataclasses import replace

from spark_cursor_source.core.blocked import Blocked
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import Available, CursorSnapshot, Delayed, HeldLetters, Lease, Totals
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.stats import ConsumerStats, PartitionStats, Stats, SubscriptionStats

CURSOR = CursorSnapshot(
    cell=Cell(subscription="billing", topic="orders", partition=3),
    read_position=50,
    next_marker=7,
    leases=((Lease(60_000, 1, "run"), OffsetSet.of((10, 20), (30, 31))),),
    delayed=((Delayed(70_000, 1, False), OffsetSet.of((40, 42))),),
    available=((Available(1, False), OffsetSet.of((42, 45))),),
    held=((HeldLetters(5, "max-deliveries"), OffsetSet.of((46, 47))),),
    owner="run",
    owner_seen_ms=1_700_000_000_000,
    totals=Totals(delivered=50, acked=33, redelivered=5, overlapped=2),
)
HOLDER = ConsumerStats(
    client_id="cursorq …",
    query_id="run",
    type="exclusive",
    host="web-7",
    since="2026-01-31T08:30:00Z",
    partitions=(3,),
    last_seen_ms=1_700_000_000_000,
)


def stats_of(*parts: PartitionStats, newest_ms: int | None = 1_700_000_060_000) -> SubscriptionStats:
    return SubscriptionStats(
        topic="orders", subscription="billing", partitions=parts, consumers=(HOLDER,), newest_ms=newest_ms
    )


def test_the_backlog_is_what_is_outstanding_or_was_never_read() -> None:
    part = PartitionStats.of(CURSOR, log_end=80, oldest_ms=None)
    assert (part.leased, part.available, part.delayed, part.held) == (11, 5, 2, 1)
    assert (part.outstanding, part.backlog) == (17, 17 + 30)
    assert (part.mark_delete, part.read_position, part.ack_holes) == (9, 50, 4)
    assert PartitionStats.of(CURSOR, log_end=None, oldest_ms=None).backlog is None
    assert PartitionStats.of(CURSOR, log_end=40, oldest_ms=None).backlog == 17, "a log that lost its end"


def test_blocked_messages_are_outstanding_and_those_that_they_wait_for_are_counted() -> None:
    blocked = Blocked(
        offsets=OffsetSet.of((20, 23), (45, 46)), behind=(12, 12, 12, 40), delivery_counts=(0,) * 4
    )
    part = PartitionStats.of(replace(CURSOR, blocked=blocked), log_end=80, oldest_ms=None)
    assert (part.blocked, part.blocking, part.available, part.outstanding) == (4, 2, 5, 17 + 4)
    assert part.backlog == 17 + 4 + 30
    told = json.loads(Stats(subscriptions=(stats_of(part, part),)).to_json())
    billing = told["topics"]["orders"]["subscriptions"]["billing"]
    assert (billing["blocked"], billing["blocking"], billing["outstanding"]) == (8, 4, 42)
    assert (billing["partitions"]["3"]["blocked"], billing["partitions"]["3"]["blocking"]) == (4, 2)


def test_a_subscription_is_the_sum_of_its_partitions_and_as_old_as_the_oldest() -> None:
    old = PartitionStats.of(CURSOR, log_end=80, oldest_ms=1_700_000_000_000)
    young = PartitionStats.of(CURSOR, log_end=None, oldest_ms=None)
    both = stats_of(old, young)
    assert (both.backlog, both.total("leased"), both.total("overlapped")) == (47, 22, 4)
    assert (both.oldest_unacked_ms, both.oldest_unacked_age_ms) == (1_700_000_000_000, 60_000)
    assert stats_of(old, newest_ms=None).oldest_unacked_age_ms is None
    assert stats_of(old, newest_ms=5).oldest_unacked_age_ms == 0, "a producer whose clock is fast"
    assert (stats_of(young).backlog, stats_of(young).oldest_unacked_age_ms) == (None, None)


def test_a_log_that_cannot_be_read_is_told_from_one_that_was_deleted() -> None:
    lost = PartitionStats.of(CURSOR, log_end=None, oldest_ms=None, end_trouble="no leader")
    gone, there = (PartitionStats.of(CURSOR, log_end=end, oldest_ms=None) for end in (None, 80))
    assert [stats_of(part).is_deleted for part in (lost, gone, there)] == [False, True, False]
    both = Stats(subscriptions=(stats_of(there, lost),))
    assert (both.subscriptions[0].backlog, both.subscriptions[0].end_trouble) == (47, "no leader")
    assert both.to_text().endswith(' end_trouble="no leader"')
    told = json.loads(both.to_json())["topics"]["orders"]["subscriptions"]["billing"]
    assert (told["end_trouble"], told["partitions"]["3"]["end_trouble"]) == ("no leader", "no leader")


def test_an_oldest_message_that_cannot_be_read_is_told_from_none() -> None:
    closed = PartitionStats.of(CURSOR, log_end=80, oldest_ms=None, oldest_trouble="no right")
    told = Stats(subscriptions=(stats_of(PartitionStats.of(CURSOR, log_end=80, oldest_ms=None), closed),))
    assert told.to_text().endswith(' oldest_trouble="no right"')
    one = json.loads(told.to_json())["topics"]["orders"]["subscriptions"]["billing"]
    assert (one["oldest_trouble"], one["partitions"]["3"]["oldest_trouble"]) == ("no right", "no right")


def test_stats_as_json_are_nested_by_topic_and_subscription() -> None:
    part = PartitionStats.of(CURSOR, log_end=80, oldest_ms=1_700_000_000_000)
    told = json.loads(Stats(subscriptions=(stats_of(part),)).to_json())
    billing = told["topics"]["orders"]["subscriptions"]["billing"]
    assert (billing["backlog"], billing["totals"]["acked"], billing["ack_holes"]) == (47, 33, 4)
    assert billing["consumers"][0]["host"] == "web-7"
    assert billing["partitions"]["3"]["mark_delete"] == 9
    assert billing["partitions"]["3"]["totals"]["overlapped"] == 2
    assert json.loads(Stats(subscriptions=()).to_json(indent=2)) == {
        "topics": {},
        "weak_control_topics": [],
    }


def test_stats_say_why_dead_letters_could_not_be_written() -> None:
    late = HeldLetters(5, "max-deliveries", "", 0, "not authorized: write on 'orders-billing-DLQ'", 90_000, 2)
    early = HeldLetters(5, "rejected", "", 0, "no leader", 80_000, 1)
    held = ((early, OffsetSet.of((47, 48))), (late, OffsetSet.of((46, 47))))
    part = PartitionStats.of(replace(CURSOR, held=held), log_end=80, oldest_ms=None)
    assert (part.held, part.trouble, part.next_try_ms) == (2, late.trouble, 80_000)
    one = stats_of(PartitionStats.of(CURSOR, log_end=80, oldest_ms=None), part)
    told = json.loads(Stats(subscriptions=(one,)).to_json())["topics"]["orders"]["subscriptions"]["billing"]
    assert told["trouble"] == told["partitions"]["3"]["trouble"] == late.trouble
    assert Stats(subscriptions=(one,)).to_text().endswith(f' trouble="{late.trouble}"')
    just_now = replace(CURSOR, held=((late._replace(retry_ms=0), OffsetSet.of((46, 47))),))
    assert PartitionStats.of(just_now, log_end=80, oldest_ms=None).next_try_ms is None


def test_stats_as_text_say_how_much_was_settled_that_was_not_there_to_settle() -> None:
    totals = replace(CURSOR.totals, unknown_ends=3, unknown_settlements=2)
    part = PartitionStats.of(replace(CURSOR, totals=totals), log_end=80, oldest_ms=None)
    text = Stats(subscriptions=(stats_of(part),)).to_text()
    assert text.endswith(" consumers=1 unknown_ends=3 unknown_settlements=2")


def test_stats_as_text_are_a_line_for_each_subscription() -> None:
    old = PartitionStats.of(CURSOR, log_end=80, oldest_ms=1_700_000_000_000)
    gone = PartitionStats.of(CURSOR, log_end=None, oldest_ms=None)
    assert Stats(subscriptions=(stats_of(old), stats_of(gone))).to_text().splitlines() == [
        "orders billing backlog=47 outstanding=17 leased=11 available=5 delayed=2 blocked=0 blocking=0 held=1"
        " ack_holes=4 acked=33 dead_lettered=0 oldest_s=60 consumers=1",
        "orders billing backlog=- outstanding=17 leased=11 available=5 delayed=2 blocked=0 blocking=0 held=1"
        " ack_holes=4 acked=33 dead_lettered=0 oldest_s=- consumers=1",
    ]
