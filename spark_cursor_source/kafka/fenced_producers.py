"""Pool of transactional producers. Writers with the same transactional id fence each other in turn."""

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

# If a writer dies in a transaction, readers do not see later records for this long.
_TRANSACTION_TIMEOUT_MS = 10_000
_CALL_TIMEOUT_MS = 5_000
_KEPT = 16  # a small number, because each producer has its own threads
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


def yield_turn(what: str, overtaken: Exception, deadline: Deadline) -> None:
    """Pause for a random time after another writer has interfered, so that two writers do not stay in step.

    Raises:
        KafkaUnavailable: the deadline is over.
    """
    if deadline.over:
        raise KafkaUnavailable(what, deadline.spent_ms, "others do it too") from overtaken
    deadline.pause(random.uniform(0, _OVERTAKEN_S))
