"""Ranges and slices read from a real broker, with everything in between that is no message."""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import NotAuthorized, ReadStalled, RecordsGone, TopicGone
from spark_cursor_source.kafka import consumers, reading
from spark_cursor_source.kafka.config_roles import reader_config
from spark_cursor_source.kafka.consumers import borrowed_fastest_consumer, close_idle_consumers
from spark_cursor_source.kafka.reading import PartitionReads
from spark_cursor_source.topics.message_columns import message_schema
from spark_cursor_source.topics.queue import Missing, arrow_batches
from tests.conftest import READY_S, CreateTopic, DeleteTopic
from tests.kafka.control_plane import login, transaction
from tests.kafka.ways import on_both_ways, read_records, same_on_both_ways
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.broker

Told = list[tuple[Slice, OffsetSet, Missing]]


@pytest.fixture(autouse=True)
def no_consumer_outlives_its_test() -> Iterator[None]:
    yield
    close_idle_consumers()


@pytest.fixture
def config(broker: EmbeddedKafka) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers}


def produce(servers: str, topic: str, values: Iterable[Any], *, partition: int = 0, **record: Any) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for value in values:
        given = value if isinstance(value, dict) else {"value": value}
        producer.produce(topic, partition=partition, **(record | given))
        producer.poll(0 if len(producer) < 50_000 else 0.1)
    assert producer.flush(30) == 0


def transactions(servers: str, topic: str, *steps: tuple[str, int]) -> None:
    """Each step is ``("commit" | "abort", records)`` and leaves one control record at its end."""
    for end, count in steps:
        records = [(topic, {"value": b"%s %d" % (end.encode(), number)}) for number in range(count)]
        transaction({"bootstrap.servers": servers}, records, commit=end == "commit")


def piece(topic: str, *ranges: tuple[int, int], partition: int = 0, count: int = 1) -> Slice:
    return Slice(topic=topic, partition=partition, offsets=OffsetSet.of(*ranges), delivery_count=count)


def read_rows(
    config: dict[str, str],
    *slices: Slice,
    headers: bool = False,
    queue_id: bytes | None = None,
    skips_deleted: bool = False,
) -> tuple[list[dict[str, Any]], Told]:
    """The rows of the slices, and what is told of those that are missing."""
    missing: Told = []
    batches = arrow_batches(
        config,
        slices,
        include_headers=headers,
        queue_id=queue_id,
        on_missing=lambda *one: missing.append(one),
        skips_deleted=skips_deleted,
        stall_timeout_ms=20_000,
    )
    return [row for batch in batches for row in batch.to_pylist()], missing


def rows(
    config: dict[str, str], *slices: Slice, told: Told | None = None, **how: Any
) -> list[dict[str, Any]]:
    """The rows of the slices, which are the same with and without the native reader."""
    found, missing = same_on_both_ways(lambda: read_rows(config, *slices, **how))
    if told is not None:
        told.extend(missing)
    return found


def offsets(found: list[dict[str, Any]]) -> list[int]:
    return [row["offset"] for row in found]


def reasons(told: Told) -> dict[str, tuple[tuple[int, int], ...]]:
    return {why.value: missing.ranges for _, missing, why in told}


def test_every_column_says_what_the_record_says(config: dict[str, str], create_topic: CreateTopic) -> None:
    topic = create_topic(2)
    produce(config["bootstrap.servers"], topic, [b"v"], partition=1, key=b"k", timestamp=1_700_000_000_123)
    assert rows(config, piece(topic, (0, 1), partition=1, count=3)) == [
        {
            "key": b"k",
            "value": b"v",
            "topic": topic,
            "partition": 1,
            "offset": 0,
            "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
            "timestampType": 0,
            "delivery_count": 3,
        }
    ]


def test_the_schema_is_what_pyspark_makes_of_the_columns() -> None:
    from pyspark.sql import types as t
    from pyspark.sql.pandas.types import to_arrow_schema

    header = t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())])
    columns = {
        "key": t.BinaryType(),
        "value": t.BinaryType(),
        "topic": t.StringType(),
        "partition": t.IntegerType(),
        "offset": t.LongType(),
        "timestamp": t.TimestampType(),
        "timestampType": t.IntegerType(),
        "headers": t.ArrayType(header),
        "delivery_count": t.IntegerType(),
    }
    for include_headers in (True, False):
        named = [name for name in columns if include_headers or name != "headers"]
        fields = [t.StructField(name, columns[name]) for name in named]
        spark_schema = to_arrow_schema(t.StructType(fields), timezone="UTC")
        ours = message_schema(include_headers=include_headers)
        assert ours.equals(spark_schema, check_metadata=True)
        assert ours.names == spark_schema.names


