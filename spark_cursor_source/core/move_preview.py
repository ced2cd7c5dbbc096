"""Effect of a seek or a skip on the messages of a cell, before it happens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from spark_cursor_source.core.cursor import CursorSnapshot, SavedState
from spark_cursor_source.core.offsets import OffsetSet


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePreview:
    """Effect on one partition, in messages; offsets without a message count too."""

    topic: str
    partition: int
    position_before: int  #: the first offset that was never delivered
    position: int  #: position after the move
    again: int  #: delivered before, and delivered again
    dropped: int  #: outstanding or unread, and never delivered again

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name, for ``json.dumps``."""
        return asdict(self)


def preview_seek(cursor: CursorSnapshot, position: int) -> MovePreview:
    """Returns the effect of a seek.

    >>> from spark_cursor_source.core.cell import Cell
    >>> from spark_cursor_source.core.cursor import Lease
    >>> from spark_cursor_source.core.offsets import OffsetSet
    >>> cursor = CursorSnapshot(
    ...     cell=Cell(subscription="s", topic="t", partition=0), read_position=10, next_marker=7,
    ...     leases=((Lease(60_000, 1, "run"), OffsetSet.of((2, 4))),))
    >>> [(one.again, one.dropped) for one in (preview_seek(cursor, to) for to in (0, 3, 10, 15))]
    [(10, 0), (7, 1), (0, 2), (0, 7)]
    """
    return _preview(cursor, position, again=max(0, cursor.read_position - position))


def preview_skip(cursor: CursorSnapshot, position: int) -> MovePreview:
    """Returns the effect of ending every message below a position."""
    return _preview(cursor, max(position, cursor.mark_delete + 1), again=0)


def preview_restore(cursor: CursorSnapshot, saved: SavedState) -> MovePreview:
    """Returns the effect of a return to a saved state.

    >>> from spark_cursor_source.core.cell import Cell
    >>> then = SavedState(
    ...     name="a", at_ms=0, read_position=6, next_marker=1, outstanding=((1, OffsetSet.of((2, 4))),))
    >>> cell = Cell(subscription="s", topic="t", partition=0)
    >>> move = preview_restore(CursorSnapshot(cell=cell, read_position=10, next_marker=7), then)
    >>> move.again, move.dropped
    (6, 0)
    """
    ended_now = OffsetSet.of((0, cursor.read_position)) - cursor.outstanding
    ended_then = OffsetSet.of((0, saved.read_position)) - saved.offsets
    return MovePreview(
        topic=cursor.cell.topic,
        partition=cursor.cell.partition,
        position_before=cursor.read_position,
        position=saved.read_position,
        again=len(ended_now - ended_then),
        dropped=len(ended_then - ended_now),
    )


def effect_of(preview: Iterable[MovePreview]) -> str:
    """Returns the effect on all partitions in words.

    >>> one = MovePreview(topic="t", partition=0, position_before=9, position=2, again=1_234, dropped=1)
    >>> effect_of([one])
    '1,234 messages will come again, 1 message will be dropped'
    """
    parts = list(preview)
    again, dropped = sum(one.again for one in parts), sum(one.dropped for one in parts)
    return f"{_messages(again)} will come again, {_messages(dropped)} will be dropped"


def _messages(count: int) -> str:
    return f"{count:,} message{'s'[: count != 1]}"


def _preview(cursor: CursorSnapshot, position: int, *, again: int) -> MovePreview:
    return MovePreview(
        topic=cursor.cell.topic,
        partition=cursor.cell.partition,
        position_before=cursor.read_position,
        position=position,
        again=again,
        dropped=len(cursor.outstanding.below(position)) + max(0, position - cursor.read_position),
    )


def partitions_text(count: int) -> str:
    """Returns a number of partitions in words.

    >>> partitions_text(1), partitions_text(4)
    ('1 partition', '4 partitions')
    """
    return f"{count} partition{'s'[: count != 1]}"
