"""Records of the markers topic: golden bytes, both versions, and everything that is no marker."""

from __future__ import annotations

import random
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.limits import LEAST_RATE, MAX_OUTSTANDING, MAX_RATE, NO_LIMITS, Limits
from spark_cursor_source.core.marker import (
    MAX_LEASE_MS,
    Block,
    CloseBreaker,
    Delete,
    End,
    EndLeased,
    EndOffsetObserved,
    EndPause,
    EndUpTo,
    ForgetState,
    Hello,
    KeepAlive,
    Leave,
    Marker,
    MemberLost,
    OpenBreaker,
    Pause,
    Reject,
    Release,
    Requeue,
    RestoreState,
    SaveState,
    Seek,
    SetLimits,
    Start,
    Withhold,
)
from spark_cursor_source.core.offsets import EMPTY, OFFSET_LIMIT, OffsetSet
from spark_cursor_source.errors import InvalidMarker
from spark_cursor_source.wire.marker import (
    MAX_DELIVERY_COUNT,
    MAX_DUE_MS,
    MAX_REASON,
    V1,
    V2,
    MarkerType,
    MarkerV1,
    decode,
    decode_folded,
    encode,
    encode_v1,
)
from spark_cursor_source.wire.marker_pb2 import Marker as MarkerPb
from spark_cursor_source.wire.marker_pb2 import MessageId

GOLDEN = Path(__file__).parent.parent / "golden"
CELL = Cell(subscription="billing", topic="orders", partition=3)
RUN = "0123456789abcdef0123456789abcdef"
TOPIC_ID = "uLRlol-gR4qevwQ4vwvLIQ"
SOME = OffsetSet.of((5, 100), (70_000, 70_001), (2**40, 2**40 + 3))

# ---- version 1: what kafka-mq-go writes

KAFKA_MQ_GO = {
    "1a020803 20e0d403 2a027131 320178": MarkerV1(
        queue_id=b"q1",
        type=MarkerType.START,
        partition=3,
        offset=0,
        redeliver_after_ms=60_000,
        key=b"q1",
        value=b"x",
    ),
    "1001 1a020803": MarkerV1(queue_id=b"q1", type=MarkerType.END, partition=3, offset=0),
    "1002 1a0310c506 20b817": MarkerV1(
        queue_id=b"q1", type=MarkerType.KEEP_ALIVE, partition=0, offset=837, redeliver_after_ms=3_000
    ),
    "1a00": MarkerV1(queue_id=b"q1", type=MarkerType.START, partition=0, offset=0),
}


@pytest.mark.parametrize(("data", "marker"), KAFKA_MQ_GO.items())
def test_markers_of_kafka_mq_go_are_read_and_written_to_the_byte(data: str, marker: MarkerV1) -> None:
    assert decode(b"q1", bytes.fromhex(data)) == marker
    assert encode_v1(marker) == bytes.fromhex(data)


markers_v1 = st.builds(
    MarkerV1,
    queue_id=st.binary(min_size=1, max_size=8),
    type=st.sampled_from([MarkerType.START, MarkerType.END, MarkerType.KEEP_ALIVE]),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, OFFSET_LIMIT - 1),
    redeliver_after_ms=st.integers(0, MAX_LEASE_MS),
    key=st.binary(max_size=8),
    value=st.binary(max_size=8),
)


@settings(max_examples=60, deadline=None)
@given(markers_v1)
def test_a_marker_of_version_1_survives_its_bytes(marker: MarkerV1) -> None:
    assert decode(marker.queue_id, encode_v1(marker)) == marker


# ---- version 2


def test_each_marker_class_has_the_stored_number_of_its_name() -> None:
    numbers = {"".join(part.title() for part in one.name.split("_")): one.value for one in MarkerType}
    assert set(numbers) == {one.__name__ for one in get_args(Marker)}
    for marker in (Seek(cell=CELL, position=4), OpenBreaker(cell=CELL, trip="t"), Delete(cell=CELL)):
        assert MarkerPb.FromString(encode(marker)).type == numbers[type(marker).__name__]


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
cell_names = st.text("aZ09._-", min_size=1, max_size=12).filter(lambda name: name.strip("."))
cells = st.builds(Cell, subscription=cell_names, topic=cell_names, partition=st.integers(0, 2**31 - 1))
sets = st.builds(OffsetSet.from_offsets, st.frozensets(st.integers(0, OFFSET_LIMIT - 1), max_size=12))
counts = st.integers(1, MAX_DELIVERY_COUNT)
spans_ms = st.integers(0, MAX_LEASE_MS)
positions = st.integers(0, OFFSET_LIMIT)
reasons = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
topic_ids = st.none() | names


