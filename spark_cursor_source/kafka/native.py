"""Native reader: the extension module of ``spark-cursor-source-native``, where it can be used.

It reads records into Arrow columns without a Python object per record. Everything else, such as the policy
for errors and ends, is the same code as without it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its stubs
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)

from spark_cursor_source.errors import InvalidOption, NativeReaderUnavailable
from spark_cursor_source.kafka.config import quiet
from spark_cursor_source.kafka.config_names import NOT_TEXT

log = logging.getLogger(__name__)

SWITCH = "CURSORQ_NATIVE"  #: environment variable: 0 forbids the native reader, 1 demands it
_MODULE = "spark_cursor_source_native"

# librdkafka loads plugins before it knows other settings, and confluent-kafka has token providers in Python
_NOT_SUPPORTED = NOT_TEXT | {"plugin.library.paths"}
_MECHANISMS = ("sasl.mechanism", "sasl.mechanisms")


class NativeConsumer:
    """Consumer of the native module, with those methods of ``confluent_kafka.Consumer`` that readers call."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Fetch one partition, or none."""
        if not partitions:
            return self.unassign()
        (one,) = partitions
        return _check(self._consumer.assign(one.topic, one.partition, one.offset))

    def unassign(self) -> None:
        _check(self._consumer.unassign())

    def list_topics(self, topic: str, timeout: float) -> ClusterMetadata:
        code, topic_code, numbers = self._consumer.partitions(topic, round(timeout * 1000))
        _check(code)
        found = TopicMetadata()
        found.topic = topic
        found.error = KafkaError(topic_code) if topic_code else None
        found.partitions = {number: PartitionMetadata() for number in numbers}
        metadata = ClusterMetadata()
        metadata.topics = {topic: found}
        return metadata

    def get_watermark_offsets(
        self, place: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        timeout_ms = -1 if cached else round(timeout * 1000)
        code, low, high = self._consumer.watermarks(place.topic, place.partition, timeout_ms)
        _check(code)
        return low, high

    def read(
        self, partition: int, start: int, stop: int, *, rows: int, size: int, wait_s: float, headers: bool
    ) -> tuple[pa.RecordBatch | None, int, tuple[KafkaError, int, int] | None]:
        """Read records of the assigned partition with ``start <= offset < stop``.

        Returns the columns, the next offset, and an event as ``(error, partition, offset)`` or None. The
        columns end at ``stop``, at an event, when no record comes for ``wait_s``, or when they are full. They
        have at most ``rows`` rows, and more than ``size`` bytes only in a single row.
        """
        found, past, event = self._consumer.read(
            partition, start, stop, rows=rows, bytes=size, wait_ms=round(wait_s * 1000), headers=headers
        )
        batch = None if found is None else pa.record_batch(found)
        if event is None:
            return batch, past, None
        code, number, offset, text = event
        return batch, past, (KafkaError(code, text), number, offset)

    def close(self) -> None:
        self._consumer.close()


def native_is_forbidden() -> bool:
    """True if the environment variable CURSORQ_NATIVE is 0.

    Raises:
        InvalidOption: it is neither 0 nor 1.
    """
    forbidden = _switch() == "0"
    if forbidden:
        _log_not_used(f"{SWITCH}=0")
    return forbidden


def open_native_consumer(config: Mapping[str, str]) -> NativeConsumer | None:
    """Return a native consumer, or None if this configuration is read without the native module.

    Raises:
        NativeReaderUnavailable: the environment variable CURSORQ_NATIVE is 1, and the module is not there or
            does not support a setting.
    """
    module, why_not = _loaded()
    why_not = why_not or _not_supported(config)
    if why_not is None:
        try:
            consumer = module.Consumer(quiet(config))
        except ValueError as refused:  # confluent-kafka, which is used instead, gives the reason
            why_not = str(refused)
        else:
            _log_used(module.LIBRDKAFKA_VERSION)
            return NativeConsumer(consumer)
    if _switch() == "1":
        raise NativeReaderUnavailable(why_not)
    _log_not_used(why_not)
    return None


def _switch() -> str:
    given = os.environ.get(SWITCH, "")
    if given not in ("", "0", "1"):
        raise InvalidOption(SWITCH, given, "it is neither 0 nor 1", "correct this environment variable")
    return given


def native_module() -> Any:
    """Return the native module, which a caller with a native consumer has."""
    return _loaded()[0]


@cache
def _loaded() -> tuple[Any, str | None]:
    """Return the module, or the reason why there is none."""
    try:
        return import_module(_MODULE), None
    except ModuleNotFoundError:
        return None, "spark-cursor-source-native is not installed"
    except ImportError as failed:
        return None, str(failed)


def _not_supported(config: Mapping[str, object]) -> str | None:
    for name, value in config.items():
        if name in _NOT_SUPPORTED or name.endswith("_cb") or not isinstance(value, str):
            return f"it does not support the setting {name}"
        if name in _MECHANISMS and value.upper() == "OAUTHBEARER":
            return "it does not support OAUTHBEARER"
    return None


@cache  # once per process
def _log_used(librdkafka: str) -> None:
    log.info("Queues are read by the native reader. event=native_reader_used librdkafka=%s", librdkafka)


@cache  # once per process and reason
def _log_not_used(why: str) -> None:
    log.info("Queues are read without the native reader. event=native_reader_not_used why=%s", why)


def _check(code: int) -> None:
    if code:
        raise KafkaException(KafkaError(code))
