"""A checkpoint belongs to its subscription and control topics; no broker is asked before that is known."""

from __future__ import annotations

from typing import Any

import pytest

from spark_cursor_source.core.batch import SourceOffset
from spark_cursor_source.errors import CheckpointOfAnother, InvalidOffset
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.spark.reader import CursorqStreamReader
from spark_cursor_source.wire import offset_json

POSITION = SourceOffset(queue={("orders", 0): 35}, redeliveries={0: 7}, topic_ids={"orders": "x"})
OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders", "subscription": "billing"}


def options(**more: str) -> SourceOptions:
    return SourceOptions.parse(OPTIONS | more)


def stored_by(writer: SourceOptions) -> dict[str, Any]:
    return offset_json.encode(POSITION, writer.checkpoint_owner)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (
            {"subscription": "mails"},
            r"with subscription=billing, and the query has subscription=mails.* skip messages.*"
            r"its own checkpointLocation, or set subscription=billing",
        ),
        ({"markersTopic": "m"}, "markersTopic=__cursorq_markers, and the query has markersTopic=m"),
        ({"redeliveriesTopic": "r"}, "redeliveriesTopic=r"),
        ({"cursorsTopic": "c"}, "cursorsTopic=c"),
    ],
    ids=str,
)
@pytest.mark.parametrize("question", ["latestOffset", "partitions", "commit"])
def test_a_checkpoint_of_another_query_is_refused_at_every_question(
    question: str, changed: dict[str, str], text: str
) -> None:
    reader, stored = CursorqStreamReader(options(**changed)), stored_by(options())
    ask = {
        "latestOffset": lambda: reader.latestOffset(stored, reader.getDefaultReadLimit()),
        "partitions": lambda: reader.partitions(stored, stored),
        "commit": lambda: reader.commit(stored),
    }
    with pytest.raises(CheckpointOfAnother, match=text):
        ask[question]()


def test_a_v1_checkpoint_of_another_subscription_is_refused_too() -> None:
    mine, other = options(markerFormat="v1"), options(markerFormat="v1", subscription="mails")
    reader = CursorqStreamReader(other)
    with pytest.raises(CheckpointOfAnother, match="subscription=billing"):
        reader.latestOffset(stored_by(mine), reader.getDefaultReadLimit())


@pytest.mark.parametrize(
    "same",
    [{}, {"leaseTimeout": "5s", "ackMode": "batch"}, {"subscribe": "orders,more"}, {"markerFormat": "v1"}],
    ids=str,
)
def test_other_options_may_change(same: dict[str, str]) -> None:
    options(**same).checkpoint_owner.check(offset_json.owner_of(stored_by(options())))


def test_a_checkpoint_of_an_older_version_names_nobody_and_is_anybodys() -> None:
    old = offset_json.encode(POSITION)
    assert "owner" not in old
    options().checkpoint_owner.check(offset_json.owner_of(old))
    assert offset_json.decode(stored_by(options())) == offset_json.decode(old) == POSITION


@pytest.mark.parametrize("owner", ["billing", ["billing"], {"subscription": 5}], ids=str)
def test_an_owner_that_is_none_is_refused(owner: object) -> None:
    with pytest.raises(InvalidOffset, match="none of cursorq's"):
        offset_json.owner_of(offset_json.encode(POSITION) | {"owner": owner})