def block(cell: Cell, offsets: OffsetSet, count: int, before: int) -> Block:
    behind = tuple(max(0, one - before) for one in offsets)
    return Block(cell=cell, offsets=offsets, behind=behind, delivery_count=count)


limits = st.builds(
    Limits,
    rate=st.none() | st.floats(LEAST_RATE, MAX_RATE),
    max_outstanding=st.none() | st.integers(1, MAX_OUTSTANDING),
)
markers = st.one_of(
    st.builds(
        Start,
        cell=cells,
        offsets=sets,
        lease_ms=spans_ms,
        delivery_count=counts,
        run_id=names,
        alone=st.booleans(),
        topic_id=topic_ids,
    ),
    st.builds(
        End,
        cell=cells,
        offsets=sets,
        run_id=st.none() | names,
        no_message=st.booleans(),
        topic_id=topic_ids,
    ),
    st.builds(
        KeepAlive,
        cell=cells,
        offsets=sets,
        lease_ms=spans_ms,
        delivery_count=counts,
        run_id=st.none() | names,
        topic_id=topic_ids,
    ),
    st.builds(KeepAlive, cell=cells, offsets=sets, lease_ms=spans_ms, run_id=names),
    st.builds(
        Release,
        cell=cells,
        offsets=sets,
        delivery_count=counts,
        delay_ms=st.none() | spans_ms,
        reason=reasons,
        due_ms=st.none() | st.integers(0, MAX_DUE_MS - 1),
        topic_id=topic_ids,
    ),
    st.builds(block, cells, sets.filter(lambda some: 0 not in some), counts, st.integers(1, 2**62)),
    st.builds(Reject, cell=cells, offsets=sets, delivery_count=counts, reason=reasons, topic_id=topic_ids),
    st.builds(EndUpTo, cell=cells, position=positions, run_id=st.none() | names),
    st.builds(EndLeased, cell=cells, offsets=sets, run_id=names, delivery_count=counts),
    st.builds(Leave, cell=cells, offsets=sets, delivery_count=counts, run_id=st.none() | names),
    st.builds(Seek, cell=cells, position=positions),
    st.builds(Hello, cell=cells, run_id=names, position=positions, topic_id=st.none() | names),
    st.builds(CloseBreaker, cell=cells),
    st.builds(Pause, cell=cells),
    st.builds(EndPause, cell=cells),
    st.builds(SetLimits, cell=cells, limits=limits),
    st.builds(Requeue, cell=cells, offsets=sets),
    st.builds(MemberLost, cell=cells, run_id=names, lost_run_id=names),
    st.builds(SaveState, cell=cells, name=names, move=st.just("") | names),
    st.builds(
        RestoreState,
        cell=cells,
        name=names,
        move=st.just("") | names,
        next_marker=st.none() | positions,
    ),
    st.builds(ForgetState, cell=cells, name=names),
    st.builds(OpenBreaker, cell=cells, trip=names),
    st.builds(EndOffsetObserved, cell=cells, position=positions),
    st.builds(Delete, cell=cells),
    st.builds(
        Withhold,
        cell=cells,
        offsets=sets,
        delivery_count=st.just(0) | counts,
        reason=reasons,
        error=reasons,
        last_delivery_ms=st.integers(0, 2**53),
        trouble=names,
        tries=st.integers(1, 10**6),
        delay_ms=spans_ms,
    ),
)
MOVE = "0123456789abcdef0123456789abcdef"
GOLDEN_MARKERS: dict[str, Marker] = {
    "start": Start(cell=CELL, offsets=SOME, lease_ms=60_000, delivery_count=2, run_id=RUN),
    "start_of_suspects": Start(
        cell=CELL, offsets=SOME, lease_ms=60_000, delivery_count=4, run_id=RUN, alone=True
    ),
    "end": End(cell=CELL, offsets=SOME),
    "end_of_gaps": End(cell=CELL, offsets=SOME, no_message=True),
    "end_of_a_run": End(cell=CELL, offsets=SOME, run_id=RUN),
    "keep_alive_of_a_run": KeepAlive(cell=CELL, offsets=SOME, lease_ms=60_000, run_id=RUN),
    "keep_alive_of_a_holder": KeepAlive(cell=CELL, offsets=SOME, lease_ms=90_000, delivery_count=2),
    "release": Release(cell=CELL, offsets=SOME, delivery_count=1, delay_ms=None, reason="boom"),
    "release_now": Release(cell=CELL, offsets=SOME, delivery_count=1, delay_ms=0),
    "release_not_due": Release(cell=CELL, offsets=SOME, delivery_count=1, due_ms=1_700_000_000_250),
    "block": Block(
        cell=CELL, offsets=OffsetSet.of((5, 7), (70_000, 70_001)), behind=(4, 4, 0), delivery_count=2
    ),
    "reject": Reject(cell=CELL, offsets=SOME, delivery_count=3, reason="no such customer"),
    "end_up_to": EndUpTo(cell=CELL, position=70_000),
    "end_up_to_of_a_run": EndUpTo(cell=CELL, position=70_000, run_id=RUN),
    "end_leased": EndLeased(cell=CELL, offsets=SOME, run_id=RUN, delivery_count=2),
    "leave": Leave(cell=CELL, offsets=SOME, delivery_count=2),
    "leave_of_a_run": Leave(cell=CELL, offsets=SOME, delivery_count=2, run_id=RUN),
    "start_of_a_topic": Start(
        cell=CELL, offsets=SOME, lease_ms=60_000, delivery_count=1, run_id=RUN, topic_id=TOPIC_ID
    ),
    "end_of_a_topic": End(cell=CELL, offsets=SOME, topic_id=TOPIC_ID),
    "keep_alive_of_a_topic": KeepAlive(
        cell=CELL, offsets=SOME, lease_ms=90_000, delivery_count=2, topic_id=TOPIC_ID
    ),
    "release_of_a_topic": Release(
        cell=CELL, offsets=SOME, delivery_count=1, delay_ms=0, reason="boom", topic_id=TOPIC_ID
    ),
    "reject_of_a_topic": Reject(
        cell=CELL, offsets=SOME, delivery_count=3, reason="no such customer", topic_id=TOPIC_ID
    ),
    "seek": Seek(cell=CELL, position=0),
    "hello": Hello(cell=CELL, run_id=RUN, position=1_234),
    "resume": CloseBreaker(cell=CELL),
    "pause": Pause(cell=CELL),
    "end_pause": EndPause(cell=CELL),
    "limits": SetLimits(cell=CELL, limits=Limits(rate=2.5, max_outstanding=70)),
    "limits_removed": SetLimits(cell=CELL, limits=NO_LIMITS),
    "requeue": Requeue(cell=CELL, offsets=SOME),
    "member_lost": MemberLost(cell=CELL, run_id=RUN, lost_run_id="00000000000000000000000000000001.2"),
    "save": SaveState(cell=CELL, name="before release 7"),
    "restore": RestoreState(cell=CELL, name="before release 7"),
    "save_before_a_move": SaveState(cell=CELL, name="undo", move=MOVE),
    "restore_of_a_state": RestoreState(cell=CELL, name="undo", move=MOVE, next_marker=801),
    "forget": ForgetState(cell=CELL, name="before release 7"),
    "hold": OpenBreaker(cell=CELL, trip="1700000000000@orders,3"),
    "log_end": EndOffsetObserved(cell=CELL, position=70_001),
    "delete": Delete(cell=CELL),
    "withhold": Withhold(
        cell=CELL,
        offsets=SOME,
        delivery_count=5,
        reason="rejected",
        error="no such customer",
        last_delivery_ms=1_700_000_000_250,
        trouble="MSG_SIZE_TOO_LARGE: Broker: Message size too large",
        tries=2,
        delay_ms=20_000,
    ),
}


