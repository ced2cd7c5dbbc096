"""Settings that this library adds to the options of the user, for each kind of client.

A promise overrides the options: a consumer never resets or commits an offset by itself, and a record counts
only when every in-sync replica has it. Other settings are defaults, unless the function says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OF_CONSUMERS = {
    "allow.auto.create.topics": "false",
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    # A range may end with offsets that hold no record. Only the partition end tells that they were read.
    "enable.partition.eof": "true",
}
_OF_PRODUCERS = {"acks": "all", "enable.idempotence": "true"}
# librdkafka requires a group id. A consumer with assigned partitions never joins this group or commits to it.
_NO_GROUP = {"group.id": "cursorq-reader"}
# Measured with 1M messages of 100 B: with librdkafka's defaults the fetcher pauses for up to a second.
_MANY_RECORDS = {
    "fetch.queue.backoff.ms": "2",
    "fetch.wait.max.ms": "10",
    "fetch.message.max.bytes": str(1 << 20),
    "queued.min.messages": "20000",
}
#: settings of a consumer that reads few records. The wait is the delay of the report of a partition end.
FEW_RECORDS = {"fetch.queue.backoff.ms": "2", "fetch.wait.max.ms": "5"}


def producer_config(config: Mapping[str, Any], settings: Mapping[str, object]) -> dict[str, Any]:
    """Return the configuration of an idempotent producer. ``settings`` override ``config``."""
    return {**config, **_OF_PRODUCERS, **settings}


def consumer_config(config: Mapping[str, Any], settings: Mapping[str, object]) -> dict[str, Any]:
    """Return the configuration of a consumer. ``settings`` override ``config``."""
    return {**_NO_GROUP, **config, **_OF_CONSUMERS, **settings}


def reader_config(config: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration of a consumer that reads long ranges or the tail of a topic."""
    return consumer_config(_MANY_RECORDS | dict(config), {})
