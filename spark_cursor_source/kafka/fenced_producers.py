"""Pool of transactional producers. Writers with the same transactional id fence each other in turn."""

from __future__ import annotations

import random
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from spark_cursor_source.errors import CursorqError, WriterOvertaken
from spark_cursor_source.kafka.deadline import Deadline, growing_ms
from spark_cursor_source.kafka.transaction import TransactionalProducer

# If a writer dies in a transaction, readers do not see later records for this long.
_TRANSACTION_TIMEOUT_MS = 10_000
_CALL_TIMEOUT_MS = 5_000
_KEPT = 16  # a small number, because each producer has its own threads
_LEAST_PAUSE_MS = 100
_MOST_PAUSE_MS = 2 * _TRANSACTION_TIMEOUT_MS  # the average pause is then one whole transaction


@dataclass(slots=True)
class _Slot:
    lock: threading.Lock = field(default_factory=threading.Lock)
    name: str | None = None
    producer: TransactionalProducer | None = None

    def empty(self) -> None:
        if self.producer is not None:
            self.producer.discard()
        self.name = self.producer = None


class FencedProducers:
    """Pool with a producer for each transactional id. It keeps a few of them. Threads may share it.

    A kept producer may have been fenced meanwhile. Its next commit then fails and changes nothing. A
    successful commit therefore proves that no other producer has opened the id since this one did.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._slots = [_Slot() for _ in range(_KEPT)]

    @contextmanager
    def held(self, name: str, deadline: Deadline) -> Iterator[TransactionalProducer]:
        """Hold the producer of an id for one thread at a time. Two producers would fence each other."""
        slot = self._slots[zlib.crc32(name.encode()) % _KEPT]
        with deadline.acquire(slot.lock, f"write as '{name}'"):
            if slot.name != name or slot.producer is None:
                slot.empty()
                slot.producer = TransactionalProducer(
                    self._config,
                    name,
                    call_timeout_ms=_CALL_TIMEOUT_MS,
                    transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
                )
                slot.name = name
            try:
                yield slot.producer
            except CursorqError:
                raise
            except BaseException:
                slot.empty()
                raise

    def close(self) -> None:
        """Close the producers. Operations in progress in other threads end with their own errors."""
        for slot in self._slots:
            with slot.lock:
                slot.empty()


class Turns:
    """Attempts of a writer whose transactions other writers end, and the pauses between the attempts.

    The other writer needs about as long as this one, and must be left alone for so long. So a pause grows
    with the length of the lost attempt and doubles with each loss. It is random, so that two writers do not
    stay in step.
    """

    def __init__(
        self,
        what: str,
        deadline: Deadline,
        *,
        clock: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._what, self._deadline = what, deadline
        self._clock, self._uniform = clock, uniform
        self._began_s = clock()
        self._lost = 0

    def begin(self) -> None:
        """Notes that an attempt begins."""
        self._began_s = self._clock()

    def yield_to(self, overtaken: Exception) -> None:
        """Pauses after another writer has ended the attempt.

        Raises:
            WriterOvertaken: the deadline is over.
        """
        if self._deadline.over:
            last = f"{type(overtaken).__name__}: {overtaken}"
            raise WriterOvertaken(self._what, self._deadline.spent_ms, last) from overtaken
        self._lost += 1
        attempt_ms = int((self._clock() - self._began_s) * 1000)
        longest_ms = growing_ms(self._lost + 1, first_ms=attempt_ms, longest_ms=_MOST_PAUSE_MS)
        self._deadline.pause(self._uniform(0, max(_LEAST_PAUSE_MS, longest_ms) / 1000))
