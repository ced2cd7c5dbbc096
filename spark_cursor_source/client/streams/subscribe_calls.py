"""The client's call that reads."""

from __future__ import annotations

from collections.abc import Generator

from spark_cursor_source.client.streams.arguments import MAX_PARTITION, check_number, check_stream
from spark_cursor_source.client.streams.parts import Parts
from spark_cursor_source.client.streams.positions import Message, StartAt, StopAt, check_order

_NEW_ONLY = StartAt.new_only()
_NEVER = StopAt.never()


class SubscribeCalls:
    """Streams are read."""

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
        """The messages of a partition, in order, as they come; close the generator to end it before its stop.

        Where it begins is fixed by this call. While the partition is paused it waits; ``resume`` ends a pause
        first. Broken connections are made anew, and no message is left out or comes twice. It keeps no
        position: :meth:`set_cursor` does. Messages of open and aborted transactions are not among them.

        Raises:
            NoSuchStream: the stream, or that partition, does not exist, or not any more.
            EndOfReadonlyPartition: every message was handed out, and no more will come.
            KafkaUnavailable: the brokers were away for longer than ``clientTimeout``.
            InvalidArgument, ClientClosed, NotAuthorized, KafkaRefused
        """
        check_stream(stream)
        check_number("partition", partition, least=0, most=MAX_PARTITION)
        check_order(start, stop)
        return self._parts.streams().subscribing.subscribe(
            stream, partition, start, stop, resume=resume, is_closed=self._parts.is_closed
        )
