"""The native reader's own rules: when it is used, what it says, and that it keeps no memory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import InvalidOption, NativeReaderUnavailable
from spark_cursor_source.kafka import native
from spark_cursor_source.kafka.config_roles import reader_config
from spark_cursor_source.kafka.consumers import borrowed_fastest_consumer, close_idle_consumers
from spark_cursor_source.kafka.native import SWITCH, NativeConsumer, open_native_consumer
from tests.beside import beside
from tests.conftest import CreateTopic
from tests.kafka.control_plane import produce
from tests.kafka.everything import END, fill
from tests.kafka.ways import NEEDS_NATIVE
from tests.logged import events
from tests.waiting import PATIENCE_S, wait_until

NOWHERE = reader_config({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test is a process that has said nothing yet."""
    caches = (native._loaded, native._log_used, native._log_not_used)
    for one in caches:
        one.cache_clear()
    monkeypatch.delenv(SWITCH, raising=False)
    yield
    close_idle_consumers()
    for one in caches:
        one.cache_clear()


@pytest.fixture
def without_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_MODULE", "spark_cursor_source_never_built")


def test_without_the_module_it_is_said_once_and_read_all_the_same(
    without_module: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger=native.log.name):
        for _ in range(2):
            with borrowed_fastest_consumer(NOWHERE) as consumer:
                assert not isinstance(consumer, NativeConsumer)
    assert events(caplog.records) == [
        "native_reader_not_used why=spark-cursor-source-native is not installed"
    ]


def test_who_demands_it_without_the_module_is_refused(
    without_module: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "1")
    with (
        pytest.raises(NativeReaderUnavailable, match="is not installed; install"),
        borrowed_fastest_consumer(NOWHERE),
    ):
        pass


def test_the_switch_is_0_or_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "yes")
    with pytest.raises(InvalidOption, match="CURSORQ_NATIVE"), borrowed_fastest_consumer(NOWHERE):
        pass


