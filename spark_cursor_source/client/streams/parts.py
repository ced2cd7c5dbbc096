"""Components of a client. Each opens on first use; all are closed together."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack

from spark_cursor_source.client.streams.admin import Streams
from spark_cursor_source.client.streams.cursors import NamedCursors
from spark_cursor_source.client.streams.expected_offset import ExpectedOffsets
from spark_cursor_source.client.streams.keeper import StreamKeeper
from spark_cursor_source.client.streams.publish import StreamPublisher
from spark_cursor_source.client.streams.subscribe import StreamSubscriber
from spark_cursor_source.errors import ClientClosed
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.options.arguments import call_timeout
from spark_cursor_source.options.client import ClientOptions
from spark_cursor_source.topics.streams import StreamStates


class StreamParts:
    """Stream components of a client, which share one view of the stream states."""

    def __init__(self, options: ClientOptions) -> None:
        kafka, timeout_ms = options.kafka, options.timeout_ms
        topics = ClusterAdmin(client_config(kafka, "admin"), timeout_ms=timeout_ms)
        self.states = StreamStates(kafka, options.streams_topic, topics, timeout_ms=timeout_ms)
        self.keeper = StreamKeeper(self.states, topics)
        self.streams = Streams(topics, self.states)
        self._expected = ExpectedOffsets(kafka, topics, timeout_ms=timeout_ms)
        self.publishing = StreamPublisher(
            kafka, self.streams, self.states, self.keeper, self._expected, timeout_ms=timeout_ms
        )
        self.subscribing = StreamSubscriber(
            kafka, topics, self.streams, self.states, self.keeper, timeout_ms=timeout_ms
        )

    def close(self) -> None:
        """Waits for messages in flight and closes all components, also after an interrupt of one."""
        with ExitStack() as parts:
            for part in (self.states, self.keeper, self._expected, self.publishing):  # the last one first
                parts.callback(part.close)


class Parts:
    """The components of one client. Threads may share an instance."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = ClientOptions.parse(options)
        self._lock = threading.Lock()
        self._cursors: NamedCursors | None = None
        self._streams: StreamParts | None = None
        self._closed = self._met = False

    def cursors(self) -> NamedCursors:
        self._meet()
        with self._lock:
            self._check_open()
            if self._cursors is None:
                options = self.options
                self._cursors = NamedCursors(
                    options.kafka, options.cursors_topic, timeout_ms=options.timeout_ms
                )
            return self._cursors

    def streams(self, *, timeout_ms: int | None = None) -> StreamParts:
        """Returns the stream components. Waits ``timeout_ms`` (default: the client's) for brokers."""
        self._meet(timeout_ms)
        with self._lock:
            self._check_open()
            if self._streams is None:
                self._streams = StreamParts(self.options)
            return self._streams

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Closes the components. Another close has no effect."""
        with self._lock:
            cursors, self._cursors = self._cursors, None
            streams, self._streams = self._streams, None
            self._closed = True
        with ExitStack() as parts:
            for part in (cursors, streams):  # the last one first
                if part is not None:
                    parts.callback(part.close)

    def _meet(self, timeout_ms: int | None = None) -> None:
        """Checks the broker connection before the first call of the client. Does not hold the lock."""
        if not self._met and not self._closed:
            wait_ms = call_timeout(timeout_ms, self.options.timeout_ms)
            ClusterAdmin(client_config(self.options.kafka, "admin"), timeout_ms=wait_ms).meet()
            self._met = True

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed
