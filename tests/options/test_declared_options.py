"""Declarations of options: each key is documented, is read, and has the default that it documents."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from spark_cursor_source.errors import InvalidArgument, InvalidOption
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.options.client import ClientOptions
from spark_cursor_source.options.declare import Option, documented_of
from spark_cursor_source.options.publish import EnqueueOptions
from spark_cursor_source.options.service import ServiceConfig
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.options.view import ViewOptions

BROKERS = {"kafka.bootstrap.servers": "b:9092"}
REQUIRED: dict[Any, dict[str, str]] = {
    SourceOptions: {**BROKERS, "subscribe": "orders", "subscription": "billing"},
    AckOptions: {**BROKERS, "subscription": "billing"},
    ViewOptions: {**BROKERS, "subscribe": "orders"},
    TrackerOptions: {**BROKERS, "checkpointLocation": "cp"},
    EnqueueOptions: BROKERS,
    ClientOptions: BROKERS,
}
DECLARED = [
    pytest.param(parsed, option, id=f"{parsed.__name__}-{option.name}")
    for parsed in REQUIRED
    for option in documented_of(parsed)
    if not option.name.startswith("kafka.")
]


def required_with(parsed: Any, option: Option) -> dict[str, str]:
    """The least options with which this one is read."""
    beside = {
        "backoff.min": {"backoff.max": "1m"},
        "backoff.max": {"backoff.min": "1s"},
        "backoff.multiplier": {"backoff.min": "1s", "backoff.max": "1m"},
        "queueTopic": {"redelivery": "reappend"},
    }
    selections = {"subscribePattern", "assign"}
    required = REQUIRED[parsed] | beside.get(option.name, {})
    return {
        name: value
        for name, value in required.items()
        if option.name not in selections or name != "subscribe"
    }


@pytest.mark.parametrize("parsed", REQUIRED)
def test_every_field_is_declared_with_a_meaning(parsed: Any) -> None:
    declared = {field.name for field in dataclasses.fields(parsed) if field.metadata}
    overrides = {"subscription_policies"} if parsed is TrackerOptions else set()
    assert declared | overrides == {field.name for field in dataclasses.fields(parsed)}
    assert all(option.doc for option in documented_of(parsed))


@pytest.mark.parametrize(("parsed", "option"), DECLARED)
def test_a_declared_option_is_read(parsed: Any, option: Option) -> None:
    with pytest.raises(InvalidOption) as refusal:
        parsed.parse({**required_with(parsed, option), option.name: ""})
    assert refusal.value.option == option.name


@pytest.mark.parametrize(("parsed", "option"), DECLARED)
def test_the_documented_default_is_the_default(parsed: Any, option: Option) -> None:
    if option.default is not None:
        without = required_with(parsed, option)
        assert parsed.parse({**without, option.name: option.default}) == parsed.parse(without)


@pytest.mark.parametrize("parsed", REQUIRED)
def test_an_option_is_declared_once(parsed: Any) -> None:
    names = [option.name for option in documented_of(parsed)]
    assert sorted(names) == sorted(set(names))


def test_each_field_of_a_service_is_declared_once_with_a_meaning() -> None:
    documented = documented_of(ServiceConfig)
    assert [option.name for option in documented] == [
        field.name for field in dataclasses.fields(ServiceConfig)
    ]
    assert all(option.doc for option in documented)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("message_topic", "no/topic"),
        ("group_id_prefix", "a,b"),
        ("isolation", "serializable"),
        ("timeout_ms", 0),
        ("redelivery_timeout_ms", 0.5 * 60_000),
        ("consumer_receive_buffer_capacity", True),
        ("session_timeout_ms", "10000"),
        ("delayed_delivery", "false"),
        ("fail_on_data_loss", 0),
    ],
)
def test_a_field_of_a_service_is_checked(field: str, value: object) -> None:
    given: dict[str, Any] = {"bootstrap_servers": "b:9092", "message_topic": "jobs", field: value}
    with pytest.raises(InvalidArgument) as refused:
        ServiceConfig(**given)
    assert (refused.value.argument, refused.value.value) == (field, value)
