"""A cursor as clients see it: a position under a name, without what a tracker knows of it."""

from __future__ import annotations

from dataclasses import dataclass

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.errors import CursorFenced, CursorOfTracker

NO_OFFSET = -1  #: where nobody has set a cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCursor:
    """The last offset that the reader ``cell.subscription`` is done with, -1 before the first.

    ``epoch`` is the fence it was set with, None without one; ``of_tracker``: it is a subscription's, and the
    offset is its mark-delete position.
    """

    cell: Cell
    offset: int
    epoch: int | None = None
    of_tracker: bool = False

    def check_settable(self, epoch: int | None) -> None:
        """That it may be set with this epoch; one without a fence may be set by all.

        >>> cell = Cell(subscription="mailer", topic="orders", partition=0)
        >>> NamedCursor(cell=cell, offset=5, epoch=2).check_settable(2)
        >>> NamedCursor(cell=cell, offset=5, epoch=2).check_settable(1)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        spark_cursor_source.errors.client.CursorFenced: cursor 'mailer,orders,0' was set with epoch 2, ...

        Raises:
            CursorFenced: the epoch is lower, or there is none.
            CursorOfTracker: nobody but a tracker may.
        """
        if self.of_tracker:
            raise CursorOfTracker(str(self.cell))
        if self.epoch is not None and (epoch is None or epoch < self.epoch):
            raise CursorFenced(str(self.cell), epoch, self.epoch)
