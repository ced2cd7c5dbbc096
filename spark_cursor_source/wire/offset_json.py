"""The source's position as the JSON that Spark keeps in its offset log: one line, nothing but positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_cursor_source.core.planning import SourceOffset
from spark_cursor_source.errors import InvalidOffset

VERSION = 1


def encode(offset: SourceOffset) -> dict[str, Any]:
    """Objects of plain JSON, keys sorted, so that equal positions are equal text.

    >>> encode(SourceOffset(queue={("orders", 0): 5}, redeliveries={1: 7}, topic_ids={"orders": "x"}))
    {'v': 1, 'queue': {'orders': {'0': 5}}, 'redeliveries': {'1': 7}, 'ids': {'orders': 'x'}}
    """
    queue: dict[str, dict[str, int]] = {}
    for (topic, partition), position in sorted(offset.queue.items()):
        queue.setdefault(topic, {})[str(partition)] = position
    encoded = {
        "v": VERSION,
        "queue": queue,
        "redeliveries": _by_partition(offset.redeliveries),
        "ids": dict(sorted(offset.topic_ids.items())),
    }
    return encoded | {"markers": _by_partition(offset.markers)} if offset.markers else encoded


def decode(stored: Mapping[str, Any]) -> SourceOffset:
    """The position of such JSON.

    Raises:
        InvalidOffset: it is none.
    """
    try:
        if stored["v"] != VERSION:
            raise ValueError(f"version {stored['v']}")
        return SourceOffset(
            queue={
                (topic, int(partition)): _position(at)
                for topic, positions in stored["queue"].items()
                for partition, at in positions.items()
            },
            redeliveries=_positions(stored["redeliveries"]),
            topic_ids=dict(stored["ids"]),
            markers=_positions(stored.get("markers", {})),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        raise InvalidOffset(
            f"the checkpoint holds an offset that is none of cursorq's: {str(stored)[:200]}"
        ) from cause


def _by_partition(positions: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): at for partition, at in sorted(positions.items())}


def _positions(stored: Mapping[str, object]) -> dict[int, int]:
    return {int(partition): _position(at) for partition, at in stored.items()}


def _position(at: object) -> int:
    if type(at) is not int or at < 0:
        raise ValueError(f"position {at!r}")
    return at
