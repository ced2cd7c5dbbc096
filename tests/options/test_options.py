"""Options of the source, of views and of sinks: strict, complete, and silent about secrets."""

import pickle
from typing import Any

import pytest

from spark_cursor_source.errors import (
    ConflictingOptions,
    InvalidOption,
    MissingOption,
    OptionsError,
    RejectRefused,
    UnknownOption,
)
from spark_cursor_source.options.ack import AckAction, AckOptions
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.options.marker_format import MarkerVersion
from spark_cursor_source.options.source import AckMode, Isolation, SourceOptions
from spark_cursor_source.options.topics import (
    EARLIEST,
    LATEST,
    Assign,
    FromCursor,
    FromEarliest,
    FromLatest,
    FromPositions,
    FromTimestamp,
    FromTimestamps,
    Subscribe,
    SubscribePattern,
    ToLatest,
    ToPositions,
)
from spark_cursor_source.options.view import View, ViewOptions

BROKERS = {"kafka.bootstrap.servers": "b:9092"}
BASE = {**BROKERS, "subscribe": "orders", "subscription": "billing"}
SECRET = "hunter2-do-not-tell"


def source(**given: Any) -> SourceOptions:
    return SourceOptions.parse({**BASE, **given})


def test_the_options_of_the_issues_example_parse_with_the_documented_defaults() -> None:
    assert SourceOptions.parse(BASE) == SourceOptions(
        kafka=KafkaOptions({"bootstrap.servers": "b:9092"}),
        topics=Subscribe(topics=("orders",)),
        subscription="billing",
        queue_id=None,
        starting_offsets=FromCursor(),
        max_offsets_per_trigger=None,
        min_offsets_per_trigger=None,
        max_trigger_delay_ms=900_000,
        min_partitions=None,
        max_records_per_partition=None,
        fail_on_data_loss=True,
        include_headers=False,
        delayed_delivery=True,
        isolation=Isolation.READ_COMMITTED,
        lease_ms=60_000,
        tracker_timeout_ms=60_000,
        ack_mode=AckMode.INDIVIDUAL,
        markers_topic="__cursorq_markers",
        redeliveries_topic="__cursorq_redeliveries",
        cursors_topic="__cursors",
        dead_letter_topic="{topic}-{subscription}-DLQ",
    )


def test_every_option_reaches_its_field() -> None:
    options = source(
        queueId="q1",
        startingOffsets="latest",
        maxOffsetsPerTrigger="10",
        minOffsetsPerTrigger="5",
        maxTriggerDelay="1m",
        minPartitions="3",
        maxRecordsPerPartition="7",
        failOnDataLoss="FALSE",
        includeHeaders="true",
        delayedDelivery="false",
        isolation="read_uncommitted",
        leaseTimeout="12h",
        trackerTimeout="500ms",
        failWithoutTracker="10m",
        ackMode="cumulative",
        markersTopic="m",
        redeliveriesTopic="r",
        cursorsTopic="c",
        deadLetterTopic="dead-{topic}",
    )
    assert options == SourceOptions(
        kafka=KafkaOptions({"bootstrap.servers": "b:9092"}),
        topics=Subscribe(topics=("orders",)),
        subscription="billing",
        queue_id="q1",
        starting_offsets=FromLatest(),
        max_offsets_per_trigger=10,
        min_offsets_per_trigger=5,
        max_trigger_delay_ms=60_000,
        min_partitions=3,
        max_records_per_partition=7,
        fail_on_data_loss=False,
        include_headers=True,
        delayed_delivery=False,
        isolation=Isolation.READ_UNCOMMITTED,
        lease_ms=43_200_000,
        tracker_timeout_ms=500,
        fail_without_tracker_ms=600_000,
        ack_mode=AckMode.CUMULATIVE,
        markers_topic="m",
        redeliveries_topic="r",
        cursors_topic="c",
        dead_letter_topic="dead-{topic}",
    )


