"""The client's cursors."""

from __future__ import annotations

from spark_cursor_source.errors.client import ClientError


class CursorFenced(ClientError):
    """A cursor was set with a higher epoch than this one: another has taken over. Nothing was changed."""

    def __init__(self, cursor: str, epoch: int | None, stored: int) -> None:
        super().__init__(cursor, epoch, stored)
        self.cursor, self.epoch, self.stored = cursor, epoch, stored

    def __str__(self) -> str:
        given = "no epoch" if self.epoch is None else f"epoch {self.epoch}"
        return (
            f"cursor '{self.cursor}' was set with epoch {self.stored}, and {given} is lower: another owner "
            "has taken over; end this one, or get an epoch above that one first"
        )


class CursorOfTracker(ClientError):
    """A cursor that a tracker keeps was to be set: acks move it, and nothing else."""

    def __init__(self, cursor: str) -> None:
        super().__init__(cursor)
        self.cursor = cursor

    def __str__(self) -> str:
        return (
            f"cursor '{self.cursor}' belongs to a tracker, which would write over it: ack messages to move "
            "it, or choose another cursor id"
        )
