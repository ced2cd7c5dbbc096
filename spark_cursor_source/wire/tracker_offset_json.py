"""Position of the tracker as the JSON of Spark's offset log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from spark_cursor_source.core.tracker_offset import TrackerOffset
from spark_cursor_source.errors import InvalidOffset

VERSION = 1


def encode(offset: TrackerOffset) -> dict[str, Any]:
    """Returns plain JSON objects.

    >>> encode(TrackerOffset(tracker_id="t", next={0: 5}, now_ms={0: 9}, settled=frozenset({0})))
    {'v': 1, 'tracker': 't', 'next': {'0': 5}, 'now': {'0': 9}, 'settled': [0], 'resumed': True}
    """
    encoded = {
        "v": VERSION,
        "tracker": offset.tracker_id,
        "next": {str(partition): at for partition, at in sorted(offset.next.items())},
        "now": {str(partition): now for partition, now in sorted(offset.now_ms.items())},
        "settled": sorted(offset.settled),
        "resumed": offset.resumed,
    }
    if offset.read_between:
        encoded["read"] = {
            str(partition): [*times] for partition, times in sorted(offset.read_between.items())
        }
    if offset.cursors_id:
        encoded["cursors"] = offset.cursors_id
    return encoded


def digest(offset: TrackerOffset) -> str:
    """Returns a short text that differs for another position, and for the same position at another time.

    >>> from dataclasses import replace
    >>> one = TrackerOffset(tracker_id="t", next={0: 5}, now_ms={0: 9})
    >>> digest(one) == digest(decode(encode(one))), digest(one) == digest(replace(one, now_ms={0: 10}))
    (True, False)
    """
    return sha256(json.dumps(encode(offset), sort_keys=True).encode()).hexdigest()[:16]


def decode(stored: Mapping[str, Any]) -> TrackerOffset:
    """Returns the position of such JSON.

    Raises:
        InvalidOffset: the JSON is not a position of a tracker.
    """
    try:
        if stored["v"] != VERSION:
            raise ValueError(f"version {stored['v']}")
        return TrackerOffset(
            tracker_id=str(stored["tracker"]),
            next={int(partition): int(at) for partition, at in stored["next"].items()},
            now_ms={int(partition): int(now) for partition, now in stored["now"].items()},
            settled=frozenset(map(int, stored["settled"])),
            resumed=bool(stored["resumed"]),
            read_between={
                int(partition): _pair(times) for partition, times in stored.get("read", {}).items()
            },
            cursors_id=str(stored.get("cursors", "")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        raise InvalidOffset(
            f"the checkpoint holds an offset that is none of a tracker's: {str(stored)[:200]}"
        ) from cause


def _pair(times: Any) -> tuple[int, int]:
    earliest, latest = times
    return int(earliest), int(latest)
