"""Subscribing method of the client."""

from __future__ import annotations

from collections.abc import Generator

from spark_cursor_source.client.streams.arguments import MAX_PARTITION, check_number, check_stream
from spark_cursor_source.client.streams.parts import Parts
from spark_cursor_source.client.streams.positions import Message, StartAt, StopAt, check_order

_NEW_ONLY = StartAt.new_only()
_NEVER = StopAt.never()


class SubscribeCalls:
    """Mixin of ``Client`` with the subscribing method."""

    _parts: Parts

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
        After a lost connection the subscription continues without lost or duplicate messages. Messages of
        open and aborted transactions are excluded. A subscription stores no position: use
        :meth:`set_cursor`.

        Raises:
            NoSuchStream: the stream or the partition does not exist, or was deleted.
            EndOfReadonlyPartition: the partition is readonly, and all its messages are delivered.
            KafkaUnavailable: the brokers were unavailable for longer than ``clientTimeout``.
            InvalidArgument, ClientClosed, NotAuthorized, KafkaRefused
        """
        check_stream(stream)
        check_number("partition", partition, least=0, most=MAX_PARTITION)
        check_order(start, stop)
        return self._parts.streams().subscribing.subscribe(
            stream, partition, start, stop, resume=resume, is_closed=self._parts.is_closed
        )
