"""The verbs that write messages and print logs: produce, tail, markers, cursor, top."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable

import pytest

from spark_cursor_source.admin import read_markers, read_tail
from spark_cursor_source.cli import main
from spark_cursor_source.cli.top import Round, rows_of
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, Totals
from spark_cursor_source.core.stats import PartitionStats, Stats, SubscriptionStats
from spark_cursor_source.errors import TopicNotFound
from tests.cli.conftest import Says
from tests.client.conftest import Rig, receive
from tests.kafka.control_plane import produce, read_all
from tests.waiting import wait_until


@pytest.mark.broker
def test_messages_are_produced_and_followed_to_their_markers(
    make_rig: Callable[..., Rig], says_of: Callable[[Rig], Says], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig(1)
    says = says_of(rig)
    assert says("produce", "Q", "one", "two", "--key", "k", "--header", "trace=7") == ["2 messages in Q"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"three\n")))
    assert json.loads("".join(says("produce", "Q", "--json"))) == {"topic": "Q", "messages": 1}
    assert [line.split("  ")[1:3] for line in says("tail", "Q")] == [
        [f"Q/0/{offset}", "unread"] for offset in range(3)
    ]
    rig.tracker()
    produce(rig.control.config, rig.control.markers, [{"key": b"k", "value": b"no marker"}])
    consumer = rig.consumer()
    messages = receive(consumer, 3)
    assert list(messages[0].headers) == [("trace", b"7")]
    messages[0].ack()
    messages[1].nack(600_000, reason="Timeout\x1b[2J")
    wait_until(lambda: (now := rig.cursor()) is not None and bool(now.delayed) and now.totals.acked == 1)

    lines = says("tail", "Q", "--payload", "--last", "2")
    assert [re.sub(r"^\S+ \S+  ", "", line) for line in lines] == [
        "Q/0/1  s=delayed(1)  4 bytes  key 'k'  two",
        "Q/0/2  s=leased(1)  5 bytes  three",
    ]
    first = json.loads(says("tail", "Q", "--json")[0])
    assert (first["key"], first["value"], first["states"]) == ("k", None, {"s": "settled"})
    check_the_markers(rig, says)
    check_what_follows(rig)

    assert says("produce", "Q", "late", "--deliver-after", "1h") == ["1 message in Q"]
    assert says("produce", "Q", "late", "--deliver-after", "soon", code=1)[0].startswith(
        "cursorq: 'soon' is no"
    )
    assert says("top", "--rounds", "1")[1].split()[:2] == ["Q", "s"]
    assert json.loads(says("top", "--rounds", "1", "--json")[0])[0]["backlog"] == 4
    assert says("cursor", "get", "mailer", "Q") == ["-1"]
    assert says("cursor", "set", "mailer", "Q", "41") == ["41"]
    assert json.loads("".join(says("cursor", "get", "mailer", "Q", "--json")))["offset"] == 41
    assert "belongs to" in says("cursor", "set", "s", "Q", "41", code=1)[0]


@pytest.mark.broker
def test_bytes_that_are_no_text_are_produced_as_they_are(
    make_rig: Callable[..., Rig], says_of: Callable[[Rig], Says], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig(1)
    says = says_of(rig)
    # What Python makes of the bytes ff, fe and fd in an argument.
    says("produce", "Q", "one\udcff", "--key", "\udcfe", "--header", "trace=\udcfd")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"two\xff\r\nthree\n\nlast")))
    assert says("produce", "Q") == ["4 messages in Q"]
    found = read_all(rig.control.config, rig.topic)
    assert [message.value() for message in found] == [b"one\xff", b"two\xff", b"three", b"", b"last"]
    assert (found[0].key(), found[0].headers()) == (b"\xfe", [("trace", b"\xfd")])


def check_the_markers(rig: Rig, says: Says) -> None:
    lines = [re.sub(r"^\S+ \S+  \d/\d+ +| run \w+", "", line) for line in says("markers", "--topic", "Q")]
    told = [re.sub(" +", " ", line) for line in lines]
    assert any(line.startswith("START s Q/0 0") and "delivery 1 lease" in line for line in told)
    assert [line for line in told if line.startswith("RELEASE")] == [
        "RELEASE s Q/0 1 delivery 1 delay 10m Timeout\\x1b[2J"
    ]
    assert [line for line in told if line.startswith("END ")] == ["END s Q/0 0"]
    (bad,) = says("markers", "--quarantined")
    assert bad.endswith("QUARANTINED the value is not a protobuf message of markers")
    (bad,) = map(json.loads, says("markers", "--quarantined", "--json"))
    assert (bad["kind"], bad["error"]) == ("QUARANTINED", "the value is not a protobuf message of markers")
    kinds = {json.loads(line)["kind"] for line in says("markers", "--subscription", "s", "--json")}
    assert {"START", "END", "RELEASE"} <= kinds
    of_another = read_markers(rig.control.config, markers_topic=rig.control.markers, subscription="other")
    assert [one for one in of_another if one.error is None] == []
    with pytest.raises(TopicNotFound):
        list(read_markers(rig.control.config, markers_topic="never-there"))


def check_what_follows(rig: Rig) -> None:
    """A follower that has read to the end goes on with what comes."""
    follower = read_tail(
        rig.control.config, rig.topic, last=1, follow=True, payload=True, cursors_topic=rig.control.cursors
    )
    assert next(follower).value == b"three"
    rig.send(b"four")
    assert next(follower).value == b"four"
    follower.close()  # type: ignore[attr-defined]


def subscription(name: str, *, acked: int, oldest_ms: int | None) -> SubscriptionStats:
    cursor = CursorSnapshot(
        cell=Cell(subscription=name, topic="t", partition=0),
        read_position=9,
        next_marker=0,
        totals=Totals(acked=acked),
    )
    part = PartitionStats.of(cursor, log_end=12, oldest_ms=oldest_ms)
    return SubscriptionStats(topic="t", subscription=name, partitions=(part,), consumers=(), newest_ms=10_000)


def test_top_sorts_by_age_and_knows_rates_from_the_second_look_on() -> None:
    first = Round(100.0, Stats(subscriptions=(subscription("a", acked=5, oldest_ms=9_000),)))
    now = Round(
        102.0,
        Stats(
            subscriptions=(
                subscription("a", acked=25, oldest_ms=None),
                subscription("b", acked=7, oldest_ms=4_000),
            )
        ),
    )
    assert [row[:4] for row in rows_of(None, first)] == [("t", "a", 1_000, 3)]
    assert [row[9] for row in rows_of(None, first)] == [None]
    assert [(row[1], row[2], row[9]) for row in rows_of(first, now)] == [
        ("b", 6_000, None),
        ("a", None, 10.0),
    ]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["produce", "t", "v", "--header", "x"], "not of the form NAME=VALUE"),
        (["markers", "--since", "yesterday"], "not an instant"),
        (["top", "--rounds", "0"], "--rounds"),
        (["cursor", "set", "c", "t", "x"], "OFFSET"),
    ],
)
def test_what_cannot_be_is_wrong_usage(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err
