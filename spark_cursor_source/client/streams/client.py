"""One object for a service: what it opens is opened when first used, and ends with it."""

from __future__ import annotations

from collections.abc import Mapping

from spark_cursor_source.client.streams.cursor_calls import CursorCalls
from spark_cursor_source.client.streams.parts import Parts
from spark_cursor_source.client.streams.publish_calls import PublishCalls
from spark_cursor_source.client.streams.stream_calls import StreamCalls
from spark_cursor_source.client.streams.subscribe_calls import SubscribeCalls
from spark_cursor_source.core.closing import ClosedAtExit


class Client(StreamCalls, PublishCalls, SubscribeCalls, CursorCalls, ClosedAtExit):
    """A client of the brokers that the options name; threads may share it, forked processes may not.

    A call waits ``clientTimeout`` (30 s) for brokers that are away, and then raises KafkaUnavailable.

    >>> options = {"kafka.bootstrap.servers": "broker:9092"}
    >>> with Client(options) as client:  # doctest: +SKIP
    ...     client.set_cursor("mailer", "orders", 0, 41)
    ...     client.fetch_cursor("mailer", "orders", 0)
    41
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises OptionsError; nothing is asked of the brokers yet."""
        self._parts = Parts(options)

    def close(self) -> None:
        """End the client; to close it again does nothing."""
        self._parts.close()

    def __repr__(self) -> str:
        return f"Client({self._parts.options!r})"
