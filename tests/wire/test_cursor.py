"""Records of the cursors topic: whole, in parts, damaged."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cursor_source.core.blocked import Blocked
from spark_cursor_source.core.breaker import Breaker
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import (
    Available,
    CursorSnapshot,
    Delayed,
    HeldLetters,
    Lease,
    MarkersLog,
    SavedState,
    Totals,
)
from spark_cursor_source.core.delivery_times import MOST_STEPS, UNKNOWN, FirstDeliveries
from spark_cursor_source.core.limits import LEAST_RATE, MAX_OUTSTANDING, MAX_RATE, Limits
from spark_cursor_source.core.offsets import OFFSET_LIMIT, OffsetSet
from spark_cursor_source.core.ttl import MessageAges, ObservedEnd
from spark_cursor_source.errors import InvalidControlRecord
from spark_cursor_source.wire.control_pb2 import Blocked as BlockedPb
from spark_cursor_source.wire.control_pb2 import Cursor as CursorPb
from spark_cursor_source.wire.control_pb2 import CursorPart, Group
from spark_cursor_source.wire.control_pb2 import FirstDeliveries as Steps
from spark_cursor_source.wire.control_pb2 import Held as HeldPb
from spark_cursor_source.wire.cursor import PART_MARK, cell_keys, decode, encode, from_records, to_records
from spark_cursor_source.wire.offsets import encode_offsets

GOLDEN = Path(__file__).parent.parent / "golden"
CELL = Cell(subscription="billing", topic="orders", partition=3)
RUN_A, RUN_B = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
ONE = CursorSnapshot(
    cell=CELL,
    read_position=5_000,
    next_marker=812,
    leases=(
        (Lease(1_700_000_060_000, 1, RUN_A), OffsetSet.of((100, 200), (205, 5_000))),
        (Lease(1_700_000_090_000, 2, ""), OffsetSet.of((7, 8))),
        (Lease(1_700_000_090_000, 2, RUN_B), OffsetSet.of((9, 10))),
    ),
    delayed=((Delayed(1_700_000_070_000, 2, True), OffsetSet.from_offsets([40, 42])),),
    available=((Available(1, False), OffsetSet.of((50, 60))), (Available(4, True), OffsetSet.of((3, 4)))),
    owner=RUN_B,
    max_deliveries=5,
    markers_partition=6,
    totals=Totals(delivered=5_010, acked=190, redelivered=14, dead_lettered=2, unknown_ends=3),
)
TIMED = CursorSnapshot(
    cell=CELL,
    read_position=5_000,
    next_marker=812,
    leases=((Lease(1_700_000_060_000, 1, RUN_A, 1_700_000_000_250), OffsetSet.of((100, 5_000))),),
    delayed=((Delayed(1_700_000_070_000, 0, False), OffsetSet.of((40, 42))),),
    available=((Available(0, False), OffsetSet.of((50, 60))),),
    first_deliveries=FirstDeliveries(((0, 1_699_999_999_000), (90, 0), (100, 1_700_000_000_250))),
)

TWO = replace(
    ONE,
    held=(
        (HeldLetters(2, "no such customer"), OffsetSet.of((61, 63))),
        (HeldLetters(5, ""), OffsetSet.of((65, 66))),
    ),
    totals=replace(ONE.totals, expired=9),
    breaker=Breaker(
        trip="1700000000000@orders,3",
        opened_ms=1_700_000_000_000,
        closes_ms=1_700_000_600_000,
        recent=((1_699_999_999_500, 99), (1_700_000_000_000, 1)),
    ),
    ages=MessageAges(
        ttl_ms=3_600_000,
        ends=(ObservedEnd(1_699_999_000_000, 4_000), ObservedEnd(1_699_999_180_000, 5_100)),
        expired_below=2,
    ),
)

SETTLED_TOO_LATE = replace(ONE, totals=replace(ONE.totals, unknown_settlements=8))

GAPS = replace(ONE, totals=replace(ONE.totals, gaps=9))

SETTLED_OTHERWISE = replace(ONE, totals=replace(ONE.totals, lease_timeouts=10, released=11, rejected=12))

SUSPECTS = CursorSnapshot(
    cell=CELL,
    read_position=5_000,
    next_marker=812,
    leases=((Lease(1_700_000_060_000, 4, RUN_A, 1_700_000_000_250, grouped=True), OffsetSet.of((1, 9))),),
    delayed=((Delayed(1_700_000_070_000, 4, True, grouped=True), OffsetSet.of((40, 42))),),
    available=((Available(4, True, grouped=True), OffsetSet.of((50, 60))),),
)

LEFT = CursorSnapshot(
    cell=CELL,
    read_position=5_000,
    next_marker=812,
    leases=(
        (Lease(1_700_000_060_000, 1, RUN_A, 1_700_000_000_250), OffsetSet.of((1, 9))),
        (Lease(1_700_000_060_000, 1, RUN_A, 1_700_000_000_250, left=True), OffsetSet.of((9, 12))),
    ),
)

TROUBLED = replace(
    ONE,
    held=(
        (HeldLetters(2, "rejected", "bad order", 1_700_000_050_250), OffsetSet.of((61, 63))),
        (
            HeldLetters(
                5,
                "max-deliveries",
                last_delivery_ms=1_700_000_050_250,
                trouble="not authorized: write on 'orders-billing-DLQ'",
                retry_ms=1_700_000_080_000,
                tries=2,
            ),
            OffsetSet.of((65, 66)),
        ),
    ),
)

SOUGHT = CursorSnapshot(
    cell=CELL,
    read_position=5_000,
    next_marker=812,
    owner=RUN_A,
    sought=True,
    owner_seen_ms=1_700_000_060_123,
    totals=Totals(delivered=12, acked=12, overlapped=7),
)

BROUGHT_BACK = replace(SOUGHT, generation_ms=1_700_000_050_123)

TRACKED = replace(SOUGHT, log=MarkersLog("__cursorq_markers", "q2W9cLkKQx6w9xRMTnyzZQ"))

BLOCKED = replace(
    ONE,
    blocked=Blocked(
        offsets=OffsetSet.of((60, 63), (70, 71)), behind=(7, 7, 50, 9), delivery_counts=(0, 0, 2, 1)
    ),
)

PAUSED = replace(ONE, paused_ms=1_700_000_060_123)
LIMITED = replace(ONE, limits=Limits(rate=2.5, max_outstanding=70))

SAVED = replace(
    ONE,
    saved=(
        SavedState(name="before release 7", at_ms=1_699_999_000_000, read_position=40, next_marker=100),
        SavedState(
            name="undo",
            at_ms=1_700_000_000_250,
            read_position=4_000,
            next_marker=801,
            outstanding=((1, OffsetSet.of((100, 200))), (4, OffsetSet.from_offsets([7, 9]))),
        ),
    ),
)

MOVED = replace(
    SAVED,
    saved=(replace(SAVED.saved[1], move="0123456789abcdef0123456789abcdef"),),
    undo_of_next=replace(SAVED.saved[1], next_marker=811, move="fedcba9876543210fedcba9876543210"),
)

# ---- whole cursors

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
times = st.integers(0, 2**53)
counts = st.integers(1, 10**9)
keys = st.one_of(
    st.builds(Lease, times, counts, st.just("") | names, times, st.booleans(), st.booleans()),
    st.builds(Delayed, times, st.just(0) | counts, st.booleans(), st.booleans(), st.booleans()),
    st.builds(Available, st.just(0) | counts, st.booleans(), st.booleans(), st.booleans()),
    st.builds(HeldLetters, st.just(0) | counts, texts, texts, times, texts, times, st.integers(0, 10**6)),
)
offsets = st.integers(0, OFFSET_LIMIT)
breakers = st.builds(
    Breaker,
    trip=st.just("") | names,
    opened_ms=st.none() | times,
    closes_ms=st.none() | times,
    recent=st.lists(st.tuples(times, counts), max_size=3).map(tuple),
)
limits = st.builds(
    Limits,
    rate=st.none() | st.floats(LEAST_RATE, MAX_RATE),
    max_outstanding=st.none() | st.integers(1, MAX_OUTSTANDING),
)
ends_seen = st.lists(st.builds(ObservedEnd, times, offsets), max_size=3, unique_by=lambda end: end.position)
ages = st.builds(
    MessageAges,
    ttl_ms=st.none() | st.integers(0, 2**53),
    ends=ends_seen.map(lambda ends: tuple(sorted(ends, key=lambda end: end.position))),
    expired_below=offsets,
)


@st.composite
def cursors(draw: st.DrawFn) -> CursorSnapshot:
    """Any state a tracker may be in: each offset in one group."""
    groups: dict[Lease | Delayed | Available | HeldLetters, list[int]] = {}
    for offset in draw(st.frozensets(st.integers(0, 60) | st.integers(0, OFFSET_LIMIT - 1), max_size=12)):
        key = draw(st.sampled_from(list(groups)) if groups and draw(st.booleans()) else keys)
        groups.setdefault(key, []).append(offset)
    held = {key: OffsetSet.from_offsets(offsets) for key, offsets in groups.items()}
    taken = frozenset(offset for offsets in groups.values() for offset in offsets)
    blocked = draw(st.dictionaries(st.integers(1, 60), st.just(0) | counts, max_size=5))
    waits = sorted((at, count) for at, count in blocked.items() if at not in taken)
    last = max((*taken, *(at for at, _ in waits)), default=-1)
    tallies = st.integers(0, 2**63)
    totals = st.builds(Totals, **dict.fromkeys((field.name for field in fields(Totals)), tallies))
    return CursorSnapshot(
        cell=Cell(subscription=draw(names), topic=draw(names), partition=draw(st.integers(0, 2**31 - 1))),
        read_position=draw(st.integers(last + 1, OFFSET_LIMIT)),
        next_marker=draw(st.integers(0, OFFSET_LIMIT)),
        leases=tuple((key, held[key]) for key in held if isinstance(key, Lease)),
        delayed=tuple((key, held[key]) for key in held if isinstance(key, Delayed)),
        available=tuple((key, held[key]) for key in held if isinstance(key, Available)),
        held=tuple((key, held[key]) for key in held if isinstance(key, HeldLetters)),
        blocked=Blocked(
            offsets=OffsetSet.from_offsets([at for at, _ in waits]),
            behind=tuple(draw(st.integers(0, at - 1)) for at, _ in waits),
            delivery_counts=tuple(count for _, count in waits),
        ),
        owner=draw(st.none() | names),
        max_deliveries=draw(st.none() | st.integers(1, 10**9)),
        markers_partition=draw(st.integers(0, 10_000)),
        topic_id=draw(st.none() | names),
        sought=draw(st.booleans()),
        owner_seen_ms=draw(times),
        generation_ms=draw(times),
        paused_ms=draw(st.none() | times),
        limits=draw(limits),
        log=draw(st.none() | st.builds(MarkersLog, names, texts)),
        totals=draw(totals),
        breaker=draw(breakers),
        ages=draw(ages),
        first_deliveries=FirstDeliveries(
            tuple(sorted(draw(st.dictionaries(st.integers(0, OFFSET_LIMIT - 1), times, max_size=5)).items()))
        ),
    )


@settings(max_examples=100, deadline=None)
@given(cursors())
def test_a_cursor_survives_its_bytes(cursor: CursorSnapshot) -> None:
    assert decode(encode(cursor)) == cursor


def test_cursors_of_version_1_are_read_for_ever() -> None:
    assert decode((GOLDEN / "cursor_v1.bin").read_bytes()) == ONE
    assert decode((GOLDEN / "cursor_v1_breaker_and_ttl.bin").read_bytes()) == TWO


def test_cursors_that_know_when_messages_were_delivered_are_read_for_ever() -> None:
    assert decode((GOLDEN / "cursor_v1_times.bin").read_bytes()) == TIMED


def test_the_golden_cursor_with_groups_of_suspects_decodes() -> None:
    assert decode((GOLDEN / "cursor_v1_suspects.bin").read_bytes()) == SUSPECTS


def test_cursors_of_dead_letters_that_could_not_be_written_are_read_for_ever() -> None:
    assert decode((GOLDEN / "cursor_v1_troubled.bin").read_bytes()) == TROUBLED


def test_cursors_of_left_messages_are_read_for_ever() -> None:
    assert decode((GOLDEN / "cursor_v1_left.bin").read_bytes()) == LEFT


def test_cursors_that_were_sought_are_read_for_ever() -> None:
    assert decode((GOLDEN / "cursor_v1_sought.bin").read_bytes()) == SOUGHT


def test_cursors_whose_messages_were_brought_back_are_read_for_ever() -> None:
    assert decode((GOLDEN / "cursor_v1_brought_back.bin").read_bytes()) == BROUGHT_BACK


def test_cursors_that_name_their_markers_topic_are_read_for_ever() -> None:
    assert decode((GOLDEN / "cursor_v1_tracked.bin").read_bytes()) == TRACKED


def test_cursors_of_a_limited_subscription_are_read_for_ever() -> None:
    assert decode((GOLDEN / "cursor_v1_limited.bin").read_bytes()) == LIMITED


@pytest.mark.parametrize("limits", [Limits(rate=0.0), Limits(rate=float("nan")), Limits(max_outstanding=0)])
def test_a_cursor_with_limits_that_cannot_be_is_no_cursor(limits: Limits) -> None:
    with pytest.raises(InvalidControlRecord, match="contradicts itself"):
        decode(encode(replace(ONE, limits=limits)))


def test_cursors_of_a_paused_subscription_are_read_for_ever() -> None:
    assert decode((GOLDEN / "cursor_v1_paused.bin").read_bytes()) == PAUSED


def test_cursors_with_blocked_messages_are_read_for_ever() -> None:
    assert decode((GOLDEN / "cursor_v1_blocked.bin").read_bytes()) == BLOCKED


def test_cursors_with_saved_states_are_read_for_ever() -> None:
    assert decode((GOLDEN / "cursor_v1_saved.bin").read_bytes()) == SAVED


def test_cursors_of_moved_subscriptions_are_read_for_ever() -> None:
    assert decode((GOLDEN / "cursor_v1_moved.bin").read_bytes()) == MOVED


def test_cursors_that_count_unknown_settlements_are_read_for_ever() -> None:
    assert decode((GOLDEN / "cursor_v1_settled_too_late.bin").read_bytes()) == SETTLED_TOO_LATE


def test_cursors_that_count_gaps_are_read_for_ever() -> None:
    assert decode((GOLDEN / "cursor_v1_gaps.bin").read_bytes()) == GAPS


def test_cursors_that_count_lease_timeouts_releases_and_rejects_are_read_for_ever() -> None:
    assert decode((GOLDEN / "cursor_v1_settled_otherwise.bin").read_bytes()) == SETTLED_OTHERWISE


def test_a_reader_of_liftbridges_cursors_finds_the_position_where_it_knows_it() -> None:
    pb = CursorPb.FromString(encode(ONE))
    assert (pb.stream, pb.partition, pb.cursor_id, pb.offset) == ("orders", 3, "billing", 2)


# ---- size


def three_holes(backlog: int) -> CursorSnapshot:
    """A backlog of messages after three holes."""
    held = OffsetSet.of((1, 2), (3, 4), (5, 6), (7, 7 + backlog))
    return CursorSnapshot(
        cell=Cell(subscription="s", topic="t", partition=0),
        read_position=7 + backlog,
        next_marker=9,
        leases=((Lease(1_700_000_060_000, 1, RUN_A, 1_700_000_000_000), held),),
        owner=RUN_A,
        first_deliveries=FirstDeliveries(((0, 1_700_000_000_000),)),
    )


@pytest.mark.parametrize("backlog", [1, 10**9])
def test_three_holes_take_few_bytes_at_any_backlog(backlog: int) -> None:
    cursor = three_holes(backlog)
    assert len(cursor.ack_holes.ranges) == 3
    assert len(encode_offsets(cursor.outstanding)) < 16
    assert len(encode(replace(cursor, first_deliveries=UNKNOWN))) - len(RUN_A) < 64
    assert len(encode(cursor)) - len(RUN_A) < 80


def test_a_run_id_is_stored_once_however_many_leases_it_holds() -> None:
    leases = tuple(
        (Lease(1_700_000_000_000 + 1_000 * n, 1, RUN_A), OffsetSet.of((10 * n, 10 * n + 9)))
        for n in range(60)
    )
    data = encode(replace(three_holes(1), leases=leases, read_position=600))
    assert data.count(RUN_A.encode()) == 1
    assert len(data) < 60 * 24 + 100


def test_a_step_of_the_first_deliveries_takes_a_few_bytes() -> None:
    steps = tuple((50_000 * n, 1_700_000_000_000 + 60_250 * n) for n in range(MOST_STEPS))
    data = encode(replace(three_holes(1), first_deliveries=FirstDeliveries(steps)))
    assert len(data) - len(encode(three_holes(1))) < 7 * MOST_STEPS


# ---- strictness

GROUP = Group(offsets=encode_offsets(OffsetSet.of((0, 2))), delivery_count=1, at_ms=1_000, run=0)
WAITS = encode_offsets(OffsetSet.from_offsets([5, 7]))
OTHER = Group(offsets=encode_offsets(OffsetSet.of((2, 3))), delivery_count=1, at_ms=1_000, run=0)


@pytest.mark.parametrize(
    "change",
    {
        "another version": {"version": 2},
        "no version": {"version": 0},
        "no topic": {"stream": ""},
        "a negative partition": {"partition": -1},
        "a negative markers partition": {"markers_partition": -1},
        "a negative read position": {"read_position": -1},
        "a negative marker": {"next_marker": -1},
        "an owner that is no run": {"owner": 2},
        "a lease of no run": {"leases": [Group(offsets=GROUP.offsets, delivery_count=1, run=2)]},
        "a delivery count of zero": {"leases": [Group(offsets=GROUP.offsets)]},
        "a group without a set": {"leases": [Group(delivery_count=1)]},
        "a group of nothing": {"leases": [Group(delivery_count=1, offsets=b"\x00")]},
        "one lease in two groups": {"leases": [GROUP, OTHER]},
        "an offset in two groups": {"leases": [GROUP], "available": [GROUP]},
        "an unseen offset in a group": {"leases": [GROUP], "read_position": 1},
        "first deliveries in no order": {"first_deliveries": Steps(offsets=[5, -2], at_ms=[1, 1])},
        "first deliveries without times": {"first_deliveries": Steps(offsets=[5])},
        "first deliveries before 1970": {"first_deliveries": Steps(offsets=[5], at_ms=[-1])},
        "a held letter that is leased": {
            "leases": [GROUP],
            "held": [HeldPb(offsets=GROUP.offsets, delivery_count=1)],
        },
        "a blocked message that is leased": {
            "leases": [Group(offsets=WAITS, delivery_count=1)],
            "blocked": BlockedPb(offsets=WAITS, behind=[1, 1], delivery_counts=[0, 0]),
        },
        "a blocked message that is not read": {
            "read_position": 7,
            "blocked": BlockedPb(offsets=WAITS, behind=[1, 1], delivery_counts=[0, 0]),
        },
        "too few blockers": {"blocked": BlockedPb(offsets=WAITS, behind=[1], delivery_counts=[0, 0])},
        "too many blockers": {"blocked": BlockedPb(offsets=WAITS, behind=[1] * 3, delivery_counts=[0, 0])},
        "blockers of nothing": {"blocked": BlockedPb(behind=[1])},
        "counts of nothing blocked": {"blocked": BlockedPb(delivery_counts=[1])},
        "too few counts of blocked messages": {"blocked": BlockedPb(offsets=WAITS, behind=[1, 1])},
        "a message that waits for itself": {
            "blocked": BlockedPb(offsets=WAITS, behind=[0, 1], delivery_counts=[0, 0])
        },
        "a message that waits for one before the first": {
            "blocked": BlockedPb(offsets=WAITS, behind=[1, 8], delivery_counts=[0, 0])
        },
        "blocked messages that are no set": {
            "blocked": BlockedPb(offsets=b"\xff", behind=[1], delivery_counts=[0])
        },
        "ends of the log that go back": {"ends_seen": [{"position": 5}, {"position": 5}]},
        "a negative position of old messages": {"expired_below": -1},
        "an owner seen before 1970": {"owner_seen_ms": -1},
    }.items(),
    ids=lambda case: case[0],
)
def test_a_cursor_that_contradicts_itself_is_refused(change: tuple[str, dict[str, object]]) -> None:
    sound: dict[str, object] = {
        "version": 1,
        "stream": "t",
        "cursor_id": "s",
        "read_position": 10,
        "runs": ["r"],
        "owner": 1,
    }
    decode(CursorPb(**sound).SerializeToString())  # type: ignore[arg-type]
    with pytest.raises(InvalidControlRecord):
        decode(CursorPb(**(sound | change[1])).SerializeToString())  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [b"", b"\xff", b"junk"])
def test_junk_is_no_cursor(value: bytes) -> None:
    with pytest.raises(InvalidControlRecord):
        decode(value)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_random_bytes_are_a_cursor_or_refused(value: bytes) -> None:
    try:
        cursor = decode(value)
    except InvalidControlRecord:
        return
    assert decode(encode(cursor)) == cursor


@pytest.mark.parametrize("cursor", [ONE, BLOCKED], ids=["one", "blocked"])
def test_a_damaged_cursor_is_refused_or_one_without_a_contradiction(cursor: CursorSnapshot) -> None:
    chance = random.Random(5)
    whole = encode(cursor)
    for _ in range(2_000):
        data = bytearray(whole)
        data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            cursor = decode(bytes(data))
        except InvalidControlRecord:
            continue
        assert decode(encode(cursor)) == cursor


# ---- parts


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=1, max_size=50), st.integers(1, 60))
def test_a_cursor_that_fits_no_record_is_put_together_again(whole: bytes, max_bytes: int) -> None:
    records = to_records(CELL.key, whole, max_bytes=max_bytes)
    assert len({key for key, _ in records}) == len(records)
    assert from_records(dict(records), CELL.key) == whole
    assert cell_keys(key for key, _ in records) == [CELL.key]


def test_a_cursor_that_fits_is_one_record() -> None:
    assert to_records(CELL.key, b"12345", max_bytes=5) == [(CELL.key, b"12345")]
    assert len(to_records(CELL.key, b"12345", max_bytes=4)) == 3


def test_without_a_record_there_is_no_cursor() -> None:
    assert from_records({}, CELL.key) is None


def torn() -> dict[bytes, bytes]:
    return dict(to_records(CELL.key, bytes(range(30)), max_bytes=10))


def test_a_missing_part_is_seen() -> None:
    for index in range(3):
        records = torn()
        del records[CELL.key + PART_MARK + b"%d" % index]
        with pytest.raises(InvalidControlRecord, match=f"part {index} .* missing"):
            from_records(records, CELL.key)


def test_parts_of_two_cursors_are_seen() -> None:
    # The second writer got as far as its first part.
    newer = to_records(CELL.key, bytes(range(1, 31)), max_bytes=10)
    for key, value in newer[:-1]:
        with pytest.raises(InvalidControlRecord, match="belong together"):
            from_records(torn() | {key: value}, CELL.key)


def test_parts_of_a_longer_cursor_that_are_left_over_do_no_harm() -> None:
    shorter = dict(to_records(CELL.key, bytes(range(20)), max_bytes=10))
    assert from_records(torn() | shorter, CELL.key) == bytes(range(20))
    whole = dict(to_records(CELL.key, b"short", max_bytes=10))
    assert from_records(torn() | whole, CELL.key) == b"short"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff\xff",
        CursorPart(index=0, parts=0).SerializeToString(),
        CursorPart(parts=9).SerializeToString(),
    ],
    ids=["a tombstone", "junk", "of no parts", "of more parts than there are"],
)
def test_a_part_that_is_none_is_seen(value: bytes) -> None:
    with pytest.raises(InvalidControlRecord):
        from_records(torn() | {CELL.key + PART_MARK + b"0": value}, CELL.key)


def test_keys_of_parts_are_no_keys_of_cells_even_in_a_subscription_of_odd_characters() -> None:
    odd = Cell(subscription="a#1,b", topic="t", partition=0)
    keys = [CELL.key, CELL.key + PART_MARK + b"0", odd.key, odd.key + PART_MARK + b"11"]
    assert cell_keys(keys) == sorted([CELL.key, odd.key])
