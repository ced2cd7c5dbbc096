"""Bytes that this library cannot read."""

from __future__ import annotations

from spark_cursor_source.errors.root import CursorqError


class WireError(CursorqError):
    """Bytes in a control topic or a checkpoint are not what this library writes."""


class InvalidMarker(WireError):
    """A record of the markers topic is no marker. The tracker counts, logs and skips it."""


class InvalidControlRecord(WireError):
    """A record of the redeliveries or cursors topic cannot be read.

    It was written by another program, or by a later version: use one version of the library everywhere, and
    topics that nothing else writes to.
    """


class LaterCursorVersion(InvalidControlRecord):
    """A tracker of a later version of this library has written the cursor.

    Not to know it would deliver again what it says is acked: use one version of the library everywhere.
    """

    def __init__(self, version: int, known: int) -> None:
        super().__init__(version, known)
        self.version, self.known = version, known

    def __str__(self) -> str:
        return (
            f"a cursor of version {self.version} cannot be read, only up to version {self.known}: its "
            "tracker has a later version of spark_cursor_source; install that version here too"
        )


class InvalidOffset(WireError):
    """The offset in a checkpoint is not one of this source.

    The checkpoint belongs to another kind of source or to a later version: start the query with a checkpoint
    of its own; its subscription's cursor still says where to go on.
    """
