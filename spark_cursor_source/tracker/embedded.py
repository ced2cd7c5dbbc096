"""Tracker in the process of a planner or client (option tracker=embedded), shared by its users."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from spark_cursor_source.tracker.standalone import Tracker


@dataclass(slots=True)
class _Running:
    tracker: Tracker
    users: int


_lock = threading.Lock()
_running: dict[frozenset[tuple[str, str]], _Running] = {}


class EmbeddedTracker:
    """One user's hold on the tracker of this process. The tracker ends when its last user releases it.

    Its policies are the defaults. Other processes' trackers of the same topics share the partitions with it.
    """

    def __init__(
        self, kafka: Mapping[str, str], *, markers_topic: str, redeliveries_topic: str, cursors_topic: str
    ) -> None:
        """Starts the tracker, or uses the one that runs. Returns immediately.

        Raises:
            UnknownKafkaOption, RefusedKafkaOption: a Kafka option is not valid.
        """
        options = {
            **{f"kafka.{name}": value for name, value in kafka.items()},
            "markersTopic": markers_topic,
            "redeliveriesTopic": redeliveries_topic,
            "cursorsTopic": cursors_topic,
        }
        self._key = frozenset(options.items())
        self._released = False
        with _lock:
            known = _running.get(self._key)
            if known is None or known.tracker.failure is not None:
                known = _running[self._key] = _Running(Tracker(options).start(), 0)
            known.users += 1
            self._own = known

    def check(self) -> None:
        """Raises the error that has ended the tracker, if there is one."""
        self._own.tracker.check()

    def release(self) -> None:
        """Ends the tracker if nobody else in this process uses it.

        Without an answer from the brokers, the call returns after 15 s, as :meth:`Tracker.close` does.
        Another call has no effect, unless the first one was interrupted: then it goes on.
        """
        with _lock:
            if not self._released:
                self._released = True
                self._own.users -= 1
            if self._own.users:
                return
            if _running.get(self._key) is self._own:
                del _running[self._key]
        self._own.tracker.stop()