@pytest.mark.parametrize(
    "option",
    [
        "redeliveriesTopic",
        "cursorsTopic",
        "trackerTimeout",
        "failWithoutTracker",
        "maxOutstanding",
        "deadLetterTopic",
    ],
)
def test_what_kafka_mq_go_has_nothing_of_is_refused_with_its_markers(option: str) -> None:
    given = {"markerFormat": "v1", option: "5s" if "racker" in option else "5"}
    for parse in (SourceOptions.parse, AckOptions.parse):
        with pytest.raises(ConflictingOptions, match=f"'markerFormat', '{option}'.*. Leave {option} out"):
            parse({**BASE, **given})


def test_v1_markers_are_of_one_queue_topic_and_end_one_message_each() -> None:
    assert source(markerFormat="v1").marker_version is MarkerVersion.V1
    assert source(markerFormat="v1", ackMode="batch").ack_mode is AckMode.BATCH
    for selection in (
        {"subscribe": "orders,returns"},
        {"subscribePattern": "orders"},
        {"assign": '{"a": [0], "b": [0]}'},
    ):
        given = {name: value for name, value in BASE.items() if name != "subscribe"} | selection
        with pytest.raises(ConflictingOptions, match="do not contain the name of the topic"):
            SourceOptions.parse({**given, "markerFormat": "v1"})
    with pytest.raises(ConflictingOptions, match="end one message each"):
        source(markerFormat="v1", ackMode="cumulative")
    with pytest.raises(ConflictingOptions, match="does not know who leased a message"):
        source(markerFormat="v1", onMemberLost="release")


def test_a_sink_of_v1_markers_neither_rejects_nor_says_why() -> None:
    with pytest.raises(RejectRefused, match="markerFormat=v1 does not support reject"):
        AckOptions.parse({**BASE, "markerFormat": "v1", "action": "reject"})
    with pytest.raises(ConflictingOptions, match="no room for a reason"):
        AckOptions.parse({**BASE, "markerFormat": "v1", "action": "release", "reason": "busy"})


def test_keys_that_spark_lower_cased_are_the_same_options() -> None:
    given = {**BASE, "maxOffsetsPerTrigger": "10", "ackMode": "batch", "kafka.client.id": "Me"}
    assert SourceOptions.parse({key.lower(): value for key, value in given.items()}) == SourceOptions.parse(
        given
    )


def test_values_that_python_wrote_are_read_as_spark_writes_them_and_none_is_absent() -> None:
    assert source(includeHeaders=True, minPartitions=4, queueId=None) == source(
        includeHeaders="true", minPartitions="4"
    )


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("markerTopic", "markersTopic"),
        ("subscribtion", "subscription"),
        ("startingoffset", "startingOffsets"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
    ],
)
def test_an_unknown_option_names_the_nearest_one_and_not_its_value(typo: str, meant: str) -> None:
    for parse in (SourceOptions.parse, ViewOptions.parse, AckOptions.parse):
        with pytest.raises(UnknownOption, match=f"Did you mean '{meant}'") as refusal:
            parse({**BASE, typo: SECRET})
        assert SECRET not in str(refusal.value)
        assert SECRET not in repr(refusal.value)


def test_an_option_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(UnknownOption, match="Remove it"):
        source(zzzzqqq="1")


