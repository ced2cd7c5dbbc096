"""Notes in the commits of a table that list the messages it contains, so that none is written twice."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spark_cursor_source.core.offsets import EMPTY, OffsetSet

_KEY = "cursorq"


class Place(NamedTuple):
    """A partition of a queue topic. A recreated topic has another id."""

    topic: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class TableCommit:
    """Note in the metadata of a commit. The latest note of a writer tells all that may come again.

    >>> place = Place("orders", "id-1", 0)
    >>> first = TableCommit("billing").next({place: OffsetSet.of((0, 3))}, {}, sequence=1, attempt="a")
    >>> ended = {place: OffsetSet.of((0, 2))}
    >>> then = first.next({place: OffsetSet.of((5, 6))}, ended, sequence=2, attempt="b")
    >>> then.written[place].ranges
    ((2, 3), (5, 6))
    >>> TableCommit.of_json(then.to_json(), "billing") == then
    True
    """

    writer: str
    sequence: int = 0  #: number of the commit among those of its writer; 0: there is none yet
    attempt: str = ""  #: unique name of the attempt that made the commit
    #: messages that are in the table and were not known to be ended when the commit was made
    written: Mapping[Place, OffsetSet] = field(default_factory=dict)

    def next(
        self, ids: Mapping[Place, OffsetSet], ended: Mapping[Place, OffsetSet], *, sequence: int, attempt: str
    ) -> TableCommit:
        """Returns the note of a commit that writes ``ids``. It forgets messages that have ended.

        Partitions of a topic that was recreated are forgotten too.
        """
        topic_ids = {place.topic: place.topic_id for place in ids}
        kept = {
            place: offsets
            for place, offsets in self.written.items()
            if topic_ids.get(place.topic, place.topic_id) == place.topic_id
        }
        known = {
            place: (kept.get(place, EMPTY) | ids.get(place, EMPTY)) - ended.get(place, EMPTY)
            for place in {**kept, **ids}
        }
        written = {place: offsets for place, offsets in known.items() if offsets}
        return TableCommit(self.writer, sequence, attempt, written)

    def to_json(self) -> str:
        """Returns the text for the metadata of the commit. It contains offsets and names, and no payload."""
        written = [
            [*place, base64.b64encode(offsets.to_roaring()).decode()]
            for place, offsets in sorted(self.written.items())
        ]
        note = {"writer": self.writer, "sequence": self.sequence, "attempt": self.attempt, "written": written}
        return json.dumps({_KEY: note}, separators=(",", ":"))

    @classmethod
    def of_json(cls, text: str | None, writer: str) -> TableCommit | None:
        """Reads the metadata of a commit. Returns None if it is not a note of this writer.

        Raises:
            ValueError: it is a note of this writer that cannot be read.
        """
        try:
            note: Any = json.loads(text or "null")
        except ValueError:
            return None
        note = note.get(_KEY) if isinstance(note, dict) else None
        if not isinstance(note, dict) or note.get("writer") != writer:
            return None
        try:
            written = {
                Place(str(topic), str(topic_id), int(partition)): _offsets(encoded)
                for topic, topic_id, partition, encoded in note["written"]
            }
            return cls(writer, int(note["sequence"]), str(note["attempt"]), written)
        except (KeyError, TypeError, ValueError) as why:
            raise ValueError(f"the note of writer '{writer}' is damaged: {why}") from why


def _offsets(encoded: str) -> OffsetSet:
    try:
        return OffsetSet.from_roaring(base64.b64decode(encoded, validate=True))
    except binascii.Error as why:
        raise ValueError("an offset set is not base64") from why
