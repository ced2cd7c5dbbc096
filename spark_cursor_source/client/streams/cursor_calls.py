"""The client's calls about cursors."""

from __future__ import annotations

from spark_cursor_source.client.streams.arguments import cell_of, check_number
from spark_cursor_source.client.streams.parts import Parts
from spark_cursor_source.core.named_cursor import NO_OFFSET, NamedCursor
from spark_cursor_source.options.reader import MAX_LONG


class CursorCalls:
    """A position under (cursor id, stream, partition)."""

    _parts: Parts

    def set_cursor(
        self, cursor_id: str, stream: str, partition: int, offset: int, *, epoch: int | None = None
    ) -> None:
        """Keep ``offset`` under (cursor id, stream, partition), durably.

        Of concurrent setters the last to be written wins. With an ``epoch`` a cursor is fenced: who comes
        with a lower one, or without, is refused, so that an owner who was replaced moves it no more.

        Raises:
            CursorFenced: it was set with a higher epoch.
            CursorOfTracker: it is the cursor of a subscription.
            InvalidArgument, ClientClosed
            KafkaUnavailable: it may be set all the same, or be so later.
            CursorsTopicNotCompacted, InvalidControlRecord, NotAuthorized, KafkaRefused
        """
        cell = cell_of(cursor_id, stream, partition)
        check_number("offset", offset, least=NO_OFFSET, most=MAX_LONG)
        if epoch is not None:
            check_number("epoch", epoch, least=0, most=MAX_LONG)
        self._parts.cursors().set(NamedCursor(cell=cell, offset=offset, epoch=epoch))

    def fetch_cursor(self, cursor_id: str, stream: str, partition: int) -> int:
        """The offset that was set last, by any process, before this call; -1 if there is none.

        With a subscription's name for the cursor id it is that subscription's mark-delete position.

        Raises:
            InvalidArgument, ClientClosed
            KafkaUnavailable, CursorsTopicNotCompacted, InvalidControlRecord, NotAuthorized, KafkaRefused
        """
        found = self._parts.cursors().get(cell_of(cursor_id, stream, partition))
        return NO_OFFSET if found is None else found.offset
