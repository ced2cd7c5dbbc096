"""One configuration, made fit for each kind of client that a part opens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_cursor_source.kafka.client_names import CONSUMER_ONLY, PRODUCER_ONLY

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


def producer_config(config: Mapping[str, Any], **settings: object) -> dict[str, Any]:
    """Of an idempotent producer, with ``settings`` (underscores for dots) on top."""
    read = {name: value for name, value in config.items() if name not in _OF_CONSUMERS}
    return read | {"enable.idempotence": True, "acks": "all"} | _dotted(settings)


def consumer_config(config: Mapping[str, Any], **settings: object) -> dict[str, Any]:
    """Of a consumer that is assigned what it reads and commits nothing; it has a group id for form's sake."""
    read = {name: value for name, value in config.items() if name not in _OF_PRODUCERS}
    fixed = {
        "allow.auto.create.topics": False,
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
    }
    return {"group.id": "cursorq"} | read | fixed | _dotted(settings)


def _dotted(settings: Mapping[str, object]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}