@pytest.mark.parametrize(
    ("parse", "option"),
    [
        (SourceOptions.parse, "view"),
        (SourceOptions.parse, "action"),
        (ViewOptions.parse, "lease"),
        (AckOptions.parse, "view"),
    ],
)
def test_an_option_of_another_place_is_refused_and_says_where_it_belongs(parse: Any, option: str) -> None:
    with pytest.raises(UnknownOption, match="it belongs to"):
        parse({**BASE, option: "x"})


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("subscription", "a,b", "characters"),
        ("subscription", "a b", "characters"),
        ("subscription", "bill\n", "characters"),
        ("subscription", "", "empty"),
        ("subscription", "x" * 250, "at most 249"),
        ("subscribe", "orders,,x", "empty"),
        ("subscribe", "or/ders", "characters"),
        ("queueId", "", "empty"),
        ("maxOffsetsPerTrigger", "0", "not in 1"),
        ("maxOffsetsPerTrigger", "1_000", "not a whole number"),
        ("maxOffsetsPerTrigger", "٣", "not a whole number"),
        ("minOffsetsPerTrigger", "-1", "not in 1"),
        ("minPartitions", "many", "not a whole number"),
        ("maxRecordsPerPartition", "9" * 5000, "not a whole number"),
        ("maxTriggerDelay", "10", "not a duration"),
        ("failOnDataLoss", "yes", "neither true nor false"),
        ("includeHeaders", "", "empty"),
        ("isolation", "serializable", "not an allowed value"),
        ("ackMode", "all", "not an allowed value"),
        ("leaseTimeout", "999ms", "too short. Give 1s"),
        ("leaseTimeout", "721m", "too long. Give 12h"),
        ("trackerTimeout", "0s", "too short"),
        ("markersTopic", "..", "cannot be empty"),
        ("redeliveriesTopic", "a b", "characters"),
        ("cursorsTopic", "x" * 250, "at most 249"),
        ("deadLetterTopic", "{queue}", "braces"),
        ("startingOffsets", "lates", "Did you mean latest?"),
        ("startingOffsets", "earlist", "Did you mean earliest?"),
        ("startingOffsets", "sometime", "not valid JSON"),
        ("startingOffsets", "[1]", "not a JSON object"),
        ("startingOffsets", "{}", "names no partition"),
        ("startingOffsets", '{"orders":5}', "no object of partitions"),
        ("startingOffsets", '{"orders":{"0":-3}}', "at least -2"),
        ("startingOffsets", '{"orders":{"0":1.5}}', "whole number"),
        ("startingOffsets", '{"orders":{"0":true}}', "whole number"),
        ("startingOffsets", '{"orders":{"x":1}}', "not a whole number"),
        ("startingOffsets", '{"orders":{"0":1,"0":2}}', "not valid JSON"),
        ("startingOffsets", '{"orders":{"0":1,"00":2}}', "names its partition 0 twice"),
        ("startingOffsetsByTimestamp", '{"orders":{"1":5,"01":5}}', "names its partition 1 twice"),
        ("startingOffsets", "[" * 100_000, "not valid JSON"),
        ("startingTimestamp", "-1", "not in 0"),
        ("startingOffsetsByTimestamp", '{"orders":{"0":-1}}', "at least 0"),
        ("path", "orders", "a queue has no path"),
        ("kafka.bootstrap.servers", " ", "empty"),
        ("subscribe", ["orders"], "is a list"),
    ],
)
def test_a_bad_value_is_refused_with_its_reason_and_a_next_move(option: str, value: Any, why: str) -> None:
    with pytest.raises(InvalidOption, match=why) as refusal:
        source(**{option: value})
    assert refusal.value.option == option
    assert refusal.value.next_move
    assert len(str(refusal.value)) < 600


@pytest.mark.parametrize("missing", ["kafka.bootstrap.servers", "subscribe", "subscription"])
def test_what_must_be_given_is_asked_for(missing: str) -> None:
    with pytest.raises(MissingOption) as refusal:
        SourceOptions.parse({key: value for key, value in BASE.items() if key != missing})
    assert refusal.value.option == missing


def test_a_config_file_can_stand_for_the_brokers_and_travels_with_the_kafka_options() -> None:
    options = SourceOptions.parse(
        {"subscribe": "o", "subscription": "s", "kafka.config.file": "client.properties"}
    )
    assert options.kafka["config.file"] == "client.properties"


