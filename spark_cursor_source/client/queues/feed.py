"""Base class of the feeds: threads that fetch messages into a consumer's buffer."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

from spark_cursor_source.client.queues.ack_batcher import AckBatcher
from spark_cursor_source.client.queues.buffer import ReceiveBuffer
from spark_cursor_source.client.queues.failure import as_own_error
from spark_cursor_source.client.queues.message import Delivery, QueueMessage, releases
from spark_cursor_source.client.streams.keeper import FOLLOW_S
from spark_cursor_source.consumer.known_topics import KnownTopics
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import (
    CursorqError,
    KafkaUnavailable,
    MarkersNotDurable,
    NoTracker,
    QueueTopicEndsEarlier,
    ReadStalled,
)
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import Pace
from spark_cursor_source.options.marker_format import MarkerVersion
from spark_cursor_source.options.service import ServiceConfig
from spark_cursor_source.topics.data_loss import report_loss, report_truncation
from spark_cursor_source.topics.streams import StreamStates

log = logging.getLogger(__name__)

LOOK_S = 0.1  #: poll interval in seconds of one round of the feed
_PASSING = (KafkaUnavailable, MarkersNotDurable, NoTracker, ReadStalled)
_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.1, 5.0


class Feed(ABC):
    """Fetches messages, writes their Starts and puts them into the buffer while the buffer has room.

    Passing errors, such as unavailable brokers, are retried with exponential backoff. Other errors end the
    consumer. A message enters the buffer only after the brokers have stored its Start. Messages of a paused
    partition are not started.
    """

    def __init__(
        self,
        config: ServiceConfig,
        queue_id: bytes | None,
        topics: ClusterAdmin,
        known: KnownTopics,
        batcher: AckBatcher,
        buffer: ReceiveBuffer,
    ) -> None:
        self._config, self._queue_id, self._known = config, queue_id, known
        self._batcher, self._buffer = batcher, buffer
        self._states = StreamStates(config.kafka, config.streams_topic, topics, timeout_ms=config.timeout_ms)
        self._look_at_states = Pace(int(FOLLOW_S * 1000))
        self._closing = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="cursorq-feed", daemon=True)

    def start(self, *, check: Callable[[], None] = lambda: None) -> None:
        """Starts the fetching thread. It calls ``check`` in each round, whose error ends the consumer."""
        self._check = check
        self._thread.start()

    def stop(self) -> None:
        """Stops fetching and releases the buffered messages."""
        self._closing.set()
        self._buffer.end()
        self._thread.join()

    def close(self) -> None:
        """Leaves the group and closes the Kafka clients. Call after :meth:`stop`."""
        if not self._closed:
            self._closed = True
            self._close()
            self._states.close()

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def _step(self) -> None:
        """Runs one short round. Raises the error of a failed round."""

    def _trouble(self) -> CursorqError | None:
        """Returns the error for which no partition can be read, although the round has not failed."""
        return None

    def _paused(self) -> frozenset[int]:
        """Returns the paused partitions. The state is at most ``FOLLOW_S`` old."""
        if self._look_at_states.is_time():
            self._states.refresh()
        return self._states.view.paused_in(self._config.message_topic)

    def _withdraw(self, gone: Callable[[QueueMessage], bool]) -> None:
        """Releases the buffered messages that match ``gone``."""
        for release in releases(self._buffer.withdraw(gone)):
            self._batcher.settle(release)

    def _work(self) -> None:
        fatal: CursorqError | None = None
        try:
            self._fetch()
        except Exception as why:
            # Any error: without one, receivers would take the end of the buffer for a close.
            fatal = as_own_error(why)
            log.error(
                "The consumer stops because of an error. event=consumer_stopped error=%s",
                fatal,
                exc_info=None if fatal is why else why,
            )
        finally:
            self._buffer.end(fatal)
            with suppress(CursorqError):  # the ack thread has failed: the leases expire
                self._withdraw(lambda _: True)
            if not self._closing.is_set():
                self.close()  # otherwise no member would read these partitions

    def _fetch(self) -> None:
        """Runs rounds until the feed is stopped. Backs off after passing errors."""
        pause_s = _LEAST_PAUSE_S
        while not self._closing.is_set():
            self._check()  # not among the errors that pass: what has ended does not begin again
            try:
                self._batcher.check()  # otherwise messages would be leased that nobody can settle
                self._step()
            except _PASSING as trouble:
                if self._buffer.trouble is None:
                    log.warning(
                        "The consumer cannot fetch messages and retries. event=consumer_retrying error=%s",
                        trouble,
                    )
                self._buffer.trouble = trouble
                self._closing.wait(pause_s)
                pause_s = min(2 * pause_s, _MOST_PAUSE_S)
            else:
                self._buffer.trouble, pause_s = self._trouble(), _LEAST_PAUSE_S

    def _delivery(self, cell: Cell, delivery_count: int, began_ms: int | None = None) -> Delivery:
        return Delivery(
            self._batcher,
            cell,
            delivery_count,
            lease_ms=self._config.redelivery_timeout_ms,
            can_reject=self._config.marker_format is MarkerVersion.V2,
            began_ms=began_ms,
        )

    def _on_removed(self, partition: int, first: int, past: int) -> None:
        offsets = OffsetSet.of((first, past))
        report_loss(self._config.message_topic, partition, offsets, fail=self._config.fail_on_data_loss)

    def _on_truncated(self, lost: QueueTopicEndsEarlier) -> None:
        report_truncation(lost, fail=self._config.fail_on_data_loss)
