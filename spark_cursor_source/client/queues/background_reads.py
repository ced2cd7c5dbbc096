"""Reads of single partitions in threads of their own, so that one without an answer holds up no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

from spark_cursor_source.kafka.deadline import Deadline

_Result = TypeVar("_Result")

_PATIENCE_S = 0.5  # how long a new read is waited for: most reads take less
#: how long a read has no answer until another one begins. Each has a consumer of its own: many reads that are
#: slow for the same reason are not made at once.
_ALONE_MS = 2_000


@dataclass(frozen=True, slots=True)
class _Read(Generic[_Result]):
    of: object
    result: Future[_Result]
    alone: Deadline


class BackgroundReads(Generic[_Result]):
    """At most one read of each partition. Only the reads run in other threads; not thread-safe itself."""

    def __init__(self) -> None:
        self._reads: dict[int, _Read[_Result]] = {}

    def has_result(self, partition: int, of: object, read: Callable[[], _Result]) -> bool:
        """Begins the read of a partition, unless it or one of another has begun. True if there is a result.

        ``of`` is the object that is read. A read of another object before is forgotten.
        """
        known = self._reads.get(partition)
        if known is None or known.of is not of:
            if any(not one.result.done() and not one.alone.over for one in self._reads.values()):
                return False
            known = self._reads[partition] = _Read(of, _in_thread(read), Deadline.after_ms(_ALONE_MS))
            wait([known.result], _PATIENCE_S)
        return known.result.done()

    def take(self, partition: int) -> _Result:
        """Returns the result of a read, or raises its error. Call after :meth:`has_result`."""
        return self._reads.pop(partition).result.result()

    def forget(self, partitions: Iterable[int]) -> list[Future[_Result]]:
        """Forgets the reads of partitions. Returns those that still run."""
        found = [self._reads.pop(number, None) for number in partitions]
        return [one.result for one in found if one is not None and not one.result.done()]

    def close(self) -> None:
        """Waits for the reads that still run, and forgets all."""
        wait(self.forget(list(self._reads)))


def _in_thread(read: Callable[[], _Result]) -> Future[_Result]:
    result: Future[_Result] = Future()

    def run() -> None:
        try:
            result.set_result(read())
        except BaseException as why:  # noqa: BLE001 - whoever takes the result gets it
            result.set_exception(why)

    threading.Thread(target=run, name="cursorq-read", daemon=True).start()
    return result
