"""Consumers that read ranges: their configuration, and a pool that keeps them for the next task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer

from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.pool import ClientPool, Configuration

# Measured with 1M messages of 100 B: with librdkafka's defaults the fetcher pauses for up to a second.
_FAST = {
    "fetch.queue.backoff.ms": "2",
    "fetch.wait.max.ms": "10",
    "fetch.message.max.bytes": str(1 << 20),
    "queued.min.messages": "20000",
    # librdkafka requires a group id, but no client joins this group or commits to it
    "group.id": "cursorq-reader",
}
_REQUIRED = {
    "allow.auto.create.topics": "false",
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
}
_ALIASES = {"max.partition.fetch.bytes": "fetch.message.max.bytes"}
_KEPT = 2  # idle consumers per process: a task needs one, and a session rarely reads two clusters


def reader_config(config: Mapping[str, str]) -> dict[str, str]:
    """Adapt ``config`` for ``read_range``: fast fetches unless overridden, and no automatic offset reset."""
    given = {_ALIASES.get(name, name): value for name, value in config.items()}
    return _FAST | given | _REQUIRED


@contextmanager
def borrowed_consumer(config: Mapping[str, str]) -> Iterator[Consumer]:
    """Lend a consumer of this configuration from the pool of this process to one borrower at a time.

    The consumer returns to the pool when the block ends, also if the generator around it was abandoned. After
    any other exception it is closed, so that a broken consumer is not reused.
    """
    key = frozenset(reader_config(config).items())
    consumer = _idle.take(key) or open_client(Consumer, dict(key))
    try:
        yield consumer
    except GeneratorExit:
        _give_back(key, consumer)
        raise
    except BaseException:
        consumer.close()
        raise
    else:
        _give_back(key, consumer)


def close_idle_consumers() -> None:
    """Close the idle consumers of this process."""
    _idle.close()


def _give_back(key: Configuration, consumer: Consumer) -> None:
    consumer.unassign()
    _idle.put(key, consumer)


_idle = ClientPool(Consumer.close, kept=_KEPT)
