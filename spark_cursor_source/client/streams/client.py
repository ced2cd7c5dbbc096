"""Client of streams and named cursors. Connections open on first use and close with the client."""

from __future__ import annotations

from collections.abc import Mapping

from spark_cursor_source.client.streams.cursor_calls import CursorCalls
from spark_cursor_source.client.streams.parts import Parts
from spark_cursor_source.client.streams.publish_calls import PublishCalls
from spark_cursor_source.client.streams.stream_calls import StreamCalls
from spark_cursor_source.client.streams.subscribe_calls import SubscribeCalls
from spark_cursor_source.core.closing import ClosedAtExit


class Client(StreamCalls, PublishCalls, SubscribeCalls, CursorCalls, ClosedAtExit):
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

    def close(self) -> None:
        """Closes the client. Another close has no effect."""
        self._parts.close()

    def __repr__(self) -> str:
        return f"Client({self._parts.options!r})"
