"""Thread that follows the cluster, and the snapshot that all requests are answered from."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Self

from spark_cursor_source.admin.live_stats import LiveStats, LiveView
from spark_cursor_source.admin.partition_map import PartitionMap, partition_map_of
from spark_cursor_source.core.broker_clock import BrokerClock
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.stats import SubscriptionStats
from spark_cursor_source.errors import CursorqError
from spark_cursor_source.ui.history import Curve, History, Rates
from spark_cursor_source.ui.last_errors import ErrorReader
from spark_cursor_source.ui.settings import UiSettings

SILENT_MS = 15_000  #: a tracker that reads nothing for this long, although markers wait, is silent

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One subscription as the overview shows it."""

    topic: str
    subscription: str
    stats: SubscriptionStats
    backlog: int | None  #: None: the topic was deleted, or its ends cannot be read
    outstanding: int
    leased: int
    available: int
    delayed: int
    blocked: int
    blocking: int  #: messages that blocked ones wait for
    held: int
    age_ms: int | None  #: age of the oldest unacked message, by broker time
    rates: Rates | None
    consumers: int | None  #: None: not read yet
    breaker: bool  #: the breaker is open
    trouble: str | None

    @property
    def health(self) -> tuple[str, str]:
        """Level (``ok``, ``warn``, ``bad`` or ``idle``), and the reason in two or three words."""
        if self.stats.is_deleted:
            return "bad", "topic deleted"
        if self.stats.end_trouble is not None:
            return "bad", "end unknown"
        if self.trouble is not None:
            return "bad", "letters not written"
        if self.breaker:
            return "bad", "breaker open"
        if self.stats.paused_ms is not None:
            return "warn", "paused"
        if self.backlog and self.consumers == 0:
            return "warn", "no consumers"
        return ("ok", "working") if self.backlog else ("idle", "all acked")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """State of the cluster at one moment. It never changes."""

    number: int = 0  #: grows with each snapshot
    rows: tuple[Row, ...] = ()
    view: LiveView | None = None  #: None: the brokers have not answered yet
    now_ms: int | None = None  #: broker time of the snapshot
    failure: CursorqError | None = None  #: error of the last try, if it failed
    silent_ms: int | None = None  #: time since a tracker last read a marker, if markers wait for long

    @property
    def oldest_age_ms(self) -> int | None:
        """Age of the oldest unacked message of all subscriptions; None: all messages are acked."""
        return max((row.age_ms for row in self.rows if row.age_ms is not None), default=None)

    def row(self, topic: str, subscription: str) -> Row | None:
        """Returns the row of a subscription, or None."""
        names = topic, subscription
        return next((row for row in self.rows if (row.topic, row.subscription) == names), None)

    def map(self, cell: Cell) -> PartitionMap | None:
        """Returns the map of a partition of a subscription, or None."""
        if self.view is None or cell not in self.view.cursors:
            return None
        bounds = {} if cell in self.view.of_deleted else self.view.bounds
        start, end = bounds.get(cell.topic_partition, (None, None))
        return partition_map_of(self.view.cursors[cell], log_start=start, log_end=end)

    def age_ms(self, at_ms: int | None) -> int | None:
        """Returns how long ago a broker time was; 0 if the broker's clock seems to be behind it."""
        return None if at_ms is None or self.now_ms is None else max(0, self.now_ms - at_ms)


