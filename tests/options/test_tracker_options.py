"""Tracker options: the same from a TOML file and from a flat dict, with overrides by subscription."""

import tomllib
from typing import Any

import pytest

from spark_cursor_source.core.breaker import BreakerPolicy
from spark_cursor_source.core.policy import (
    NO_BACKOFF,
    ExpiredTo,
    ExponentialBackoff,
    RedeliveryPolicy,
    StepBackoff,
)
from spark_cursor_source.errors import (
    ConflictingOptions,
    InvalidOption,
    MissingOption,
    OptionsError,
    UnknownOption,
)
from spark_cursor_source.options.reappend import MarkerFormat, ReappendOptions
from spark_cursor_source.options.tracker import TrackerOptions

BASE = {"kafka.bootstrap.servers": "b:9092", "checkpointLocation": "cp"}
SECRET = "hunter2-do-not-tell"


def tracker(**given: Any) -> TrackerOptions:
    return TrackerOptions.parse({**BASE, **given})


def test_a_tracker_needs_brokers_and_a_checkpoint_and_has_defaults_for_the_rest() -> None:
    options = TrackerOptions.parse(BASE)
    assert options.policy == RedeliveryPolicy(
        max_deliveries=5, backoff=NO_BACKOFF, dead_letter_topic="{topic}-{subscription}-DLQ"
    )
    assert (options.checkpoint_location, options.trigger_ms, options.max_markers_per_trigger) == (
        "cp",
        1_000,
        200_000,
    )
    assert (options.take_over, options.subscription_policies) == (False, ())
    topics = (options.markers_topic, options.redeliveries_topic, options.cursors_topic)
    assert topics == ("__cursorq_markers", "__cursorq_redeliveries", "__cursors")


def test_a_toml_file_and_a_flat_dict_say_the_same() -> None:
    toml = tomllib.loads("""
        checkpointLocation = "cp"
        maxDeliveries = 7
        backoff = ["1s", "10s"]
        backoffJitter = 0.2
        takeOver = true
        maxMarkersPerTrigger = 1000
        trigger = "2s"
        messageTtl = "1d"
        breaker = "100/1m"
        [kafka]
        "bootstrap.servers" = "b:9092"
        ssl.ca.location = "ca.pem"
        [subscriptions.billing]
        messageTtl = "2h"
        expiredTo = "dead-letters"
        breakerPause = "none"
        maxDeliveries = 0
        backoff = { min = "1s", max = "1m", multiplier = 3 }
        backoffJitter = 1
        [subscriptions."eu.west"]
        messageTtl = "none"
        breaker = "none"
        deadLetterTopic = "dead"
        backoff = []
    """)
    flat = {
        **BASE,
        "kafka.ssl.ca.location": "ca.pem",
        "maxDeliveries": "7",
        "backoff": "1s,10s",
        "backoffJitter": "0.2",
        "takeOver": "true",
        "maxMarkersPerTrigger": "1000",
        "trigger": "2s",
        "messageTtl": "1d",
        "breaker": "100/1m",
        "subscriptions.billing.messageTtl": "2h",
        "subscriptions.billing.expiredTo": "dead-letters",
        "subscriptions.billing.breakerPause": "none",
        "subscriptions.eu.west.messageTtl": "none",
        "subscriptions.eu.west.breaker": "none",
        "subscriptions.billing.maxDeliveries": "0",
        "subscriptions.billing.backoff.min": "1s",
        "subscriptions.billing.backoff.max": "1m",
        "subscriptions.billing.backoff.multiplier": "3",
        "subscriptions.billing.backoffJitter": "1",
        "subscriptions.eu.west.deadLetterTopic": "dead",
        "subscriptions.eu.west.backoff": "none",
    }
    options = TrackerOptions.parse(toml)
    assert options == TrackerOptions.parse(flat)
    assert dict(options.kafka) == {"bootstrap.servers": "b:9092", "ssl.ca.location": "ca.pem"}
    assert options.take_over
    steps = StepBackoff(delays_ms=(1_000, 10_000))
    assert options.policy_for("shipping") == RedeliveryPolicy(
        max_deliveries=7,
        backoff=steps,
        jitter=0.2,
        message_ttl_ms=86_400_000,
        breaker=BreakerPolicy(limit=100, window_ms=60_000, pause_ms=600_000),
    )
    growing = ExponentialBackoff(min_ms=1_000, max_ms=60_000, multiplier=3)
    assert options.policy_for("billing") == RedeliveryPolicy(
        max_deliveries=None,
        backoff=growing,
        jitter=1.0,
        message_ttl_ms=7_200_000,
        expired_to=ExpiredTo.DEAD_LETTERS,
        breaker=BreakerPolicy(limit=100, window_ms=60_000, pause_ms=None),
    )
    dead = RedeliveryPolicy(max_deliveries=7, backoff=NO_BACKOFF, jitter=0.2, dead_letter_topic="dead")
    assert options.policy_for("eu.west") == dead


