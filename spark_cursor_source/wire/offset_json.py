"""Position of the source as the JSON that Spark keeps in its offset log, on one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_cursor_source.core.batch import SourceOffset, TopicPartition
from spark_cursor_source.core.checkpoint_owner import CheckpointOwner
from spark_cursor_source.errors import InvalidOffset

VERSION = 1


def encode(offset: SourceOffset, owner: CheckpointOwner | None = None) -> dict[str, Any]:
    """Returns plain JSON objects with sorted keys, so that equal positions have equal text.

    The ``owner`` is stored beside the positions, so that no other subscription resumes from them.

    >>> encode(SourceOffset(queue={("orders", 0): 5}, redeliveries={1: 7}, topic_ids={"orders": "x"}))
    {'v': 1, 'queue': {'orders': {'0': 5}}, 'redeliveries': {'1': 7}, 'ids': {'orders': 'x'}}
    """
    encoded: dict[str, Any] = {
        "v": VERSION,
        "queue": _by_topic(offset.queue),
        "redeliveries": _by_partition(offset.redeliveries),
        "ids": dict(sorted(offset.topic_ids.items())),
    }
    if offset.redeliveries_id is not None:
        encoded["redeliveriesId"] = offset.redeliveries_id
    if offset.markers:
        encoded["markers"] = _by_partition(offset.markers)
    if offset.laps:
        encoded["laps"] = offset.laps
    if offset.origins:
        encoded["origins"] = _by_topic(offset.origins)
    if offset.epochs:
        encoded["epochs"] = _by_topic(offset.epochs)
    if offset.runs:
        encoded["runs"] = list(offset.runs)
    if owner is not None:
        encoded["owner"] = dict(sorted(owner.options.items()))
    lanes = {"suspects": offset.suspects, "cuts": offset.cuts, "suspectCuts": offset.suspect_cuts}
    return encoded | {name: _by_partition(lane) for name, lane in lanes.items() if lane}


def owner_of(stored: Mapping[str, Any]) -> CheckpointOwner | None:
    """Returns the owner of such JSON; None if an older version wrote it without an owner.

    Raises:
        InvalidOffset: the owner is malformed, so the JSON is not a position of the source.
    """
    owner = stored.get("owner")
    if owner is None:
        return None
    if not isinstance(owner, Mapping) or not all(isinstance(value, str) for value in owner.values()):
        raise _invalid(stored)
    return CheckpointOwner(dict(owner))


def decode(stored: Mapping[str, Any]) -> SourceOffset:
    """Returns the position of such JSON.

    Raises:
        InvalidOffset: the JSON is not a position of the source.
    """
    try:
        if stored["v"] != VERSION:
            raise ValueError(f"version {stored['v']}")
        return SourceOffset(
            queue=_queue(stored["queue"]),
            redeliveries=_positions(stored["redeliveries"]),
            topic_ids=dict(stored["ids"]),
            redeliveries_id=None if (known := stored.get("redeliveriesId")) is None else str(known),
            markers=_positions(stored.get("markers", {})),
            laps=_position(stored.get("laps", 0)),
            origins=_queue(stored.get("origins", {})),
            suspects=_positions(stored.get("suspects", {})),
            cuts=_positions(stored.get("cuts", {})),
            suspect_cuts=_positions(stored.get("suspectCuts", {})),
            epochs=_queue(stored.get("epochs", {})),
            runs=_names(stored.get("runs", [])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        raise _invalid(stored) from cause


def _invalid(stored: Mapping[str, Any]) -> InvalidOffset:
    return InvalidOffset(f"the checkpoint holds an offset that is none of cursorq's: {str(stored)[:200]}")


def _by_topic(positions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), position in sorted(positions.items()):
        by_topic.setdefault(topic, {})[str(partition)] = position
    return by_topic


def _queue(stored: Mapping[str, Mapping[str, object]]) -> dict[TopicPartition, int]:
    return {
        (topic, int(partition)): _position(at)
        for topic, positions in stored.items()
        for partition, at in positions.items()
    }


def _by_partition(positions: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): at for partition, at in sorted(positions.items())}


def _positions(stored: Mapping[str, object]) -> dict[int, int]:
    return {int(partition): _position(at) for partition, at in stored.items()}


def _names(stored: object) -> tuple[str, ...]:
    if not isinstance(stored, list) or not all(isinstance(name, str) for name in stored):
        raise ValueError(f"names {stored!r}")
    return tuple(stored)


def _position(at: object) -> int:
    if type(at) is not int or at < 0:
        raise ValueError(f"position {at!r}")
    return at
