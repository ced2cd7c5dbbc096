"""Consumers that read ranges: how they are set up, and those that a process keeps for its next task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer

from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.pool import ClientPool, Configuration

# Measured at 1M messages of 100 B: librdkafka's own defaults pause the fetcher for up to a second.
_FAST = {
    "fetch.queue.backoff.ms": "2",
    "fetch.wait.max.ms": "10",
    "fetch.message.max.bytes": str(1 << 20),
    "queued.min.messages": "20000",
    "group.id": "cursorq-reader",  # librdkafka wants one; nothing joins it and nothing is committed to it
}
_REQUIRED = {
    "allow.auto.create.topics": "false",
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
}
_ALIASES = {"max.partition.fetch.bytes": "fetch.message.max.bytes"}
_KEPT = 2  # idle consumers per process: a task needs one, and a session seldom reads two clusters


def reader_config(config: Mapping[str, str]) -> dict[str, str]:
    """``config`` as ``read_range`` needs it: fast unless asked otherwise, and never reset in silence."""
    given = {_ALIASES.get(name, name): value for name, value in config.items()}
    return _FAST | given | _REQUIRED


@contextmanager
def borrowed_consumer(config: Mapping[str, str]) -> Iterator[Consumer]:
    """A consumer of this configuration, kept by the process and handed to one borrower at a time.

    It comes back when the block ends, also when the generator around it was abandoned; after any other
    exception it is closed, so that nothing broken is used again.
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
    """Close what this process keeps."""
    _idle.close()


def _give_back(key: Configuration, consumer: Consumer) -> None:
    consumer.unassign()
    _idle.put(key, consumer)


_idle = ClientPool(Consumer.close, kept=_KEPT)