def test_it_can_be_forbidden(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv(SWITCH, "0")
    with (
        caplog.at_level(logging.INFO, logger=native.log.name),
        borrowed_fastest_consumer(NOWHERE) as consumer,
    ):
        assert not isinstance(consumer, NativeConsumer)
    assert events(caplog.records) == ["native_reader_not_used why=CURSORQ_NATIVE=0"]


@NEEDS_NATIVE
@pytest.mark.parametrize(
    ("setting", "value", "why"),
    [
        ("oauth_cb", print, "it does not support the setting oauth_cb"),
        ("linger.ms", 5, "it does not support the setting linger.ms"),
        ("sasl.mechanisms", "oauthbearer", "it does not support OAUTHBEARER"),
        ("sasl.password.typo", "secret-of-bob", "librdkafka refuses the setting sasl.password.typo"),
        ("fetch.wait.max.ms", "secret-of-bob", "librdkafka refuses the setting fetch.wait.max.ms"),
    ],
)
def test_what_it_does_not_support_is_said_without_values(
    setting: str, value: Any, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger=native.log.name):
        assert open_native_consumer({**NOWHERE, setting: value}) is None
    assert events(caplog.records) == [f"native_reader_not_used why={why}"]
    monkeypatch.setenv(SWITCH, "1")
    with pytest.raises(NativeReaderUnavailable) as refused:
        open_native_consumer({**NOWHERE, setting: value})
    assert refused.value.why == why


def raw(config: dict[str, str]) -> Any:
    """A consumer of the module itself."""
    import spark_cursor_source_native

    return spark_cursor_source_native.Consumer(config)


@NEEDS_NATIVE
def test_a_consumer_serves_one_thread_and_only_while_it_is_open(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger=native.log.name):
        consumer = open_native_consumer(NOWHERE)
    assert consumer is not None
    assert [event.partition(" ")[0] for event in events(caplog.records)] == ["native_reader_used"]
    inner = consumer._consumer

    def keep_reading(ended: threading.Event) -> None:
        while not ended.is_set():
            with suppress(RuntimeError):  # the other thread has it
                inner.read(0, 0, 1, 1, 1, 200, False)

    with beside(keep_reading), pytest.raises(RuntimeError, match="in use by another thread"):
        wait_until(inner.unassign)
    consumer.close()
    consumer.close()
    calls: list[Callable[[], object]] = [
        inner.unassign,
        lambda: inner.assign("t", 0, 0),
        lambda: inner.read(0, 0, 1, 1, 1, 1, False),
        lambda: inner.watermarks("t", 0, -1),
        lambda: inner.partitions("t", 1),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="closed"):
            call()


@NEEDS_NATIVE
@pytest.mark.parametrize("settings", [{1: "a"}, {"group.id": 1}, {"group.id": "a\x00"}, {"\ud800": "a"}])
def test_settings_are_texts(settings: dict[Any, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        raw(settings)


@NEEDS_NATIVE
@pytest.mark.parametrize("settings", [{}, {"group.id": ""}])
def test_a_consumer_has_a_group_id(settings: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"group\.id"):
        raw(settings)


@NEEDS_NATIVE
@pytest.mark.parametrize("limits", [(0, 1), (1, 0), (-1, 1), (1, -1)])
def test_a_read_has_room_for_a_record(limits: tuple[int, int]) -> None:
    consumer = raw(NOWHERE)
    with pytest.raises(ValueError, match="at least 1"):
        consumer.read(0, 0, 1, *limits, 1, False)
    consumer.close()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@NEEDS_NATIVE
@pytest.mark.broker
def test_thousands_of_batches_leave_no_memory_behind(broker: EmbeddedKafka) -> None:
    config = reader_config({"bootstrap.servers": broker.bootstrap_servers})
    topic = fill(config)
    consumer = raw(config)

    def read(batches: int) -> None:
        position = END
        for number in range(batches):
            if position >= END:
                position = 0
                assert consumer.assign(topic, 0, 0) == 0
            batch, position, event = consumer.read(0, position, END, 4, 1 << 20, 250, number % 2 == 0)
            if event is not None:  # the end of the partition, after the aborted records
                position = END
            if batch is not None and number % 3:  # others are never taken
                rows = pa.record_batch(batch)
                assert 1 <= rows.num_rows <= 4
                with pytest.raises(ValueError, match="handed over before"):
                    pa.record_batch(batch)

    read(1_000)
    before = resident_bytes()
    read(3_000)
    consumer.close()
    assert resident_bytes() - before < 24 << 20


@NEEDS_NATIVE
@pytest.mark.broker
def test_memory_that_is_used_again_is_not_that_of_columns_that_are_still_there(
    broker: EmbeddedKafka, create_topic: CreateTopic
) -> None:
    messages, at_once, threads = 4_000, 500, 4  # a batch has 100,000 bytes of values: memory that is kept
    topic = create_topic()
    values = [b"%08d" % number * 25 for number in range(messages)]
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    produce(servers, topic, ({"value": value} for value in values))
    wrong: list[int] = []

    def read() -> None:
        consumer = raw(reader_config(servers))
        held: dict[int, pa.RecordBatch] = {}
        for _ in range(10):
            assert consumer.assign(topic, 0, 0) == 0
            for start in range(0, messages, at_once):
                position = start
                while position < start + at_once:
                    first = position
                    batch, position, _ = consumer.read(
                        0, first, start + at_once, at_once, 1 << 20, 60_000, False
                    )
                    held[first] = pa.record_batch(batch)  # what was held of it before is free now
            wrong.extend(
                first
                for first, batch in held.items()
                if batch.column("value").to_pylist() != values[first : first + batch.num_rows]
                or batch.column("offset").to_pylist() != list(range(first, first + batch.num_rows))
            )
        consumer.close()

    with ThreadPoolExecutor(threads) as readers:
        for done in [readers.submit(read) for _ in range(threads)]:
            done.result(timeout=PATIENCE_S)
    assert not wrong
