"""Notice of appends to partitions of several topics, by a fetch that waits at the broker."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.config_roles import consumer_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import ErrorCallback
from spark_cursor_source.kafka.reading import Event, event_of, offset_of

log = logging.getLogger(__name__)

_AT_ONCE = 500
_LEAST_S = 0.002
_SETTINGS: dict[str, Any] = {
    # The broker answers at once when a record is appended, also one of an open transaction. The ends of
    # transactions are records too.
    "isolation.level": "read_uncommitted",
    "fetch.min.bytes": "1",
    "fetch.wait.max.ms": "500",
    # The records themselves are not needed, so as few as possible are fetched.
    "fetch.message.max.bytes": "1024",
    "queued.min.messages": "1",
    "queued.max.messages.kbytes": "64",
    "fetch.queue.backoff.ms": "2",
}

Partition = tuple[str, int]  #: (topic, partition)


class AppendWatch:
    """Tells within milliseconds that records were appended, at two requests a second. Not thread-safe.

    The client is opened at the first :meth:`begin`. A notice may be wrong, and only means that the ends of
    the partitions are worth a look. Look at them now and then without a notice too: a deleted topic gives
    none.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)
        self._consumer: Consumer | None = None
        self._fetched: frozenset[Partition] = frozenset()
        self._seen: dict[Partition, int] = {}  # no notice is given of the records below

    def begin(self, ends: Mapping[Partition, int]) -> None:
        """Fetches these partitions from their ends, or from later records that it has given notice of."""
        is_beyond = all(self._seen.get(place, -1) >= end for place, end in ends.items())
        if self._fetched == ends.keys() and is_beyond:
            return
        self._seen = {place: max(end, self._seen.get(place, 0)) for place, end in ends.items()}
        self._fetched = frozenset(ends)
        self._client().assign(
            [TopicPartition(topic, number, at) for (topic, number), at in self._seen.items()]
        )

    def wait(self, wait_s: float) -> bool:
        """Returns True when something was appended, or may have been. Returns False after ``wait_s``."""
        deadline, client = Deadline.after_ms(int(wait_s * 1000)), self._client()
        messages = client.consume(_AT_ONCE, 0)
        while not self._is_news(messages):
            # librdkafka counts whole milliseconds. A shorter wait would be none, and this loop would spin.
            if (left_s := deadline.left_s(most=wait_s)) < _LEAST_S:
                return False
            messages = client.consume(1, left_s)
        return True

    def stop(self) -> None:
        """Stops the fetches until the next :meth:`begin`."""
        if self._fetched:
            self._fetched = frozenset()
            self._client().unassign()

    def close(self) -> None:
        """Closes the consumer."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _client(self) -> Consumer:
        if self._consumer is None:
            settings = _SETTINGS | {"error_cb": ErrorCallback()}
            self._consumer = open_client(Consumer, consumer_config(self._config, settings))
        return self._consumer

    def _is_news(self, messages: Iterable[Message]) -> bool:
        """Takes messages and events in. Returns True if one of them says more than that a partition ended."""
        news = False
        for message in messages:
            error, place = message.error(), (message.topic() or "", message.partition() or 0)
            if error is None:
                self._seen[place] = offset_of(message) + 1
                news = True
            elif event_of(error) is Event.END:
                # A control record is not given. It shows in the end that moves.
                news = news or offset_of(message) > self._seen.get(place, 0)
                self._seen[place] = max(offset_of(message), self._seen.get(place, 0))
            elif event_of(error) is not Event.OF_GROUPS:
                # The caller's own requests find out more. The next fetch begins at the ends that they give.
                log.debug("A fetch that waits has failed. event=append_watch_failed why=%s", error)
                self._fetched, self._seen, news = frozenset(), {}, True
        return news