@pytest.mark.parametrize(
    "given",
    [
        {"subscribePattern": "o.*"},
        {"assign": '{"orders":[0]}'},
        {"minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "1"},
        {"SUBSCRIBE": "returns"},
        {"kafka.client.id": "a", "Kafka.Client.Id": "b"},
        {"markersTopic": "x", "cursorsTopic": "x"},
        {"deadLetterTopic": "__cursors"},
        {"markersTopic": "orders"},
        {"deadLetterTopic": "orders"},
        {"subscription": "tracker-__cursorq_markers"},
        {"subscription": "m", "groupIdPrefix": "cursorq-tracker", "markersTopic": "m"},
        {"subscriptionType": "shared", "ackMode": "cumulative"},
        {"subscriptionType": "key_shared", "maxRecordsPerPartition": "10"},
        {"ordering": "key", "subscriptionType": "shared"},
        {"ordering": "key", "ackMode": "cumulative"},
        {"ordering": "key", "maxRecordsPerPartition": "10"},
        {"markerFormat": "v1", "subscriptionType": "shared"},
        {"markerFormat": "v1", "ordering": "key"},
    ],
)
def test_options_that_cannot_be_together_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConflictingOptions):
        SourceOptions.parse({**BASE, **given})


def test_a_group_assigns_partitions_so_none_can_be_assigned_to_a_query_of_a_shared_subscription() -> None:
    given = {name: value for name, value in BASE.items() if name != "subscribe"}
    with pytest.raises(ConflictingOptions, match="the consumer group assigns the partitions"):
        SourceOptions.parse(given | {"assign": '{"orders": [0]}', "subscriptionType": "shared"})


def test_topics_are_a_list_a_pattern_or_partitions() -> None:
    def topics(**given: str) -> Any:
        return SourceOptions.parse({**BROKERS, "subscription": "s", **given}).topics

    assert topics(subscribe="b , a,b") == Subscribe(topics=("b", "a"))
    assert topics(subscribePattern="o[rd]+") == SubscribePattern(pattern="o[rd]+")
    assert topics(assign='{"b":[1,0],"a":[2]}') == Assign(partitions=(("a", 2), ("b", 0), ("b", 1)))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("subscribePattern", "("),
        ("assign", "orders"),
        ("assign", '{"orders":0}'),
        ("assign", '{"orders":["0"]}'),
        ("assign", '{"orders":[-1]}'),
        ("assign", '{"orders":[]}'),
        ("assign", '{"or ders":[0]}'),
    ],
)
def test_a_malformed_choice_of_topics_is_refused(option: str, value: str) -> None:
    with pytest.raises(InvalidOption) as refusal:
        SourceOptions.parse({**BROKERS, "subscription": "s", option: value})
    assert refusal.value.option == option


@pytest.mark.parametrize("selection", ["subscribe", "assign"])
def test_a_subscription_whose_dead_letter_topic_would_be_too_long_is_refused(selection: str) -> None:
    long = {"kafka.bootstrap.servers": "b:9092", "subscription": "s" * 140}
    named = {"subscribe": "t" * 120, "assign": '{"%s": [0]}' % ("t" * 120)}[selection]
    with pytest.raises(InvalidOption, match="of 265 characters"):
        SourceOptions.parse({**long, selection: named})
    SourceOptions.parse({**long, selection: named, "deadLetterTopic": "dead-{subscription}"})
    SourceOptions.parse({**long, selection: named, "markerFormat": "v1"})
    by_pattern = SourceOptions.parse({**long, "subscribePattern": "t+"})
    by_pattern.check_names(["t" * 100])
    with pytest.raises(InvalidOption, match="shorter name"):
        by_pattern.check_names(["t" * 120])


def test_a_pattern_takes_in_no_control_topic_and_no_dead_letters_of_its_queues() -> None:
    options = SourceOptions.parse({**BROKERS, "subscription": "billing", "subscribePattern": ".*"})
    taken = [
        topic
        for topic in (
            "orders",
            "__cursors",
            "__cursorq_markers",
            "__cursorq_redeliveries",
            "orders-x-DLQ",
            "a-DLQ",
        )
        if options.selects(topic)
    ]
    assert taken == ["orders", "a-DLQ"]


