"""One configuration, made fit for each kind of client that a part opens."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException, Producer

from spark_cursor_source.kafka.config_names import CONSUMER_ONLY, PRODUCER_ONLY

_OF_CONSUMERS = CONSUMER_ONLY | {
    "auto.offset.reset",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "group.id",
    "isolation.level",
}
_OF_PRODUCERS = PRODUCER_ONLY | {"transactional.id"}


def admin_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """What an AdminClient reads of a configuration; the rest would be a warning in the log each time."""
    return {name: value for name, value in config.items() if name not in _OF_CONSUMERS | _OF_PRODUCERS}


def producer_config(config: Mapping[str, Any], settings: Mapping[str, object]) -> dict[str, Any]:
    """Of an idempotent producer, with ``settings`` on top."""
    read = {name: value for name, value in config.items() if name not in _OF_CONSUMERS}
    return read | {"enable.idempotence": True, "acks": "all"} | dict(settings)


def consumer_config(config: Mapping[str, Any], settings: Mapping[str, object]) -> dict[str, Any]:
    """Of a consumer that is assigned what it reads and commits nothing; it has a group id for form's sake."""
    read = {name: value for name, value in config.items() if name not in _OF_PRODUCERS}
    fixed = {
        "allow.auto.create.topics": False,
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
    }
    return {"group.id": "cursorq"} | read | fixed | dict(settings)


def abandon(producer: Producer) -> None:
    """Take from a producer, in whatever state it is, all it has to send, so that it ends without a wait."""
    with contextlib.suppress(KafkaException):  # what is wrong with it was said before
        producer.purge()
        producer.poll(0)
