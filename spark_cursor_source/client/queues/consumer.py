"""Consumer of a queue. Each received message is settled individually."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from spark_cursor_source.client.queues.ack_batcher import AckBatcher
from spark_cursor_source.client.queues.buffer import ReceiveBuffer
from spark_cursor_source.client.queues.feed import Feed
from spark_cursor_source.client.queues.message import QueueMessage
from spark_cursor_source.core.closing import ClosedAtExit
from spark_cursor_source.errors import ClientClosed
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.metrics.consumers import ConsumerCounts
from spark_cursor_source.options.arguments import call_timeout
from spark_cursor_source.topics.marker_producer import MarkerProducer
from spark_cursor_source.tracker.embedded import EmbeddedTracker


class QueueConsumer(ClosedAtExit):
    """One consumer of a queue. Threads may share a consumer; forked processes may not.

    The consumers and Spark queries of one subscription share its partitions. The receive buffer holds at most
    ``consumer_receive_buffer_capacity`` messages. A slow consumer with a full buffer fetches no messages, and
    other consumers receive them. The consumer extends the lease of each received message until the message
    is settled or the consumer is closed.

    Example::

        from spark_cursor_source.client import Service, ServiceConfig

        service = Service(ServiceConfig(bootstrap_servers="broker:9092", message_topic="jobs"))
        mails = service.queue("mails")
        with mails.producer() as producer, mails.consumer() as consumer:
            producer.send(b"to: you")
            for message in consumer:
                print(message.payload)
                message.ack()
                break
    """

    def __init__(
        self,
        feed: Feed,
        batcher: AckBatcher,
        buffer: ReceiveBuffer,
        sender: MarkerProducer,
        *,
        wait_ms: int,
        tracker: EmbeddedTracker | None = None,
        counts: ConsumerCounts,
    ) -> None:
        self._feed, self._batcher, self._sender = feed, batcher, sender
        self._buffer, self._wait_ms = buffer, wait_ms
        self._tracker = tracker
        self._counts = counts
        counts.held, counts.buffered = lambda: batcher.held, lambda: len(buffer.messages)
        self._closed = False
        batcher.start()
        if tracker is None:
            feed.start()
        else:
            feed.start(check=tracker.check)  # without its tracker, nothing is redelivered

    def receive(self, timeout_ms: int | None = None) -> QueueMessage | None:
        """Returns the next message, or None if no message arrives within the timeout.

        The timeout defaults to ``consumer_next_message_timeout_ms``.

        Raises:
            NothingReceived: no message arrived because brokers are unavailable or no tracker runs. The
                consumer retries.
            ClientClosed
            DataLoss, NotAuthorized, QueueTopicRecreated, ConsumerFailed and others: the consumer, or its
                embedded tracker, has failed permanently.
        """
        buffer = self._buffer
        try:
            message = buffer.messages.popleft()
        except IndexError:
            return buffer.take(Deadline.after_ms(call_timeout(timeout_ms, self._wait_ms)))
        if buffer.starved:
            buffer.taken()
        return message

    def __iter__(self) -> Iterator[QueueMessage]:
        """Yields messages until the consumer is closed. Raises the errors of :meth:`receive`."""
        while True:
            try:
                message = self.receive()
            except ClientClosed:
                return
            if message is not None:
                yield message

    def flush(self, timeout_ms: int | None = None) -> None:
        """Waits until the brokers have stored all acks and other settlements.

        Raises:
            NotSettled: the timeout passed first. The consumer retries the write.
        """
        self._batcher.flush(timeout_ms)

    def close(self) -> None:
        """Writes pending settlements, releases buffered messages and leaves the consumer group.

        Messages that were received and not settled are redelivered when their leases expire. Another close
        has no effect, unless the first one was interrupted while it waited for a fetch or for the end of an
        embedded tracker: then it goes on.

        Raises:
            NotSettled: brokers were unavailable for the client's timeout. The consumer is closed, and acked
                messages may be redelivered.
        """
        self._feed.stop()  # not one of the parts: no client may be closed while the thread uses it
        with ExitStack() as parts:  # each is closed, also after an error or interrupt of another
            if self._tracker is not None:
                parts.callback(self._tracker.release)
            if self._closed:
                return
            self._closed = True
            for part in (self._counts, self._sender, self._feed, self._batcher):  # the last one first
                parts.callback(part.close)
