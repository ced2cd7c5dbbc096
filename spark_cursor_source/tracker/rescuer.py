"""Rescue of unacked messages: a thread that copies them before retention deletes them, and frees the copies.

The thread works beside the tracker and apart from its transactions. It knows the committed cursors, which are
never ahead of the acks, so it copies too much rather than too little.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Mapping

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.rescue import Need, check_every_ms
from spark_cursor_source.errors import CursorqError
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Deadline, growing_ms
from spark_cursor_source.metrics import table
from spark_cursor_source.metrics.counts import Counts
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.tracker.brokers_time import BrokersTime
from spark_cursor_source.tracker.rescue_copier import RescueCopier, TopicCheck
from spark_cursor_source.tracker.standstill import STANDSTILL_S, StandstillWatch

log = logging.getLogger(__name__)

_REQUEST_MS = 10_000  # of one request, so that one topic in trouble does not hold up the others for long
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 500, 60_000  # pauses after failed checks

#: needs of the cells of each queue partition of a topic
Needs = dict[int, dict[Cell, Need]]


class Rescuer:
    """Thread that keeps the rescue topic up to date for the queue partitions of one tracker.

    A queue partition belongs to the tracker that owns the markers partition with the number of its partition
    of the rescue topic. So trackers that share a markers topic share this work too. A topic that cannot be
    read is retried later and holds up no other topic.
    """

    def __init__(self, options: TrackerOptions, markers_partitions: int, counts: Counts) -> None:
        assert options.rescue_before_ms is not None
        self._before_ms = options.rescue_before_ms
        self._markers_partitions = markers_partitions
        self._counts = counts
        self._topics = ClusterAdmin(client_config(options.kafka, "admin"), timeout_ms=_REQUEST_MS)
        self._watch = StandstillWatch()
        self._copier = RescueCopier(
            options, self._topics, counts, timeout_ms=_REQUEST_MS, before_free=self._look_for_standstill
        )
        self._time = BrokersTime(
            options, self._topics, markers_partitions, self._cells, timeout_ms=_REQUEST_MS
        )
        self._lock = threading.Lock()
        self._needs: dict[str, Needs] = {}
        self._held: frozenset[str] = frozenset()  # topics with a cursor that cannot be read
        self._owned: frozenset[int] = frozenset()
        self._is_new = False  # the partitions have changed since the last check
        self._next: dict[str, Deadline] = {}  # topic -> time of its next check
        self._failures: dict[str, int] = {}  # topic -> number of failed checks since the last good one
        self._checked: dict[str, float] = {}  # topic -> time of its last good check
        self._shown: set[str] = set()  # topics with a gauge
        self._all_failed = 0  # checks since the last one that could use the rescue topic
        self._stopping, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="cursorq-rescuer", daemon=True)
        self._thread.start()

    def note(self, changed: Mapping[Cell, CursorSnapshot | None], torn: Iterable[Cell]) -> None:
        """Takes in changed cursors. Copies of topics with a cursor in ``torn`` are not freed."""
        with self._lock:
            for cell, cursor in changed.items():
                if cell.topic not in self._needs:
                    self._wake.set()  # the retention of a new topic is not known yet
                of_topic = self._needs.setdefault(cell.topic, {})
                if cursor is not None:
                    of_topic.setdefault(cell.partition, {})[cell] = Need.of(cursor)
                elif cell in of_topic.get(cell.partition, {}):
                    del of_topic[cell.partition][cell]
            self._held = frozenset(cell.topic for cell in torn)

    def own(self, partitions: Collection[int]) -> None:
        """Works for these markers partitions from now on. The first check begins at once."""
        with self._lock:
            self._owned, self._is_new = frozenset(partitions), True
        self._wake.set()

    def close(self) -> None:
        """Ends the thread and closes the clients. A copy that is being written is written again later."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._rest()
                try:
                    with self._watch:
                        try:
                            self._check()
                        finally:
                            self._look_for_standstill()
                    self._all_failed = 0
                except Exception as why:  # noqa: BLE001 - a bug with one record must not end the thread
                    if not self._all_failed:
                        log.error(
                            "The rescue topic cannot be used, so no message is rescued. The tracker tries "
                            "again. event=rescue_failed why=%s",
                            _shown(why),
                        )
                    self._all_failed += 1
                self._show()
        except BaseException as failure:
            log.error("The rescue of messages has ended. event=rescue_ended error=%r", failure)
            raise
        finally:
            self._copier.close()

    def _rest(self) -> None:
        """Waits for the next check."""
        next_s, began = self._next_s(), time.monotonic()
        self._wake.wait(next_s)
        self._wake.clear()
        self._look_after_standstill(time.monotonic() - began - next_s)

    def _look_for_standstill(self) -> None:
        self._look_after_standstill(self._watch.stood_still_s())

    def _look_after_standstill(self, late_s: float) -> None:
        """Waits again before copies are freed, if the process stood still for so long.

        Another tracker may have taken the partitions over meanwhile, and its cursors may need other copies.
        So copies are freed only after this tracker had time to learn of it.
        """
        if late_s > STANDSTILL_S:
            log.info(
                "The tracker stood still. Rescued copies are freed later, because cursors may have changed. "
                "event=rescue_stood_still seconds=%.1f",
                late_s,
            )
            self._copier.wait_again()

    def _next_s(self) -> float:
        """Returns the time to the next check of a topic, or to the next look for copies without a topic."""
        if self._all_failed:
            return _pause_ms(self._all_failed) / 1000
        every_s = check_every_ms(self._before_ms) / 1000
        return min((after.left_s() for after in self._next.values()), default=every_s)

    def _check(self) -> None:
        with self._lock:
            owned, held = self._owned, self._held
            if self._is_new:
                self._next.clear()
                self._is_new = False
            needs = {
                topic: {number: list(cells.values()) for number, cells in of.items()}
                for topic, of in self._needs.items()
            }
        if not owned:
            self._checked.clear()
            self._next.clear()
            return
        copies = self._copier.begin(lambda number: number % self._markers_partitions in owned)
        is_needed = any(of_partition for of in needs.values() for of_partition in of.values())
        now_ms = self._time.now_ms() if is_needed else 0
        topics = {*needs, *copies}
        for gone in self._next.keys() - topics:
            del self._next[gone]
        for topic in sorted(topics):
            if self._stopping.is_set():
                return
            self._checked.setdefault(topic, time.monotonic())
            if topic in self._next and not self._next[topic].over:
                continue
            check = TopicCheck(
                topic=topic,
                needs=needs.get(topic, {}),
                now_ms=now_ms,
                frees=topic not in held,
            )
            began = time.monotonic()
            try:
                complete = self._copier.check(check, copies.get(topic, ()))
            except Exception as why:  # noqa: BLE001 - a bug with one topic must not stop the others
                self._pause(topic, why)
            else:
                self._failures.pop(topic, None)
                if complete:
                    self._checked[topic] = began
                every_ms = check_every_ms(self._copier.margin_ms(topic))
                self._next[topic] = Deadline.after_ms(0 if self._copier.has_more else every_ms)
        for topic in self._checked.keys() - needs.keys():
            del self._checked[topic]

    def _cells(self) -> list[Cell]:
        with self._lock:
            return [cell for of in self._needs.values() for cells in of.values() for cell in cells]

    def _pause(self, topic: str, why: Exception) -> None:
        failures = self._failures[topic] = self._failures.get(topic, 0) + 1
        self._next[topic] = Deadline.after_ms(_pause_ms(failures))
        if failures == 1:
            log.warning(
                "The messages of a topic cannot be rescued now, which is tried again. "
                "event=rescue_of_topic_failed topic=%s why=%s",
                topic,
                _shown(why),
            )

    def _show(self) -> None:
        """Sets the gauge of the time that is left until retention can delete a message without a copy."""
        now = time.monotonic()
        for topic in self._shown - self._checked.keys():
            self._counts.set(table.RESCUE_HEADROOM, topic, to=self._before_ms / 1000)
            self._counts.set(table.RESCUE_UNSAVED, topic, to=0)
        for topic, checked in self._checked.items():
            left_s = self._copier.margin_ms(topic) / 1000 - (now - checked)
            self._counts.set(table.RESCUE_HEADROOM, topic, to=left_s)
        self._shown = set(self._checked)


def _shown(why: Exception) -> str:
    return str(why) if isinstance(why, CursorqError) else repr(why)


def _pause_ms(failures: int) -> int:
    return growing_ms(failures, first_ms=_FIRST_PAUSE_MS, longest_ms=_LONGEST_PAUSE_MS)
