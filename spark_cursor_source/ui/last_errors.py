"""Last errors of the messages of the page of the oldest, which a thread reads while somebody looks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from spark_cursor_source.admin.last_errors import LastErrors, cell_of, may_have_failed
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.message_state import MessageState
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import CursorqError
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.ui.settings import UiSettings

_Key = tuple[Cell, int, int, str]  # a message, the number of its deliveries, and its state


class ErrorReader:
    """Answers from what it knows, and reads the rest for the next request.

    The error of a message changes only with a delivery, so that a known one is read once. One read runs at a
    time, in a thread that ends with it.
    """

    def __init__(self, settings: UiSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._errors: LastErrors | None = None
        self._known: dict[_Key, str | None] = {}
        self._thread: threading.Thread | None = None
        self.failure: CursorqError | None = None  #: error of the last read; None: it succeeded

    def look(
        self, messages: Sequence[MessageState], outstanding: Callable[[], Mapping[Cell, OffsetSet]]
    ) -> tuple[tuple[MessageState, str | None], ...]:
        """Returns each message with its last error: a text, an empty text if it has none, None: not read yet.

        Unknown errors are read in the background. ``outstanding`` returns the outstanding messages of the
        cells that ``messages`` belong to; the thread of the reader calls it.
        """
        known = self._known
        told = tuple((one, self._told(one, known)) for one in messages)
        if any(text is None for _, text in told):
            self._begin(messages, outstanding)
        return told

    def wait(self) -> None:
        """Waits until the present read, if any, has ended."""
        if (thread := self._thread) is not None:
            thread.join()

    @staticmethod
    def _told(one: MessageState, known: Mapping[_Key, str | None]) -> str | None:
        if not may_have_failed(one):
            return one.reason or ""
        return (known[key] or "") if (key := _key(one)) in known else None

    def _begin(
        self, messages: Sequence[MessageState], outstanding: Callable[[], Mapping[Cell, OffsetSet]]
    ) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._read, args=(messages, outstanding), name="cursorq-errors", daemon=True
                )
                self._thread.start()

    def _read(
        self, messages: Sequence[MessageState], outstanding: Callable[[], Mapping[Cell, OffsetSet]]
    ) -> None:
        one = self._settings
        try:
            if self._errors is None:
                topics = ClusterAdmin(client_config(one.kafka, "admin")).meet()
                self._errors = LastErrors(one.kafka, topics, one.markers_topic)
            self._errors.read(messages, outstanding())
        except CursorqError as failure:
            self.failure, self._errors = failure, None
            return
        self.failure = None
        self._known = {_key(one): self._errors.of(one) for one in messages}


def _key(one: MessageState) -> _Key:
    return cell_of(one), one.offset, one.delivery_count, one.state