def test_null_stays_null_and_empty_stays_empty(config: dict[str, str], create_topic: CreateTopic) -> None:
    topic = create_topic()
    records = [{"key": None, "value": None}, {"key": b"", "value": b""}, {"key": b"k", "value": None}]
    produce(config["bootstrap.servers"], topic, records)
    found = rows(config, piece(topic, (0, 3)))
    assert [(row["key"], row["value"]) for row in found] == [(None, None), (b"", b""), (b"k", None)]


def test_headers_come_as_in_sparks_own_source(config: dict[str, str], create_topic: CreateTopic) -> None:
    topic = create_topic()
    several = [("a", b"1"), ("a", None), ("ü", b"")]
    produce(config["bootstrap.servers"], topic, [{"value": b"x", "headers": several}, {"value": b"y"}])
    found = rows(config, piece(topic, (0, 2)), headers=True)
    assert found[0]["headers"] == [{"key": key, "value": value} for key, value in several]
    assert found[1]["headers"] is None


def test_log_append_time_is_told_from_create_time(config: dict[str, str], create_topic: CreateTopic) -> None:
    topic = create_topic(message_timestamp_type="LogAppendTime")
    produce(config["bootstrap.servers"], topic, [b"x"], timestamp=1_000)
    (found,) = rows(config, piece(topic, (0, 1)))
    assert found["timestampType"] == 1
    assert abs((datetime.now(UTC) - found["timestamp"]).total_seconds()) < 60


def test_aborted_messages_and_control_records_are_gaps_also_at_the_end(
    config: dict[str, str], create_topic: CreateTopic
) -> None:
    # 0-2 committed, 3 control | 4-5 aborted, 6 control | 7 committed, 8 control | 9-10 aborted, 11 control
    topic = create_topic()
    transactions(config["bootstrap.servers"], topic, ("commit", 3), ("abort", 2), ("commit", 1), ("abort", 2))
    told: Told = []
    whole = piece(topic, (0, 12))
    began = time.monotonic()
    assert offsets(rows(config, whole, told=told)) == [0, 1, 2, 7]
    assert time.monotonic() - began < 50, "nobody waits for what never comes"
    assert reasons(told) == {"gap": ((3, 7), (8, 12))}
    assert told[0][0] == whole
    assert offsets(rows(config, piece(topic, (1, 4)))) == [1, 2]
    assert offsets(rows(config, piece(topic, (9, 12)), told=told)) == []


def test_nothing_but_gaps_is_read_as_nothing(config: dict[str, str], create_topic: CreateTopic) -> None:
    topic = create_topic()
    transactions(config["bootstrap.servers"], topic, ("abort", 2), ("commit", 5))
    told: Told = []
    assert rows(config, piece(topic, (0, 3)), told=told) == []
    assert reasons(told) == {"gap": ((0, 3),)}


def test_only_the_queue_that_was_asked_for_is_delivered(
    config: dict[str, str], create_topic: CreateTopic
) -> None:
    topic = create_topic()
    keys = [b"a", b"b", None, b"", b"a", b"a"]
    produce(config["bootstrap.servers"], topic, [{"key": key, "value": b"x"} for key in keys])
    told: Told = []
    assert offsets(rows(config, piece(topic, (0, 6)), queue_id=b"a", told=told)) == [0, 4, 5]
    assert reasons(told) == {"filtered": ((1, 4),)}
    assert offsets(rows(config, piece(topic, (0, 6)), queue_id=b"")) == [3]
    assert rows(config, piece(topic, (1, 3)), queue_id=b"a") == []


def test_of_a_sparse_slice_only_its_messages_come(config: dict[str, str], create_topic: CreateTopic) -> None:
    topic = create_topic()
    produce(config["bootstrap.servers"], topic, [b"%d" % number for number in range(50_000)])
    for step in (2, 17, 1_000, 9_001):
        wanted = list(range(5, 50_000, step))
        told: Told = []
        sparse = Slice(topic=topic, partition=0, offsets=OffsetSet.from_offsets(wanted), delivery_count=2)
        found = rows(config, sparse, told=told)
        assert offsets(found) == wanted
        assert [int(row["value"]) for row in found] == wanted
        assert told == []