@settings(max_examples=150, deadline=None)
@given(markers)
def test_a_marker_survives_its_bytes(marker: Marker) -> None:
    assert decode(marker.cell.key, encode(marker)) == marker
    assert decode_folded(encode(marker)) == marker


@pytest.mark.parametrize("name", GOLDEN_MARKERS)
def test_markers_of_version_2_are_read_for_ever(name: str) -> None:
    assert decode(CELL.key, (GOLDEN / f"marker_v2_{name}.bin").read_bytes()) == GOLDEN_MARKERS[name]


def test_every_golden_marker_has_a_test() -> None:
    assert {path.stem for path in GOLDEN.glob("marker_v2_*")} == {
        f"marker_v2_{name}" for name in GOLDEN_MARKERS
    }


@pytest.mark.parametrize(
    "limits", [Limits(rate=0.0), Limits(rate=-1.0), Limits(rate=float("inf")), Limits(max_outstanding=0)]
)
def test_limits_that_cannot_be_are_no_marker(limits: Limits) -> None:
    with pytest.raises(InvalidMarker, match="is not between"):
        decode(CELL.key, encode(SetLimits(cell=CELL, limits=limits)))


def test_a_million_acks_in_random_order_are_one_record() -> None:
    acked = OffsetSet.from_offsets(np.random.default_rng(3).integers(0, 10**7, size=10**6, dtype=np.uint64))
    data = encode(End(cell=CELL, offsets=acked))
    assert len(data) < 1_300_000
    assert decode(CELL.key, data) == End(cell=CELL, offsets=acked)


