"""Client of streams and named cursors. Connections open on first use and close with the client."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from spark_cursor_source.client.streams.arguments import MAX_PARTITION, cell_of, check_stream
from spark_cursor_source.client.streams.parts import Parts
from spark_cursor_source.client.streams.positions import Message, StartAt, StopAt, check_order
from spark_cursor_source.client.streams.publish_calls import PublishCalls
from spark_cursor_source.client.streams.stream_calls import StreamCalls
from spark_cursor_source.core.closing import ClosedAtExit
from spark_cursor_source.core.named_cursor import NO_OFFSET, NamedCursor
from spark_cursor_source.options.arguments import check_number, true_or_false
from spark_cursor_source.options.kinds import MAX_LONG

_NEW_ONLY = StartAt.new_only()
_NEVER = StopAt.never()


class Client(StreamCalls, PublishCalls, ClosedAtExit):
    """A client of the brokers named in the options. Threads may share a client; forked processes may not.

    If brokers are unavailable, a call waits ``clientTimeout`` (default 30 s), then raises KafkaUnavailable.

    Example::

        from spark_cursor_source.client import Client

        with Client({"kafka.bootstrap.servers": "broker:9092"}) as client:
            client.set_cursor("mailer", "orders", 0, 41)
            assert client.fetch_cursor("mailer", "orders", 0) == 41
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        """Parses the options without a broker connection. Raises OptionsError."""
        self._parts = Parts(options)

    def subscribe(
        self,
        stream: str,
        partition: int = 0,
        *,
        start: StartAt = _NEW_ONLY,
        stop: StopAt = _NEVER,
        resume: bool = False,
    ) -> Generator[Message]:
        """Returns a generator of the messages of a partition, in order, as they arrive.

        Close the generator to end the subscription before its stop position. The start position is resolved
        during this call. The generator waits while the partition is paused; ``resume`` ends a pause first.
        After a lost connection the subscription continues without lost or duplicate messages. If an unclean
        leader election has lost messages that were read, it continues with the messages that get their
        offsets, and logs ``stream_truncated``. If the election has lost the last messages before a stop that
        is no offset, it ends with the messages that are left, and logs ``stream_stop_lost``. Messages of open
        and aborted transactions are excluded. A subscription stores no position: use :meth:`set_cursor`.

        Raises:
            NoSuchStream: the stream or the partition does not exist, or was deleted.
            EndOfReadonlyPartition: the partition is readonly, and all its messages are delivered.
            KafkaUnavailable: the brokers were unavailable for longer than ``clientTimeout``.
            InvalidArgument, ClientClosed, NotAuthorized, KafkaRefused
        """
        check_stream(stream)
        check_number("partition", partition, least=0, most=MAX_PARTITION)
        check_order(start, stop)
        true_or_false("resume", resume)
        return self._parts.streams().subscribing.subscribe(
            stream, partition, start, stop, resume=resume, is_closed=self._parts.is_closed
        )

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

    def close(self) -> None:
        """Closes the client. Another close has no effect."""
        self._parts.close()

    def __repr__(self) -> str:
        return f"Client({self._parts.options!r})"