def test_a_sparse_slice_of_a_gap_is_told_only_what_it_asked_for(
    config: dict[str, str], create_topic: CreateTopic
) -> None:
    topic = create_topic()
    transactions(config["bootstrap.servers"], topic, ("commit", 3), ("abort", 2), ("commit", 1))
    # 0-2 committed, 3 control | 4-5 aborted, 6 control | 7 committed, 8 control
    told: Told = []
    assert offsets(rows(config, piece(topic, (1, 2), (3, 4), (7, 8)), told=told)) == [1, 7]
    assert reasons(told) == {"gap": ((3, 4),)}


def test_slices_come_in_their_order_with_their_own_delivery_counts(
    config: dict[str, str], create_topic: CreateTopic
) -> None:
    topic = create_topic(2)
    for partition in (0, 1):
        produce(config["bootstrap.servers"], topic, [b"x"] * 4, partition=partition)
    found = rows(
        config,
        piece(topic, (2, 4), partition=1, count=5),
        piece(topic, (0, 1), count=1),
        piece(topic),
        piece(topic, (1, 3), count=2),
    )
    assert [(row["partition"], row["offset"], row["delivery_count"]) for row in found] == [
        (1, 2, 5),
        (1, 3, 5),
        (0, 0, 1),
        (0, 1, 2),
        (0, 2, 2),
    ]


def test_large_messages_make_smaller_batches(config: dict[str, str], create_topic: CreateTopic) -> None:
    topic = create_topic()
    produce(config["bootstrap.servers"], topic, [bytes(900_000)] * 40)
    batches = list(
        arrow_batches(
            config, [piece(topic, (0, 40))], include_headers=False, queue_id=None, on_missing=lambda *_: None
        )
    )
    assert sum(batch.num_rows for batch in batches) == 40
    far_apart = piece(topic, (0, 2), (9, 11), (30, 31), (39, 40))
    assert offsets(rows(config, far_apart)) == [0, 1, 9, 10, 30, 39]
    assert max(batch.nbytes for batch in batches) < 40_000_000


def test_what_retention_removed_is_told_and_the_rest_delivered(
    config: dict[str, str], create_topic: CreateTopic, admin: AdminClient
) -> None:
    topic = create_topic()
    produce(config["bootstrap.servers"], topic, [b"x"] * 10)
    removal = TopicPartition(topic, 0, 4)
    admin.delete_records([removal])[removal].result(timeout=20)
    told: Told = []
    assert offsets(rows(config, piece(topic, (1, 3), (4, 8)), told=told)) == [4, 5, 6, 7]
    assert reasons(told) == {"retention": ((1, 3),)}
    told.clear()
    assert rows(config, piece(topic, (0, 3)), told=told) == []
    assert reasons(told) == {"retention": ((0, 3),)}
    with borrowed_fastest_consumer(config) as consumer:
        with pytest.raises(RecordsGone) as failure:
            read_records(consumer, topic, 0, 0, 10)
        assert failure.value.available == (4, 10)


@on_both_ways
def test_offsets_that_the_partition_never_had_are_refused(
    config: dict[str, str], create_topic: CreateTopic
) -> None:
    topic = create_topic()
    produce(config["bootstrap.servers"], topic, [b"x"] * 3)
    with borrowed_fastest_consumer(config) as consumer, pytest.raises(RecordsGone) as failure:
        read_records(consumer, topic, 0, 5, 7, stall_timeout_ms=1_000)
    assert failure.value.available == (0, 3)


def test_a_late_record_ends_the_wait(config: dict[str, str], create_topic: CreateTopic) -> None:
    topic = create_topic()
    produce(config["bootstrap.servers"], topic, [b"x"] * 3)
    late = threading.Timer(1.0, produce, (config["bootstrap.servers"], topic, [b"late"]))
    late.start()
    assert offsets(rows(config, piece(topic, (0, 4)))) == [0, 1, 2, 3]
    late.join()


@on_both_ways
def test_a_deleted_topic_is_said_to_be_gone(
    config: dict[str, str], create_topic: CreateTopic, delete_topic: DeleteTopic
) -> None:
    topic = create_topic()
    produce(config["bootstrap.servers"], topic, [b"x"] * 3)
    assert len(rows(config, piece(topic, (0, 3)))) == 3
    delete_topic(topic)
    with borrowed_fastest_consumer(config) as consumer, pytest.raises(TopicGone):
        read_records(consumer, topic, 0, 0, 3, stall_timeout_ms=6_000)


