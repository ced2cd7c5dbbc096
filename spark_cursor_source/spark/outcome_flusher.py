"""Outcomes of a task, written to the markers topic as they come."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from spark_cursor_source.consumer.action_columns import LEAVE
from spark_cursor_source.core.marker import MAX_LEASE_MS
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline, Pace
from spark_cursor_source.options.ack import AckAction, AckOptions
from spark_cursor_source.options.source import AckMode
from spark_cursor_source.spark.handler_calls import Calls
from spark_cursor_source.spark.per_row import Rows, outcome_ids
from spark_cursor_source.spark.settling import settlement_of

log = logging.getLogger(__name__)

_EXTENSIONS = 3  # of a lease, while a handler runs on after its batch


class OutcomeFlusher:
    """Settles outcomes about every ``flush_ms``, in a thread of its own.

    An outcome counts when the brokers have confirmed its marker. If a flush fails, the outcomes are kept and
    flushed again; :meth:`close` raises the error of the last flush.
    """

    def __init__(self, options: AckOptions, markers_partitions: int, *, flush_ms: int) -> None:
        self._options = replace(options, action=AckAction.ACK)  # of rows without the column action
        self._markers_partitions = markers_partitions
        self._ids = outcome_ids(options)
        self._flush_s = flush_ms / 1000
        self._rows: list[tuple[Rows, int]] = []  # rows in work, and the number of their outcomes to come
        self._lock = threading.Lock()  # of the settlement that takes outcomes
        self._sending = threading.Lock()
        self._settlement = settlement_of(self._options)
        self._unsent: list[Any] = []
        self._failure: Exception | None = None  # of outcomes that no marker can express
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.settled = 0  #: outcomes that are confirmed

    def follow(self, rows: Rows, count: int) -> None:
        """Settles ``count`` outcomes of these rows, each when it is done."""
        with self._lock:
            self._rows.append((rows, count))

    def start(self, calls: Calls) -> None:
        """Starts the flushes. The thread also gives up the calls that are overdue."""
        self._thread = threading.Thread(target=self._run, args=(calls,), name="cursorq-flusher", daemon=True)
        self._thread.start()

    def collect(self) -> None:
        """Converts the outcomes so far to markers, which the next flush writes.

        Raises:
            NullMessageId, InvalidMessageId: a row identifies no message.
        """
        self._take()
        if self._failure is not None:
            raise self._failure

    def flush(self) -> None:
        """Writes all outcomes. They are durable on return.

        Raises:
            MarkersNotDurable: the markers are not confirmed. They are kept for the next flush.
            UnknownSubscription, NotOfSubscription, NoSuchMessages
            NullMessageId, InvalidMessageId: a row identifies no message. The other outcomes are written.
        """
        self._write()
        if self._failure is not None:
            raise self._failure

    def _take(self) -> None:
        with self._lock:
            waiting, self._rows = self._rows, []
            for rows, count in waiting:
                indexes = rows.take_done()
                if indexes:
                    self._add(rows, indexes)
                if count > len(indexes):
                    self._rows.append((rows, count - len(indexes)))

    def _add(self, rows: Rows, indexes: list[int]) -> None:
        try:
            self._settlement.add(rows.settled(indexes, self._ids))
        except Exception as problem:  # noqa: BLE001 - other rows are settled all the same; the task raises it
            self._failure = self._failure or problem

    def _write(self) -> None:
        """Writes all outcomes that markers can express."""
        self._take()
        with self._sending:
            with self._lock:
                if self._settlement.settled:
                    self._unsent.append(self._settlement)
                    self._settlement = settlement_of(self._options)
            while self._unsent:
                self._unsent[0].send(self._markers_partitions)
                self.settled += self._unsent.pop(0).settled

    def stop(self) -> None:
        """Ends the flushes of the thread. What is not flushed stays until :meth:`flush`."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def extend(self, running: list[tuple[Rows, int]]) -> None:
        """Extends the leases of messages whose handlers run. The extensions are durable on return."""
        self._settle(running, AckAction.EXTEND.value, self._options)

    def _settle(self, running: list[tuple[Rows, int]], action: str, options: AckOptions) -> None:
        settlement = settlement_of(options)
        for rows, index in running:
            row = rows.identified([index], self._ids)
            settlement.add(row.append_column("action", pa.array([action])))
        settlement.send(self._markers_partitions)

    def leave(self, calls: Calls) -> threading.Thread:
        """Lets the running calls go on after the task. Their messages stay leased, and settle later.

        Returns the thread that ends when the last of them is settled.
        """
        self.stop()
        options = self._options
        with self._lock:
            # Outcomes of the calls that go on are acked by name: the source does not ack their messages.
            self._unsent.append(self._settlement)
            self._options = options.settling_each()
            self._settlement = settlement_of(self._options)
        running = calls.running()
        self.extend(running)
        if options.ack_mode is AckMode.BATCH:
            self._settle(running, LEAVE, options)
        log.info(
            "Handlers run on after their batch, and their messages stay leased. "
            "event=stragglers_left messages=%d",
            len(running),
        )
        self._thread = threading.Thread(
            target=self._follow, args=(calls,), name="cursorq-stragglers", daemon=True
        )
        self._thread.start()
        return self._thread

    # -- the threads -----------------------------------------------------------------------------------

    def _run(self, calls: Calls) -> None:
        while not self._stopped.wait(self._flush_s):
            calls.give_up_overdue()
            self._tried(self._write)

    def _follow(self, calls: Calls) -> None:
        until = Deadline.after_ms(MAX_LEASE_MS)
        extend_ms = self._options.lease_ms // _EXTENSIONS
        extension = Pace(extend_ms)
        extension.is_time()
        wait_s = min(self._flush_s, extend_ms / 1000)
        while not self._is_over(calls, wait_s):
            self._tried(self._write)
            if extension.is_time() and not until.over:
                self._tried(lambda: self.extend(calls.running()))
        until = Deadline.after_ms(PATIENCE_MS)
        while not self._tried(self._write) and not until.over:
            time.sleep(self._flush_s)
        if self._failure is not None:
            _report_straggler(self._failure)

    def _is_over(self, calls: Calls, wait_s: float) -> bool:
        try:
            return calls.finish(wait_s)
        except BaseException as problem:  # noqa: BLE001 - no task is left that it could fail
            _report_straggler(problem)
            return True

    def _tried(self, write: Callable[[], None]) -> bool:
        try:
            write()
        except Exception as problem:  # noqa: BLE001 - the last flush of the task raises it, if it persists
            log.warning(
                "Outcomes could not be written. They are kept and written again. "
                "event=outcomes_not_flushed why=%s",
                problem,
            )
            return False
        return True


def _report_straggler(problem: BaseException) -> None:
    log.warning(
        "A handler that ran on after its batch has failed. Its message is redelivered when its lease "
        "expires. event=straggler_failed why=%s: %s",
        *(type(problem).__name__, problem),
    )