@pytest.mark.parametrize("reason", ["x" * 10_000, "\N{PILE OF POO}" * 600, "half a pair \udcff", "\ud800"])
def test_any_text_may_be_a_reason(reason: str) -> None:
    for marker in (
        Release(cell=CELL, offsets=SOME, delivery_count=1, reason=reason),
        Reject(cell=CELL, offsets=SOME, delivery_count=1, reason=reason),
    ):
        kept = decode(CELL.key, encode(marker))
        assert isinstance(kept, Release | Reject)
        assert 0 < len(kept.reason) <= MAX_REASON
        assert kept.reason == reason[:MAX_REASON].replace("\udcff", "?").replace("\ud800", "?")


# ---- strictness


def v2(**change: object) -> bytes:
    """An End of version 2, with changes; a change to None leaves the field out."""
    fields: dict[str, object] = {
        "version": V2,
        "type": MarkerType.END,
        "message_id": MessageId(partition=3),
        "subscription": "billing",
        "topic": "orders",
        "offsets": SOME.to_roaring(),
        "delivery_count": 1,
        "run_id": "r",
        "position": 9,
        "reason": "why",
    }
    fields |= change
    return MarkerPb(**fields).SerializeToString()  # type: ignore[arg-type]


def blocked(**change: object) -> bytes:
    """A Block of the offsets 5 and 9, each behind the offset before it, with changes."""
    fields: dict[str, object] = {
        "type": MarkerType.BLOCK,
        "offsets": OffsetSet.from_offsets([5, 9]).to_roaring(),
        "behind": [1, 1],
    }
    return v2(**fields | change)


def test_a_block_of_the_strictness_tests_is_read_when_it_is_not_changed() -> None:
    marker = decode(CELL.key, blocked(behind=[5, 9]))
    assert isinstance(marker, Block)
    assert (marker.behind, marker.behind_of(9), marker.behind_of(8)) == ((0, 0), 0, None)


