"""Adaptation of one configuration to each kind of client."""

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
    """Return the options that an AdminClient reads. Each other option would cause a warning in the log."""
    return {name: value for name, value in config.items() if name not in _OF_CONSUMERS | _OF_PRODUCERS}


def producer_config(config: Mapping[str, Any], settings: Mapping[str, object]) -> dict[str, Any]:
    """Return the configuration of an idempotent producer. ``settings`` override ``config``."""
    read = {name: value for name, value in config.items() if name not in _OF_CONSUMERS}
    return read | {"enable.idempotence": True, "acks": "all"} | dict(settings)


def consumer_config(config: Mapping[str, Any], settings: Mapping[str, object]) -> dict[str, Any]:
    """Return the configuration of a consumer with assigned partitions and without commits.

    The group id is only a placeholder that librdkafka requires.
    """
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
    """Purge the unsent records of a producer in any state, so that it closes without a wait."""
    with contextlib.suppress(KafkaException):  # its error was reported before
        producer.purge()
        producer.poll(0)
