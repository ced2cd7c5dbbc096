"""One object for a service: what it opens is opened when first used, and ends with it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.client_options import ClientOptions
from spark_cursor_source.core.option_reader import MAX_LONG
from spark_cursor_source.core.plain_cursor import NO_OFFSET, PlainCursor
from spark_cursor_source.core.topic_names import why_no_topic
from spark_cursor_source.errors import ClientClosed, InvalidArgument
from spark_cursor_source.kafka.plain_cursors import PlainCursors

_MAX_PARTITION = 2**31 - 1


class Client:
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
        self._options = ClientOptions.parse(options)
        self._lock = threading.Lock()
        self._cursors: PlainCursors | None = None
        self._closed = False

    def set_cursor(
        self, cursor_id: str, stream: str, partition: int, offset: int, *, epoch: int | None = None
    ) -> None:
        """Keep ``offset`` under (cursor id, stream, partition), durably.

        Of concurrent setters the last to be written wins. With an ``epoch`` a cursor is fenced: who comes
        with a lower one, or without, is refused, so that an owner who was replaced moves it no more.

        Raises:
            CursorFenced: it was set with a higher epoch.
            CursorOfTracker: it is the cursor of a subscription.
            InvalidArgument, ClientClosed
            KafkaUnavailable: it may be set all the same, or be so later.
            CursorsTopicNotCompacted, InvalidControlRecord, NotAuthorized, KafkaRefused
        """
        cell = _cell(cursor_id, stream, partition)
        _check_number("offset", offset, least=NO_OFFSET, most=MAX_LONG)
        if epoch is not None:
            _check_number("epoch", epoch, least=0, most=MAX_LONG)
        self._open_cursors().set(PlainCursor(cell=cell, offset=offset, epoch=epoch))

    def fetch_cursor(self, cursor_id: str, stream: str, partition: int) -> int:
        """The offset that was set last, by any process, before this call; -1 if there is none.

        With a subscription's name for the cursor id it is that subscription's mark-delete position.

        Raises:
            InvalidArgument, ClientClosed
            KafkaUnavailable, CursorsTopicNotCompacted, InvalidControlRecord, NotAuthorized, KafkaRefused
        """
        found = self._open_cursors().get(_cell(cursor_id, stream, partition))
        return NO_OFFSET if found is None else found.offset

    def close(self) -> None:
        """End the client; to close it again does nothing."""
        with self._lock:
            cursors, self._cursors = self._cursors, None
            self._closed = True
        if cursors is not None:
            cursors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._options!r})"

    def _open_cursors(self) -> PlainCursors:
        with self._lock:
            if self._closed:
                raise ClientClosed
            if self._cursors is None:
                options = self._options
                self._cursors = PlainCursors(
                    options.kafka, options.cursors_topic, timeout_ms=options.timeout_ms
                )
            return self._cursors


def _cell(cursor_id: str, stream: str, partition: int) -> Cell:
    if not cursor_id.isprintable() or not cursor_id:
        raise InvalidArgument("cursor_id", cursor_id, "it is empty, or has characters that cannot be shown")
    if (why := why_no_topic(stream)) is not None:
        raise InvalidArgument("stream", stream, why)
    _check_number("partition", partition, least=0, most=_MAX_PARTITION)
    return Cell(subscription=cursor_id, topic=stream, partition=partition)


def _check_number(argument: str, value: int, *, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidArgument(argument, value, f"it is not in {least} to {most}")
