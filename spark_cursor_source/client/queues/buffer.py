"""Bounded buffer between the fetching thread and the receiving threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from spark_cursor_source.client.queues.message import QueueMessage
from spark_cursor_source.errors import ClientClosed, CursorqError, NothingReceived
from spark_cursor_source.kafka.deadline import Deadline


class ReceiveBuffer:
    """A bounded queue of messages. One thread puts messages, any number of threads take them.

    A permanent error of the consumer is raised by every later take. A passing error, such as unavailable
    brokers, is raised only by a take that times out.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._wanted = max(capacity // 2, 1)  # room to wait for, so that many messages share one Start
        self._filled = threading.Condition()
        self._outstanding_limit = threading.Event()
        self._ended: CursorqError | None = None
        self.starved = False  #: True while the fetching thread waits for room
        self.trouble: CursorqError | None = None  #: the passing error that blocks fetching, if any
        self.messages: deque[QueueMessage] = deque()

    @property
    def room(self) -> int:
        """The remaining capacity of the buffer, in messages."""
        return max(self._capacity - len(self.messages), 0)

    def put(self, messages: Sequence[QueueMessage]) -> None:
        """Appends messages and wakes waiting takers."""
        with self._filled:
            self.messages.extend(messages)
            self._filled.notify(len(messages))

    def wait_for_room(self, seconds: float) -> bool:
        """Waits until half the buffer is free or the time is over. True if any room is left."""
        self._outstanding_limit.clear()
        self.starved = True
        if self.room < self._wanted:
            self._outstanding_limit.wait(seconds)
        self.starved = False
        return self.room > 0

    def take(self, deadline: Deadline) -> QueueMessage | None:
        """Returns the next message, or None if no message arrives by the deadline.

        Raises:
            NothingReceived: a known passing error blocked fetching at the deadline.
            ClientClosed, or the error that ended the consumer.
        """
        with self._filled:
            while (message := self._first()) is None:
                if self._ended is not None:
                    raise self._ended.with_traceback(None)  # a shared error's traceback grows with each raise
                if deadline.over:
                    if self.trouble is not None:
                        raise NothingReceived(deadline.spent_ms, str(self.trouble)) from self.trouble
                    return None
                self._filled.wait(deadline.left_s())
        self.taken()
        return message

    def taken(self) -> None:
        """Wakes the fetching thread if enough room is free. Call after a take from :attr:`messages`."""
        if self.starved and self.room >= self._wanted:
            self._outstanding_limit.set()

    def withdraw(self, gone: Callable[[QueueMessage], bool]) -> list[QueueMessage]:
        """Removes and returns the buffered messages that match ``gone``."""
        with self._filled:
            waiting = list(iter(self._first, None))
            withdrawn = [message for message in waiting if gone(message)]
            kept = [message for message in waiting if not gone(message)]
            self.messages.extend(kept)
            self._filled.notify(len(kept))
        return withdrawn

    def end(self, why: CursorqError | None = None) -> None:
        """Marks the buffer as ended: the consumer was closed (no error) or failed with ``why``."""
        with self._filled:
            self._ended = self._ended or why or ClientClosed()
            self._filled.notify_all()
        self._outstanding_limit.set()

    def _first(self) -> QueueMessage | None:
        """Returns the next message, or None if the buffer is empty.

        Other threads take messages without the lock. A pop with a caught IndexError avoids that race.
        """
        try:
            return self.messages.popleft()
        except IndexError:
            return None
