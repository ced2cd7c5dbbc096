"""Pools of the consumers that read ranges, which a process keeps for the next task."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager

from confluent_kafka import Consumer

from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.config_roles import reader_config
from spark_cursor_source.kafka.native import (
    SWITCH,
    NativeConsumer,
    native_is_forbidden,
    open_native_consumer,
)
from spark_cursor_source.kafka.pool import ClientPool

AnyConsumer = Consumer | NativeConsumer


def borrowed_consumer(config: Mapping[str, str]) -> AbstractContextManager[Consumer]:
    """Lend a consumer of this configuration from the pool of this process to one borrower at a time.

    The consumer returns to the pool when the block ends, also if the generator around it was abandoned. After
    any other exception it is closed, so that a broken consumer is not reused.
    """
    made = reader_config(config)
    return _idle.lend(frozenset(made.items()), lambda: open_client(Consumer, made))


def borrowed_fastest_consumer(config: Mapping[str, str]) -> AbstractContextManager[AnyConsumer]:
    """Lend a native consumer in the same way, or where there is none, a consumer of confluent-kafka.

    Raises the errors of ``open_native_consumer``.
    """
    if native_is_forbidden():
        return borrowed_consumer(config)
    made = reader_config(config)
    key = os.environ.get(SWITCH), frozenset(made.items())
    return _idle_native.lend(key, lambda: open_native_consumer(made) or open_client(Consumer, made))


def close_idle_consumers() -> None:
    """Close the idle consumers of this process."""
    _idle.close()
    _idle_native.close()


def _close(consumer: AnyConsumer) -> None:
    consumer.close()


def _unassign(consumer: AnyConsumer) -> None:
    consumer.unassign()


_idle: ClientPool[Consumer] = ClientPool(_close, reset=_unassign)
_idle_native: ClientPool[AnyConsumer] = ClientPool(_close, reset=_unassign)
