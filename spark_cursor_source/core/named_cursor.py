"""Cursor from a client's view: a named position, without tracker state."""

from __future__ import annotations

from dataclasses import dataclass

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.errors import CursorFenced, CursorOfTracker

NO_OFFSET = -1  #: offset of a cursor that was never set


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCursor:
    """Last offset that the reader ``cell.subscription`` has processed; -1 before the first.

    ``epoch`` is the fencing epoch of the last update; None: no fencing. With ``of_tracker``, the cursor
    belongs to a subscription and the offset is its mark-delete position.
    """

    cell: Cell
    offset: int
    epoch: int | None = None
    of_tracker: bool = False

    def check_settable(self, epoch: int | None) -> None:
        """Checks that the cursor may be set with this epoch; any client may set a cursor without an epoch.

        >>> cell = Cell(subscription="mailer", topic="orders", partition=0)
        >>> NamedCursor(cell=cell, offset=5, epoch=2).check_settable(2)
        >>> NamedCursor(cell=cell, offset=5, epoch=2).check_settable(1)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        spark_cursor_source.errors.client.CursorFenced: Cursor 'mailer,orders,0' was set with epoch 2, ...

        Raises:
            CursorFenced: the cursor has an epoch, and the given epoch is lower or missing.
            CursorOfTracker: the cursor belongs to a subscription, and only a tracker may set it.
        """
        if self.of_tracker:
            raise CursorOfTracker(str(self.cell))
        if self.epoch is not None and (epoch is None or epoch < self.epoch):
            raise CursorFenced(str(self.cell), epoch, self.epoch)