@pytest.mark.parametrize("kind", range(11))
def test_each_type_is_read_when_nothing_is_missing(kind: int) -> None:
    decode(CELL.key, v2(type=kind))


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        pytest.param(None, v2(), "no key", id="a null key"),
        pytest.param(b"q1", None, "no value", id="a null value"),
        pytest.param(b"q1", b"", "no value", id="an empty value"),
        pytest.param(b"q1", b"\xff\xff\xff", "not a protobuf", id="random bytes"),
        pytest.param(b"q1", b"hello, world", "not a protobuf", id="text"),
        pytest.param(CELL.key, v2()[:-1], "not a protobuf", id="cut short"),
        pytest.param(CELL.key, v2(message_id=None), "no message id", id="no message id"),
        pytest.param(b"q1", bytes.fromhex("1001"), "no message id", id="no message id, version 1"),
        pytest.param(CELL.key, v2(message_id=MessageId(partition=-1)), "negative", id="a negative partition"),
        pytest.param(
            CELL.key, v2(message_id=MessageId(partition=3, offset=-1)), "negative", id="a negative offset"
        ),
        pytest.param(
            b"q1",
            MarkerPb(message_id=MessageId(partition=-1)).SerializeToString(),
            "negative",
            id="a negative partition, version 1",
        ),
        pytest.param(
            b"q1",
            MarkerPb(message_id=MessageId(offset=-1)).SerializeToString(),
            "negative",
            id="a negative offset, version 1",
        ),
        pytest.param(
            b"q1",
            MarkerPb(message_id=MessageId(offset=2**63 - 1)).SerializeToString(),
            "beyond",
            id="an offset that has no next one",
        ),
        pytest.param(CELL.key, v2(version=2), "version 2 is unknown", id="version 2, which nobody knows"),
        pytest.param(CELL.key, v2(version=-1), "version -1 is unknown", id="a negative version"),
        pytest.param(CELL.key, v2(type=99), "type 99 is unknown", id="an unknown type"),
        pytest.param(CELL.key, v2(type=-1), "type -1 is unknown", id="a negative type"),
        pytest.param(
            CELL.key, v2(version=V1, type=3), "unknown in version 1", id="a type that version 1 has not"
        ),
        pytest.param(b"", bytes.fromhex("1001 1a020803"), "no queue", id="an empty queue id"),
        pytest.param(CELL.key, v2(subscription=None), "no cell", id="no subscription"),
        pytest.param(CELL.key, v2(topic=None), "no cell", id="no topic"),
        pytest.param(b"billing,orders,4", v2(), "not the cell", id="the key of another cell"),
        pytest.param(b"\xff\xfe", v2(), "not the cell", id="a key that is no text"),
        pytest.param(b"billing,orders,,3", v2(topic="orders,"), "no name", id="a topic with a comma"),
        pytest.param(b"billing,..,3", v2(topic=".."), "no name", id="a topic that is a directory"),
        pytest.param(b"billing," + b"t" * 250 + b",3", v2(topic="t" * 250), "at most", id="a long topic"),
        pytest.param(b"bil,ling,orders,3", v2(subscription="bil,ling"), "no name", id="a comma before it"),
        pytest.param(b"sl/ash,orders,3", v2(subscription="sl/ash"), "no name", id="a slash"),
        pytest.param(CELL.key, v2(offsets=None), "bitmap", id="no offsets"),
        pytest.param(CELL.key, v2(offsets=b"\x01" + bytes(7)), "bitmap", id="a bitmap that is cut short"),
        pytest.param(CELL.key, v2(offsets=EMPTY.to_roaring() + b"x"), "bitmap", id="more than a bitmap"),
        pytest.param(
            CELL.key,
            v2(offsets=bytes.fromhex("0100000000000000 00000000 3b300000 01 0000 1000 0100 0500 5e00")),
            "bitmap",
            id="a bitmap with the wrong cardinality",
        ),
        pytest.param(
            CELL.key,
            v2(offsets=bytes.fromhex("0100000000000000 00000080 3a300000 01000000 0000 0000 10000000 0000")),
            "outside",
            id="offset 2**63",
        ),
        pytest.param(CELL.key, v2(type=0, delivery_count=None), "lacks", id="a Start without a count"),
        pytest.param(CELL.key, v2(type=0, run_id=None), "lacks", id="a Start without a run"),
        pytest.param(
            CELL.key, v2(type=0, run_id=None, delivery_count=None), "lacks", id="a Start without both"
        ),
        pytest.param(
            CELL.key, v2(type=2, run_id=None, delivery_count=None), "lacks", id="a KeepAlive without both"
        ),
        pytest.param(CELL.key, v2(type=3, delivery_count=None), "lacks", id="a Release without a count"),
        pytest.param(CELL.key, v2(type=4, delivery_count=None), "lacks", id="a Reject without a count"),
        pytest.param(CELL.key, blocked(delivery_count=None), "lacks", id="a Block without a count"),
        pytest.param(CELL.key, blocked(behind=[1]), "does not tell for each", id="a Block that tells less"),
        pytest.param(
            CELL.key, blocked(behind=[1, 1, 1]), "does not tell for each", id="a Block that tells more"
        ),
        pytest.param(CELL.key, blocked(behind=[]), "does not tell for each", id="a Block that tells nothing"),
        pytest.param(CELL.key, blocked(behind=[0, 1]), "not before it", id="a Block of a message by itself"),
        pytest.param(
            CELL.key, blocked(behind=[1, 10]), "not before it", id="a Block behind what is before offset 0"
        ),
        pytest.param(
            CELL.key, blocked(behind=[1, 2**64 - 1]), "not before it", id="a Block behind a far offset"
        ),
        pytest.param(CELL.key, v2(type=13, delivery_count=None), "lacks", id="an EndLeased without a count"),
        pytest.param(CELL.key, v2(type=13, run_id=None), "lacks", id="an EndLeased without a run"),
        pytest.param(CELL.key, v2(type=14, delivery_count=None), "lacks", id="a Leave without a count"),
        pytest.param(CELL.key, v2(type=3, due_ms=-1), "1970", id="a Release that is due before 1970"),
        pytest.param(CELL.key, v2(type=7, run_id=None), "lacks", id="a Hello without a run"),
        pytest.param(CELL.key, v2(type=9, reason=None), "lacks", id="a OpenBreaker without a trip"),
        pytest.param(CELL.key, v2(type=12, tries=1), "lacks", id="a Withhold without a trouble"),
        pytest.param(CELL.key, v2(type=12, trouble="no"), "lacks", id="a Withhold without a try"),
        pytest.param(
            CELL.key,
            v2(type=12, trouble="no", tries=1, last_delivery_ms=-1),
            "lacks",
            id="a Withhold of before 1970",
        ),
        pytest.param(
            CELL.key, v2(type=10, position=None), "no position", id="a EndOffsetObserved without a position"
        ),
        pytest.param(CELL.key, v2(type=5, position=None), "no position", id="an EndUpTo without a position"),
        pytest.param(CELL.key, v2(type=6, position=-1), "no position", id="a Seek before the beginning"),
        pytest.param(CELL.key, v2(type=7, position=None), "no position", id="a Hello without a position"),
        pytest.param(CELL.key, v2(delivery_count=2**32 - 1), "beyond belief", id="four billion deliveries"),
        pytest.param(
            CELL.key, v2(type=12, trouble="no", tries=2**32 - 1), "beyond belief", id="four billion tries"
        ),
    ],
)
def test_what_is_not_surely_a_marker_is_refused(key: bytes | None, value: bytes | None, why: str) -> None:
    with pytest.raises(InvalidMarker, match=why):
        decode(key, value)


