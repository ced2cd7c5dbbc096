"""Messages between the thread that fetches them and those that receive them: never more than it may hold."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from spark_cursor_source.client.queues.message import QueueMessage
from spark_cursor_source.errors import ClientClosed, CursorqError, NothingReceived
from spark_cursor_source.kafka.deadline import Deadline


class ReceiveBuffer:
    """A bounded queue. One thread puts, any number take.

    What ends a consumer is told to who takes next, and again to each; what passes, such as brokers that are
    away, to who has waited in vain.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._wanted = max(capacity // 2, 1)  # room, so that many messages share a Start
        self._filled = threading.Condition()
        self._outstanding_limit = threading.Event()
        self._ended: CursorqError | None = None
        self.starved = False  #: the thread that puts waits for room
        self.trouble: CursorqError | None = None  #: why nothing comes at present
        self.messages: deque[QueueMessage] = deque()

    @property
    def room(self) -> int:
        """How many more it may hold."""
        return max(self._capacity - len(self.messages), 0)

    def put(self, messages: Sequence[QueueMessage]) -> None:
        """Hand over messages."""
        with self._filled:
            self.messages.extend(messages)
            self._filled.notify(len(messages))

    def wait_for_room(self, seconds: float) -> bool:
        """Until half of it is free, or the time is over; whether there is any room."""
        self._outstanding_limit.clear()
        self.starved = True
        if self.room < self._wanted:
            self._outstanding_limit.wait(seconds)
        self.starved = False
        return self.room > 0

    def take(self, deadline: Deadline) -> QueueMessage | None:
        """The next message; None if there is none by the deadline.

        Raises:
            NothingReceived: it is known what kept messages away until the deadline.
            ClientClosed, or what ended the consumer.
        """
        with self._filled:
            while (message := self._first()) is None:
                if self._ended is not None:
                    raise self._ended.with_traceback(None)  # it would grow with each that is told
                if deadline.over:
                    if self.trouble is not None:
                        raise NothingReceived(deadline.spent_ms, str(self.trouble)) from self.trouble
                    return None
                self._filled.wait(deadline.left_s())
        self.taken()
        return message

    def taken(self) -> None:
        """One was taken out of :attr:`messages`."""
        if self.starved and self.room >= self._wanted:
            self._outstanding_limit.set()

    def withdraw(self, gone: Callable[[QueueMessage], bool]) -> list[QueueMessage]:
        """Take out those messages that nobody has taken yet."""
        with self._filled:
            waiting = list(iter(self._first, None))
            withdrawn = [message for message in waiting if gone(message)]
            kept = [message for message in waiting if not gone(message)]
            self.messages.extend(kept)
            self._filled.notify(len(kept))
        return withdrawn

    def end(self, why: CursorqError | None = None) -> None:
        """Nothing more comes: the consumer was closed, or cannot go on."""
        with self._filled:
            self._ended = self._ended or why or ClientClosed()
            self._filled.notify_all()
        self._outstanding_limit.set()

    def _first(self) -> QueueMessage | None:
        """The next message, or None; others take out without the lock, so that it is tried and not looked."""
        try:
            return self.messages.popleft()
        except IndexError:
            return None
