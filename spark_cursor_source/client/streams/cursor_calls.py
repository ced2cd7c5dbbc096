"""Cursor methods of the client."""

from __future__ import annotations

from spark_cursor_source.client.streams.arguments import cell_of, check_number
from spark_cursor_source.client.streams.parts import Parts
from spark_cursor_source.core.named_cursor import NO_OFFSET, NamedCursor
from spark_cursor_source.options.kinds import MAX_LONG


class CursorCalls:
    """Mixin of ``Client`` for named cursors: one offset per (cursor id, stream, partition)."""

    _parts: Parts

    def set_cursor(
        self, cursor_id: str, stream: str, partition: int, offset: int, *, epoch: int | None = None
    ) -> None:
        """Stores ``offset`` durably under (cursor id, stream, partition).

        The last of several concurrent writes wins. An ``epoch`` fences the cursor: calls with a lower epoch
        or without an epoch are refused, so that a replaced owner cannot move the cursor.

        Raises:
            CursorFenced: the cursor was set with a higher epoch.
            CursorOfTracker: the cursor belongs to a subscription.
            InvalidArgument, ClientClosed
            KafkaUnavailable: the timeout passed first. The cursor may be set now or later.
            CursorsTopicNotCompacted, InvalidControlRecord, NotAuthorized, KafkaRefused
        """
        cell = cell_of(cursor_id, stream, partition)
        check_number("offset", offset, least=NO_OFFSET, most=MAX_LONG)
        if epoch is not None:
            check_number("epoch", epoch, least=0, most=MAX_LONG)
        self._parts.cursors().set(NamedCursor(cell=cell, offset=offset, epoch=epoch))

    def fetch_cursor(self, cursor_id: str, stream: str, partition: int) -> int:
        """Returns the offset that any process set last before this call, or -1 if no cursor exists.

        If ``cursor_id`` is the name of a subscription, returns the subscription's mark-delete position.

        Raises:
            InvalidArgument, ClientClosed
            KafkaUnavailable, CursorsTopicNotCompacted, InvalidControlRecord, NotAuthorized, KafkaRefused
        """
        found = self._parts.cursors().get(cell_of(cursor_id, stream, partition))
        return NO_OFFSET if found is None else found.offset
