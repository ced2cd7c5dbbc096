"""What rows carry of the options of their source: enough for a sink, and no secret."""

from __future__ import annotations

import json

import pytest

from spark_cursor_source.errors import AckedBySource, OptionsNotCarried, SinkOfAnotherSource
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.options.row_origin import METADATA, RowOrigin
from spark_cursor_source.options.source import AckMode, SourceOptions

OPTIONS = {"kafka.bootstrap.servers": "b:9092", "subscribe": "orders", "subscription": "billing"}
CANARY = "hunter2-canary"


def origin(**more: str) -> RowOrigin:
    """What comes back of what the rows of such a source carry."""
    carried = RowOrigin.of(SourceOptions.parse(OPTIONS | more)).to_metadata()
    found = RowOrigin.from_metadata({METADATA: json.loads(json.dumps(carried))})
    assert found is not None
    return found


def sink(**more: str) -> AckOptions:
    return AckOptions.parse(OPTIONS | more)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"markersTopic": "m", "cursorsTopic": "c", "leaseTimeout": "5s"},
        {"markerFormat": "v1", "markersTopic": "m"},
        {"kafka.security.protocol": "SSL", "kafka.ssl.ca.location": "/ca.pem"},
        {"kafka.config.file": "/etc/kafka.properties"},
    ],
    ids=str,
)
def test_a_sink_without_options_has_those_of_its_source(more: dict[str, str]) -> None:
    assert AckOptions.parse(origin(**more).sink_options()) == sink(**more)
    origin(**more).check(sink(**more))


@pytest.mark.parametrize(
    "option",
    ["kafka.sasl.jaas.config", "kafka.sasl.password", "kafka.ssl.key.pem", "kafka.ssl.truststore.password"],
)
def test_no_secret_travels_with_rows_and_a_sink_without_it_says_what_is_missing(option: str) -> None:
    carried = origin(**{option: CANARY})
    assert CANARY not in json.dumps(carried.to_metadata())
    with pytest.raises(OptionsNotCarried, match=rf"{option}\. Give the sink the options"):
        carried.sink_options()


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (
            {"subscription": "bilingg"},
            "subscription=billing, and this sink has subscription=bilingg.*or none",
        ),
        ({"markersTopic": "m"}, "markersTopic=__cursorq_markers, and this sink has markersTopic=m"),
        ({"markerFormat": "v1"}, "markerFormat=v2, and this sink has markerFormat=v1"),
    ],
    ids=str,
)
def test_a_sink_of_another_source_is_refused(more: dict[str, str], text: str) -> None:
    with pytest.raises(SinkOfAnotherSource, match=text):
        origin().check(sink(**more))
    assert not origin().is_of(sink(**more))


def test_a_sink_may_differ_in_what_its_acks_do_not_depend_on() -> None:
    others = {"kafka.bootstrap.servers": "elsewhere:9092", "leaseTimeout": "5s", "subscribe": "more"}
    origin().check(sink(**others))


@pytest.mark.parametrize("more", [{"ackMode": "cumulative"}, {"ackMode": "batch", "markerFormat": "v1"}])
def test_a_sink_is_refused_where_the_source_would_end_what_it_gives_back(more: dict[str, str]) -> None:
    version = {name: value for name, value in more.items() if name == "markerFormat"}
    with pytest.raises(AckedBySource, match=f"ackMode={more['ackMode']}"):
        origin(**more).check(sink(**version))


def test_a_sink_settles_the_exceptions_of_a_source_that_acks_by_batch() -> None:
    origin(ackMode="batch").check(sink())
    assert origin(ackMode="batch").ack_mode is AckMode.BATCH


@pytest.mark.parametrize(
    "metadata", [{}, {METADATA: "billing"}, {METADATA: {}}, {METADATA: {"subscription": 5}}], ids=str
)
def test_a_column_of_something_else_says_nothing_of_a_source(metadata: dict[str, object]) -> None:
    assert RowOrigin.from_metadata(metadata) is None