def test_zero_deliveries_mean_no_limit_and_none_given_means_five() -> None:
    assert tracker(maxDeliveries=0).policy.max_deliveries is None
    assert tracker().policy.max_deliveries == 5


def test_a_subscription_keeps_the_case_of_its_name() -> None:
    options = tracker(subscriptions={"Billing": {"MAXDELIVERIES": 1}})
    assert options.policy_for("Billing").max_deliveries == 1
    assert options.policy_for("billing").max_deliveries == 5


def test_an_exponential_backoff_doubles_unless_told() -> None:
    backoff = tracker(backoff={"min": "1s", "max": "4s"}).policy.backoff
    assert backoff == ExponentialBackoff(min_ms=1_000, max_ms=4_000, multiplier=2.0)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"maxDelivery": 1}, "maxDeliveries"),
        ({"checkpointlocations": "x"}, "checkpointLocation"),
        ({"subscriptions": {"billing": {"maxDelivery": 1}}}, "subscriptions.billing.maxDeliveries"),
        ({"subscriptions.a.b.backof": "1s"}, "subscriptions.a.b.backoff"),
        ({"backoff": {"minimum": "1s"}}, "backoff.min"),
    ],
)
def test_an_unknown_option_names_the_nearest_one(given: dict[str, Any], meant: str) -> None:
    with pytest.raises(UnknownOption) as refusal:
        tracker(**given)
    assert refusal.value.did_you_mean == meant


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"maxDeliveries": -1}, "maxDeliveries"),
        ({"backoff": "soon"}, "backoff"),
        ({"backoff": [1, 2]}, "backoff"),
        ({"backoff": "1s,"}, "backoff"),
        ({"backoff": "1s,13h"}, "backoff"),
        ({"backoff": {"min": "1s", "max": "13h"}}, "backoff.max"),
        ({"backoff": {"min": "13h", "max": "1d"}}, "backoff.min"),
        ({"backoff": {"min": "1s", "max": "2s", "multiplier": 0.5}}, "backoff.multiplier"),
        ({"backoff": {"min": "1s", "max": "2s", "multiplier": "nan"}}, "backoff.multiplier"),
        ({"backoff": {"min": "1s", "max": "2s", "multiplier": "x"}}, "backoff.multiplier"),
        ({"deadLetterTopic": "{x}"}, "deadLetterTopic"),
        ({"takeOver": "maybe"}, "takeOver"),
        ({"messageTtl": "999ms"}, "messageTtl"),
        ({"messageTtl": "0s"}, "messageTtl"),
        ({"expiredTo": "the-bin"}, "expiredTo"),
        ({"breaker": "100"}, "breaker"),
        ({"breaker": "0/1m"}, "breaker"),
        ({"breaker": "x/1m"}, "breaker"),
        ({"breaker": "100/1"}, "breaker"),
        ({"breaker": "100/0s"}, "breaker"),
        ({"breakerPause": "0s"}, "breakerPause"),
        ({"trigger": "1"}, "trigger"),
        ({"trigger": "now"}, "trigger"),
        ({"maxMarkersPerTrigger": 0}, "maxMarkersPerTrigger"),
        ({"subscriptions": {"billing": {"maxDeliveries": "x"}}}, "subscriptions.billing.maxDeliveries"),
        ({"subscriptions": {"a,b": {"maxDeliveries": 1}}}, "subscriptions.a,b.maxDeliveries"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_it_was_given_under(given: dict[str, Any], option: str) -> None:
    with pytest.raises(InvalidOption) as refusal:
        tracker(**given)
    assert refusal.value.option == option


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"checkpointLocation": "cp"}, "kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": "b:9092"}, "checkpointLocation"),
        ({**BASE, "backoff": {"min": "1s"}}, "backoff.max"),
        ({**BASE, "backoff": {"max": "1s"}}, "backoff.min"),
    ],
)
def test_what_must_be_given_is_asked_for(options: dict[str, object], missing: str) -> None:
    with pytest.raises(MissingOption) as refusal:
        TrackerOptions.parse(options)
    assert refusal.value.option == missing