def test_dead_letters_can_be_a_queue_when_they_are_asked_for_by_name() -> None:
    assert source(subscribe="orders-billing-DLQ").selects("orders-billing-DLQ")


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ({"startingOffsets": "cursor"}, FromCursor()),
        ({"startingOffsets": "Earliest"}, FromEarliest()),
        ({"startingOffsets": "latest"}, FromLatest()),
        (
            {"startingOffsets": '{"orders":{"1":-1,"0":-2}}'},
            FromPositions(positions=(("orders", 0, EARLIEST), ("orders", 1, LATEST))),
        ),
        ({"startingTimestamp": "1700"}, FromTimestamp(timestamp_ms=1700)),
        (
            {"startingOffsetsByTimestamp": '{"orders":{"0":1700}}'},
            FromTimestamps(timestamps_ms=(("orders", 0, 1700),)),
        ),
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestamp": '{"o":{"0":1}}'},
            FromTimestamp(timestamp_ms=5),
        ),
        ({"startingTimestamp": "5", "startingOffsets": "latest"}, FromTimestamp(timestamp_ms=5)),
    ],
)
def test_where_to_start_reads_as_in_sparks_kafka_source(given: dict[str, str], start: object) -> None:
    assert source(**given).starting_offsets == start


def test_a_position_is_found_by_topic_and_partition() -> None:
    positions = FromPositions(positions=(("orders", 0, 7),))
    assert positions.position_of("orders", 0) == 7
    assert positions.position_of("orders", 1) is None


@pytest.mark.parametrize("view", list(View))
def test_a_view_takes_the_options_of_its_source(view: View) -> None:
    options = ViewOptions.parse({**BASE, "leaseTimeout": "5m", "ackMode": "batch", "view": view.value})
    assert (options.view, options.subscription, options.topics) == (
        view,
        "billing",
        Subscribe(topics=("orders",)),
    )


def test_messages_are_shown_from_the_beginning_to_the_end_unless_told() -> None:
    options = ViewOptions.parse({**BROKERS, "subscribe": "orders"})
    assert (options.view, options.starting_offsets, options.ending_offsets) == (
        View.MESSAGES,
        FromEarliest(),
        ToLatest(),
    )
    ranged = ViewOptions.parse(
        {**BROKERS, "subscribe": "orders", "endingOffsets": '{"orders":{"0":9,"1":-1}}'}
    )
    assert ranged.ending_offsets == ToPositions(positions=(("orders", 0, 9), ("orders", 1, LATEST)))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("endingOffsets", '{"orders":{"0":-2}}'),
        ("endingOffsets", "earliest"),
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"orders":{"0":-1}}'),
        ("view", "message"),
    ],
)
def test_a_range_that_a_batch_read_cannot_have_is_refused(option: str, value: str) -> None:
    with pytest.raises(InvalidOption) as refusal:
        ViewOptions.parse({**BASE, option: value})
    assert refusal.value.option == option


def test_a_view_asks_for_what_it_cannot_do_without() -> None:
    with pytest.raises(MissingOption, match="subscribe"):
        ViewOptions.parse(BROKERS)
    with pytest.raises(MissingOption, match="'subscribe' is missing"):
        ViewOptions.parse({**BROKERS, "view": "deadletters", "subscription": "s"})
    with pytest.raises(MissingOption, match="'subscription' is missing"):
        ViewOptions.parse({**BROKERS, "view": "deadletters", "subscribe": "orders"})
    assert ViewOptions.parse({**BROKERS, "view": "deadletters", "deadLetterTopic": "dead"}).topics is None
    assert ViewOptions.parse({**BROKERS, "view": "cursors"}).subscription is None