class Collector:
    """Follows the cluster in a thread of its own, from ``with`` or :meth:`start` until :meth:`close`."""

    def __init__(self, settings: UiSettings) -> None:
        self._settings = settings
        self._snapshot = Snapshot()
        self._clock = BrokerClock()
        self._history = History()
        self._sampled_ms: int | None = None
        self._tracker_at: tuple[object, int] = (None, 0)  # positions of the tracker, and since when
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cursorq-ui", daemon=True)
        self.errors = ErrorReader(settings)  #: last errors of messages

    @property
    def snapshot(self) -> Snapshot:
        """Latest snapshot."""
        return self._snapshot

    @property
    def stopping(self) -> bool:
        """True once :meth:`close` was called."""
        return self._stopping.is_set()

    def curves(self, topic: str, subscription: str) -> Sequence[Curve]:
        """Returns the curves of the last hour of a subscription."""
        with self._changed:
            return self._history.curves(topic, subscription)

    def wait(self, number: int, timeout_s: float) -> Snapshot:
        """Waits for a snapshot later than ``number``. Returns the latest one, also on a timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self._snapshot.number > number or self.stopping, timeout_s)
            return self._snapshot

    def start(self) -> Self:
        """Starts the thread and returns immediately."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Ends the thread and closes its clients."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        self.errors.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self.stopping:
            try:
                self._follow()
            except CursorqError as failure:
                self._fail(failure)
            self._stopping.wait(self._settings.refresh_ms / 1000)

    def _follow(self) -> None:
        """Takes snapshots until the brokers refuse or do not answer; the next call opens new clients."""
        one = self._settings
        stats = LiveStats(
            one.kafka,
            **one.names,
        )
        with closing(stats):
            while not self.stopping:
                self.show(stats.refresh())
                self._stopping.wait(one.refresh_ms / 1000)

    def show(self, view: LiveView) -> None:
        """Makes a view the latest snapshot. The thread calls it; tests and benchmarks may too."""
        monotonic_ms = time.monotonic_ns() // 1_000_000
        if view.marker_ms is not None:
            self._clock.observe(broker_ms=view.marker_ms, monotonic_ms=monotonic_ms)
        now_ms = self._clock.now_ms(monotonic_ms=monotonic_ms)
        due = self._sampled_ms is None or monotonic_ms - self._sampled_ms >= self._settings.sample_ms
        if due:
            self._sampled_ms = monotonic_ms
            with self._changed:
                aged = ((one, _age_ms(one, now_ms)) for one in view.stats.subscriptions)
                self._history.take(aged, monotonic_ms=monotonic_ms)
        open_breakers = {
            (cell.topic, cell.subscription) for cell, cursor in view.cursors.items() if cursor.breaker.is_open
        }
        rows = tuple(
            self._row(one, view, now_ms, (one.topic, one.subscription) in open_breakers)
            for one in view.stats.subscriptions
        )
        self._publish(
            Snapshot(
                number=self._snapshot.number + 1,
                rows=rows,
                view=view,
                now_ms=now_ms,
                silent_ms=self._silence(view, monotonic_ms),
            )
        )

    def _silence(self, view: LiveView, monotonic_ms: int) -> int | None:
        at = {number: position for number, (position, _, _) in view.tracker.partitions.items()}
        if not view.tracker.unread or at != self._tracker_at[0]:
            self._tracker_at = (at, monotonic_ms)
        silent_ms = monotonic_ms - self._tracker_at[1]
        return silent_ms if silent_ms >= SILENT_MS else None

    def _row(self, one: SubscriptionStats, view: LiveView, now_ms: int | None, breaker: bool) -> Row:
        return Row(
            topic=one.topic,
            subscription=one.subscription,
            stats=one,
            backlog=one.backlog,
            outstanding=sum(part.outstanding for part in one.partitions),
            leased=sum(part.leased for part in one.partitions),
            available=sum(part.available - part.delayed for part in one.partitions),
            delayed=sum(part.delayed for part in one.partitions),
            blocked=sum(part.blocked for part in one.partitions),
            blocking=sum(part.blocking for part in one.partitions),
            held=sum(part.held for part in one.partitions),
            age_ms=_age_ms(one, now_ms),
            rates=self._history.rates(one.topic, one.subscription),
            consumers=None if one.subscription in view.unknown_members else len(one.consumers),
            breaker=breaker,
            trouble=one.trouble,
        )

    def _fail(self, failure: CursorqError) -> None:
        if type(failure) is not type(self._snapshot.failure):
            log.warning(
                "The page shows old values, because the cluster cannot be read. "
                "event=ui_not_refreshed why=%s",
                failure,
            )
        self._publish(replace(self._snapshot, number=self._snapshot.number + 1, failure=failure))

    def _publish(self, snapshot: Snapshot) -> None:
        with self._changed:
            self._snapshot = snapshot
            self._changed.notify_all()


def _age_ms(one: SubscriptionStats, now_ms: int | None) -> int | None:
    """Returns the age of the oldest message; without markers the newest message tells the time."""
    oldest_ms = one.oldest_unacked_ms
    return None if oldest_ms is None else max(0, max(now_ms or 0, one.newest_ms or 0) - oldest_ms)