def test_unknown_fields_are_accepted() -> None:
    assert decode(CELL.key, v2(run_id=None) + b"\xfa\x3f\x03abc") == End(cell=CELL, offsets=SOME)
    assert decode(b"q1", bytes.fromhex("1001 1a020803 fa3f03616263")) == MarkerV1(
        queue_id=b"q1", type=MarkerType.END, partition=3, offset=0
    )


def test_a_lease_or_delay_longer_than_twelve_hours_is_cut() -> None:
    day_ms = 24 * 3_600_000
    start = decode(CELL.key, v2(type=0, redeliver_after_ms=day_ms))
    keep_alive = decode(CELL.key, v2(type=2, redeliver_after_ms=2**64 - 1))
    release = decode(CELL.key, v2(type=3, delay_ms=2**64 - 1))
    first = decode(
        b"q1", encode_v1(MarkerV1(queue_id=b"q1", type=0, partition=0, offset=0, redeliver_after_ms=day_ms))
    )
    assert isinstance(start, Start)
    assert isinstance(keep_alive, KeepAlive)
    assert isinstance(release, Release)
    assert isinstance(first, MarkerV1)
    assert (
        start.lease_ms == keep_alive.lease_ms == release.delay_ms == first.redeliver_after_ms == MAX_LEASE_MS
    )


def test_no_delay_and_a_delay_of_zero_are_two_things() -> None:
    without = decode(CELL.key, v2(type=3))
    now = decode(CELL.key, v2(type=3, delay_ms=0))
    assert isinstance(without, Release)
    assert isinstance(now, Release)
    assert (without.delay_ms, now.delay_ms) == (None, 0)


# ---- anything at all


@settings(max_examples=300, deadline=None)
@given(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=80))
def test_random_bytes_are_a_marker_or_refused(key: bytes | None, value: bytes | None) -> None:
    check_total(key, value)


def test_thousands_of_damaged_markers_are_markers_or_refused() -> None:
    chance = random.Random(11)
    whole = [encode(marker) for marker in GOLDEN_MARKERS.values()] + [
        bytes.fromhex(data) for data in KAFKA_MQ_GO
    ]
    for _ in range(6_000):
        data = bytearray(chance.choice(whole))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(data))
            match chance.randrange(3):
                case 0:
                    data[at] = chance.randrange(256)
                case 1:
                    data[at:at] = chance.randbytes(2)
                case 2 if len(data) > 1:
                    del data[at]
        check_total(CELL.key, bytes(data))


def check_total(key: bytes | None, value: bytes | None) -> None:
    """It is a marker that can be written again, or InvalidMarker is raised, and nothing else."""
    try:
        marker = decode(key, value)
    except InvalidMarker:
        return
    if isinstance(marker, MarkerV1):
        assert decode(key, encode_v1(marker)) == marker
    else:
        assert decode_folded(encode(marker)) == marker
