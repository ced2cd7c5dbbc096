"""Receiving the messages of a queue, each to be settled by itself."""

from __future__ import annotations

from collections.abc import Iterator

from spark_cursor_source.client.queues.buffer import ReceiveBuffer
from spark_cursor_source.client.queues.feed import Feed
from spark_cursor_source.client.queues.message import QueueMessage
from spark_cursor_source.client.queues.settler import AckBatcher
from spark_cursor_source.core.closing import ClosedAtExit
from spark_cursor_source.errors import ClientClosed
from spark_cursor_source.kafka.confirmed_producer import ConfirmedProducer
from spark_cursor_source.kafka.deadline import Deadline


class QueueConsumer(ClosedAtExit):
    """One consumer of a queue; threads may share it, forked processes may not.

    Consumers of a subscription share its partitions, with each other and with Spark queries. At most
    ``consumer_receive_buffer_capacity`` messages wait here to be received: who is slow gets no more of them,
    and others do. All that is received keeps its lease until it is settled, or the consumer is closed.

    >>> with service.queue("mails").consumer() as consumer:  # doctest: +SKIP
    ...     for message in consumer:
    ...         send_mail(message.payload)
    ...         message.ack()
    """

    def __init__(
        self,
        feed: Feed,
        settler: AckBatcher,
        buffer: ReceiveBuffer,
        sender: ConfirmedProducer,
        *,
        wait_ms: int,
    ) -> None:
        self._feed, self._settler, self._sender = feed, settler, sender
        self._buffer, self._wait_ms = buffer, wait_ms
        self._closed = False
        settler.start()
        feed.start()

    def receive(self, timeout_ms: int | None = None) -> QueueMessage | None:
        """The next message; None if none came in time, by default in ``consumer_next_message_timeout_ms``.

        Raises:
            NothingReceived: none came because brokers are away, or no tracker runs; the consumer tries on.
            ClientClosed
            DataLoss, NotAuthorized, QueueTopicRecreated and others: the consumer cannot go on.
        """
        buffer = self._buffer
        try:
            message = buffer.messages.popleft()
        except IndexError:
            return buffer.take(Deadline.after_ms(self._wait_ms if timeout_ms is None else timeout_ms))
        if buffer.starved:
            buffer.taken()
        return message

    def __iter__(self) -> Iterator[QueueMessage]:
        """One message after the other, until the consumer is closed; raises as :meth:`receive`."""
        while True:
            try:
                message = self.receive()
            except ClientClosed:
                return
            if message is not None:
                yield message

    def flush(self, timeout_ms: int | None = None) -> None:
        """Wait until all that was acked, or settled otherwise, is on the brokers.

        Raises:
            NotSettled: not in time; it is tried further.
        """
        self._settler.flush(timeout_ms)

    def close(self) -> None:
        """Settle what was settled, give back what nobody has received, and leave the group.

        What was received and not settled is left to its lease. To close it again does nothing.

        Raises:
            NotSettled: brokers were away for the client's timeout; it is closed, and what was acked may come
                again.
        """
        if self._closed:
            return
        self._closed = True
        self._feed.stop()
        try:
            self._settler.close()
        finally:
            self._feed.close()
            self._sender.close()