def test_a_sink_takes_the_options_of_its_source_as_they_are() -> None:
    options = AckOptions.parse(
        {**BASE, "startingOffsets": "latest", "leaseTimeout": "5m", "markersTopic": "m"}
    )
    assert options == AckOptions(
        kafka=KafkaOptions({"bootstrap.servers": "b:9092"}),
        subscription="billing",
        markers_topic="m",
        action=None,
        delay_ms=None,
        reason=None,
        lease_ms=300_000,
        ack_mode=AckMode.INDIVIDUAL,
    )


def test_each_action_takes_what_belongs_to_it() -> None:
    release = AckOptions.parse({**BASE, "action": "release", "delay": "0s", "reason": "later"})
    assert (release.action, release.delay_ms, release.reason) == (AckAction.RELEASE, 0, "later")
    assert AckOptions.parse({**BASE, "action": "extend", "lease": "2m"}).lease_ms == 120_000
    assert AckOptions.parse({**BASE, "action": "reject", "reason": "bad"}).reason == "bad"
    by_column = AckOptions.parse({**BASE, "delay": "1s", "reason": "x", "lease": "2m"})
    assert (by_column.action, by_column.delay_ms) == (None, 1_000)


@pytest.mark.parametrize(
    "given",
    [
        {"action": "ack", "delay": "1s"},
        {"action": "reject", "delay": "1s"},
        {"action": "extend", "reason": "x"},
        {"action": "release", "lease": "1m"},
    ],
)
def test_an_option_that_an_action_would_not_use_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConflictingOptions):
        AckOptions.parse({**BASE, **given})


@pytest.mark.parametrize(
    ("option", "value"),
    [("action", "nack"), ("delay", "soon"), ("delay", "2d"), ("lease", "13h"), ("reason", " ")],
)
def test_a_bad_value_of_an_action_is_refused(option: str, value: str) -> None:
    with pytest.raises(InvalidOption) as refusal:
        AckOptions.parse({**BASE, option: value})
    assert refusal.value.option == option


def test_a_sink_asks_for_its_subscription() -> None:
    with pytest.raises(MissingOption, match="subscription"):
        AckOptions.parse(BROKERS)


def test_secrets_are_kept_for_the_client_and_shown_in_no_text() -> None:
    for parse in (SourceOptions.parse, ViewOptions.parse, AckOptions.parse):
        options: Any = parse({**BASE, "kafka.sasl.password": SECRET, "kafka.sasl.jaas.config": SECRET})
        assert options.kafka["sasl.password"] == SECRET
        for text in (repr(options), str(options), f"{options.kafka}", repr(options.kafka), f"{[options]}"):
            assert SECRET not in text


def test_a_secret_of_the_wrong_kind_or_given_twice_is_refused_without_telling_it() -> None:
    for given in ({"kafka.sasl.password": [SECRET]}, {"kafka.a": SECRET, "KAFKA.A": "other"}):
        with pytest.raises(OptionsError) as refusal:
            source(**given)
        assert SECRET not in str(refusal.value) + repr(refusal.value)


def test_options_survive_pickling_and_can_key_a_cache() -> None:
    options = source(**{"kafka.sasl.password": SECRET})
    copy = pickle.loads(pickle.dumps(options))
    assert copy == options
    assert len({copy, options}) == 1
    assert copy.kafka["sasl.password"] == SECRET


def test_kafka_options_cannot_be_changed() -> None:
    kafka = KafkaOptions({"A": "1"})
    with pytest.raises(AttributeError):
        kafka._items = ()
    assert (dict(kafka), len(kafka), kafka == {"a": "1"}) == ({"a": "1"}, 1, False)


def test_an_error_keeps_its_facts_across_processes() -> None:
    errors: list[OptionsError] = []
    for given in ({"markerTopic": "m"}, {"ackMode": "x"}, {"assign": "{}"}, {"subscription": None}):
        with pytest.raises(OptionsError) as refusal:
            source(**given)
        errors.append(refusal.value)
    assert [str(pickle.loads(pickle.dumps(error))) for error in errors] == [str(error) for error in errors]