@pytest.mark.parametrize(
    "given",
    [
        {"backoff": "1s", "backoff.min": "1s"},
        {"backoff": {"min": "2s", "max": "1s"}},
        {"markersTopic": "__cursors"},
        {"deadLetterTopic": "__cursors"},
        {"subscriptions": {"billing": {"deadLetterTopic": "__cursorq_markers"}}},
        {"kafka": {"bootstrap.servers": "other:9092"}},
        {"subscriptions": {"billing": {"maxDeliveries": 1, "maxdeliveries": 2}}},
    ],
)
def test_options_that_cannot_be_together_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConflictingOptions):
        tracker(**given)


def test_a_trackers_secrets_are_shown_in_no_text() -> None:
    options = tracker(kafka={"sasl": {"password": SECRET}})
    assert options.kafka["sasl.password"] == SECRET
    assert SECRET not in repr(options) + str(options)
    with pytest.raises(OptionsError) as refusal:
        tracker(kafka={"sasl": {"password": [SECRET]}})
    assert SECRET not in str(refusal.value) + repr(refusal.value)


REAPPEND = {"redelivery": "reappend", "queueTopic": "jobs"}


def test_messages_of_kafka_mq_go_come_back_for_ever_unless_told() -> None:
    assert tracker(**REAPPEND).reappend == ReappendOptions(
        queue_topic="jobs",
        marker_format=MarkerFormat.PROTOBUF,
        max_deliveries=None,
        dead_letter_topic="jobs-kafka-mq-go-DLQ",
    )
    limited = tracker(**REAPPEND, maxDeliveries=7, deadLetterTopic="{topic}-dead").reappend
    assert limited is not None
    assert (limited.max_deliveries, limited.dead_letter_topic) == (7, "jobs-dead")


def test_messages_of_kmq_come_back_three_times_unless_told() -> None:
    options = tracker(**REAPPEND, markerFormat="kmq").reappend
    assert options is not None
    assert (options.max_deliveries, options.dead_letter_topic) == (4, "jobs__undelivered")
    unlimited = tracker(**REAPPEND, markerFormat="kmq", maxDeliveries=0).reappend
    assert unlimited is not None
    assert unlimited.max_deliveries is None


def test_without_reappend_there_is_neither_a_queue_topic_nor_kmq() -> None:
    assert tracker().reappend is None
    for given in ({"queueTopic": "jobs"}, {"markerFormat": "kmq"}):
        with pytest.raises(ConflictingOptions, match="redelivery=reappend"):
            tracker(**given)


def test_reappend_needs_a_queue_topic_of_its_own() -> None:
    with pytest.raises(MissingOption, match="queueTopic"):
        tracker(redelivery="reappend")
    for other in ("markersTopic", "redeliveriesTopic", "cursorsTopic", "deadLetterTopic"):
        with pytest.raises(ConflictingOptions, match=other):
            tracker(**REAPPEND, **{other: "jobs"})


def test_rescue_is_off_unless_it_is_asked_for_and_has_limits() -> None:
    options = tracker()
    assert (options.rescue_before_ms, options.rescue_topic) == (None, "__cursorq_rescue")
    options = tracker(rescueBefore="6h", rescueTopic="saved", rescueMaxBytes="1000")
    assert (options.rescue_before_ms, options.rescue_topic) == (6 * 3_600_000, "saved")
    assert options.rescue_max_bytes == 1_000


@pytest.mark.parametrize("marker_format", ["protobuf", "kmq"])
def test_messages_of_trackers_without_cursors_cannot_be_rescued(marker_format: str) -> None:
    with pytest.raises(ConflictingOptions, match="Leave one of the two out") as refusal:
        tracker(rescueBefore="6h", redelivery="reappend", queueTopic="jobs", markerFormat=marker_format)
    assert refusal.value.options == ("rescueBefore", "redelivery")


def test_the_rescue_topic_is_a_topic_of_its_own() -> None:
    with pytest.raises(ConflictingOptions, match="both name the topic 'markers'"):
        tracker(rescueBefore="6h", rescueTopic="markers", markersTopic="markers")
