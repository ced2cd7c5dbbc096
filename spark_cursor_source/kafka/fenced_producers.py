"""Transactional producers that are kept: writers take turns under one id, each shutting the others out."""

from __future__ import annotations

import random
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from spark_cursor_source.errors import CursorqError, KafkaUnavailable
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.transaction import TransactionalProducer

# For so long a writer that dies in its transaction hides what comes after it from readers.
_TRANSACTION_TIMEOUT_MS = 10_000
_CALL_TIMEOUT_MS = 5_000
_KEPT = 16  # each has threads of its own
_OVERTAKEN_S = 0.1


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
    """A producer for each transactional id, a few of them kept. Threads may share it.

    One that was kept may have been shut out meanwhile: then its next commit says so and changes nothing. So
    a commit that succeeds tells that nobody else has opened the id since this one did.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._slots = [_Slot() for _ in range(_KEPT)]

    @contextmanager
    def held(self, name: str, deadline: Deadline) -> Iterator[TransactionalProducer]:
        """The producer of an id, for one thread at a time: two would shut each other out."""
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
        """End the producers; what is under way in a thread ends with an error of its own."""
        for slot in self._slots:
            with slot.lock:
                slot.empty()


def yield_turn(what: str, overtaken: Exception, deadline: Deadline) -> None:
    """A pause for whoever came in between, of random length, so that two do not go on in step.

    Raises:
        KafkaUnavailable: there is no time left.
    """
    if deadline.over:
        raise KafkaUnavailable(what, deadline.spent_ms, "others do it too") from overtaken
    deadline.pause(random.uniform(0, _OVERTAKEN_S))