@on_both_ways
def test_what_a_deleted_topic_had_is_missing_where_it_is_skipped(
    config: dict[str, str], create_topic: CreateTopic, delete_topic: DeleteTopic
) -> None:
    deleted, other = create_topic(2), create_topic()
    produce(config["bootstrap.servers"], other, [b"x"])
    delete_topic(deleted)
    slices = [piece(deleted, (0, 3)), piece(deleted, (0, 1), partition=1), piece(other, (0, 1))]
    found, missing = read_rows(config, *slices, skips_deleted=True)
    assert [row["topic"] for row in found] == [other]
    assert missing == [(one, one.offsets, Missing.TOPIC) for one in slices[:2]]


@pytest.mark.parametrize("stall_timeout_ms", [2_000, 6_000], ids="within {} ms".format)
def test_a_topic_that_never_was_is_said_to_be_gone(config: dict[str, str], stall_timeout_ms: int) -> None:
    never = f"never-{uuid.uuid4().hex[:8]}"
    with borrowed_fastest_consumer(config) as consumer, pytest.raises(TopicGone):
        read_records(consumer, never, 0, 0, 3, stall_timeout_ms=stall_timeout_ms)


def test_a_topic_that_is_denied_for_less_than_the_least_time_may_exist(
    config: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_LEAST_OF_TOPIC_MS", 600_000)
    never = f"never-{uuid.uuid4().hex[:8]}"
    with borrowed_fastest_consumer(config) as consumer, pytest.raises(ReadStalled, match="is not there"):
        read_records(consumer, never, 0, 0, 3, stall_timeout_ms=900)


@on_both_ways
def test_a_missing_topic_is_said_to_be_gone_also_by_a_reader_on_a_slow_machine(
    config: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    never = f"never-{uuid.uuid4().hex[:8]}"
    look = PartitionReads.look

    def slow_look(reads: PartitionReads) -> None:
        look(reads)
        time.sleep(1.5)

    monkeypatch.setattr(PartitionReads, "look", slow_look)
    with borrowed_fastest_consumer(config) as consumer, pytest.raises(TopicGone):
        read_records(consumer, never, 0, 0, 3, stall_timeout_ms=2_000)


def test_a_topic_created_again_is_read_by_the_same_consumer(
    config: dict[str, str], create_topic: CreateTopic, delete_topic: DeleteTopic
) -> None:
    topic = create_topic()
    produce(config["bootstrap.servers"], topic, [b"old"] * 3)
    assert len(rows(config, piece(topic, (0, 3)))) == 3
    delete_topic(topic)
    create_topic(name=topic)
    produce(config["bootstrap.servers"], topic, [b"new"] * 2)
    assert [row["value"] for row in rows(config, piece(topic, (0, 2)))] == [b"new"] * 2


def idle() -> list[Any]:
    return consumers._idle._clients + consumers._idle_native._clients


@on_both_ways
def test_an_abandoned_read_leaves_a_consumer_for_the_next(
    config: dict[str, str], create_topic: CreateTopic
) -> None:
    topic = create_topic()
    produce(config["bootstrap.servers"], topic, [b"%d" % number for number in range(40_000)])
    whole = piece(topic, (0, 40_000))
    reading = arrow_batches(config, [whole], include_headers=False, queue_id=None, on_missing=lambda *_: None)
    assert next(reading).column("offset")[0].as_py() == 0
    reading.close()
    ((_, kept),) = idle()
    assert offsets(rows(config, whole)) == list(range(40_000))
    assert kept in [consumer for _, consumer in idle()]


@on_both_ways
def test_a_consumer_that_met_an_error_is_not_used_again(
    config: dict[str, str], create_topic: CreateTopic
) -> None:
    topic = create_topic()
    transactions(config["bootstrap.servers"], topic, ("abort", 1))

    def refuse(*_: object) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        list(
            arrow_batches(
                config, [piece(topic, (0, 2))], include_headers=False, queue_id=None, on_missing=refuse
            )
        )
    assert idle() == []


def test_two_threads_read_with_a_consumer_each(config: dict[str, str], create_topic: CreateTopic) -> None:
    topic = create_topic(2)
    for partition in (0, 1):
        produce(config["bootstrap.servers"], topic, [b"x"] * 30_000, partition=partition)

    def read(partition: int) -> list[int]:
        found, _ = read_rows(config, piece(topic, (0, 30_000), partition=partition))
        return offsets(found)

    def read_both() -> list[list[int]]:
        with ThreadPoolExecutor(2) as threads:
            return list(threads.map(read, (0, 1), timeout=PATIENCE_S))

    assert same_on_both_ways(read_both) == [list(range(30_000))] * 2


def test_no_reader_resets_an_offset_in_silence_whatever_it_is_given() -> None:
    given = {"auto.offset.reset": "latest", "fetch.message.max.bytes": "5", "enable.auto.commit": "true"}
    made = reader_config(given)
    assert made["auto.offset.reset"] == "error"
    assert made["enable.auto.commit"] == "false"
    assert made["fetch.message.max.bytes"] == "5"


def test_a_slice_survives_pickling() -> None:
    one = piece("t", (0, 5), (7, 9), count=2)
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.fixture(scope="module")
def own_broker() -> Iterator[EmbeddedKafka]:
    """A broker to be restarted, that compacts at once."""
    with EmbeddedKafka(properties={"log.cleaner.backoff.ms": 100}, ready_timeout_s=READY_S) as running:
        yield running


def new_topic(broker: EmbeddedKafka, **config: object) -> str:
    topic = uuid.uuid4().hex
    settings = {name.replace("_", "."): str(value) for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(timeout=20)
    return topic


def test_what_compaction_took_is_a_gap(own_broker: EmbeddedKafka) -> None:
    servers = own_broker.bootstrap_servers
    topic = new_topic(own_broker, cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.001)
    for _ in range(4):
        produce(servers, topic, [{"key": b"%d" % (number % 3), "value": b"x"} for number in range(9)])
        time.sleep(0.3)
    config = {"bootstrap.servers": servers}
    latest = [33, 34, 35]  # of each key

    def compacted() -> bool:
        return offsets(read_rows(config, piece(topic, (0, 36)))[0]) == latest

    wait_until(compacted, between=lambda: produce(servers, topic, [{"key": b"z", "value": b"x"}]))
    told: Told = []
    assert offsets(rows(config, piece(topic, (0, 36)), told=told)) == latest
    assert reasons(told) == {"gap": ((0, 33),)}


@on_both_ways
def test_a_read_outlives_a_restart_of_the_broker(own_broker: EmbeddedKafka) -> None:
    servers = own_broker.bootstrap_servers
    topic = new_topic(own_broker)
    produce(servers, topic, [bytes(500)] * 200_000)
    read: list[int] = []
    restarted = False
    for batch in arrow_batches(
        {"bootstrap.servers": servers},
        [piece(topic, (0, 200_000))],
        include_headers=False,
        queue_id=None,
        on_missing=lambda *_: None,
        stall_timeout_ms=int(READY_S * 1000),
    ):
        read.extend(batch.column("offset").to_pylist())
        if not restarted:
            own_broker.kill()
            threading.Thread(target=own_broker.start).start()
            restarted = True
    assert restarted
    assert read == list(range(200_000))


@on_both_ways
def test_a_broker_that_stays_away_is_a_stall(own_broker: EmbeddedKafka) -> None:
    topic = new_topic(own_broker)
    produce(own_broker.bootstrap_servers, topic, [b"x"] * 3)
    with borrowed_fastest_consumer({"bootstrap.servers": own_broker.bootstrap_servers}) as consumer:
        own_broker.pause()
        try:
            with pytest.raises(ReadStalled):
                read_records(consumer, topic, 0, 0, 3, stall_timeout_ms=2_000)
        finally:
            own_broker.resume()
        assert read_records(consumer, topic, 0, 0, 3) == [0, 1, 2]


@on_both_ways
def test_whoever_may_not_read_is_told_where(guarded_broker: EmbeddedKafka) -> None:
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers}
    topic = f"queue-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(servers | login("admin", "of-admin"))
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result(20)
    config = reader_config(servers | login("bob", "of-bob") | {"log_level": "0"})
    with borrowed_fastest_consumer(config) as consumer, pytest.raises(NotAuthorized) as refused:
        read_records(consumer, topic, 0, 0, 10, stall_timeout_ms=8_000)
    assert refused.value.acls == (f"--operation Read --topic {topic}",)
