"""Calls of a handler in a worker: one after another, side by side in threads, or on an event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np

from spark_cursor_source.consumer.action_columns import BLOCK
from spark_cursor_source.core.duration import format_duration
from spark_cursor_source.spark.handler_times import HandlerTimes
from spark_cursor_source.spark.keys_in_order import KeysInOrder
from spark_cursor_source.spark.per_row import Described, Handler, Message, Rows, described, failed
from spark_cursor_source.spark.worker_resources import worker_loop

_TICK_S = 0.1
_MOST_WAITING = 10_000  # messages that wait for another message of their key; then no further row is read


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """A handler and the rules for its calls. It travels to the workers."""

    fn: Handler
    concurrency: int = 1
    timeout_ms: int | None = None
    flush_ms: int = 1_000
    stragglers_ms: int | None = None  #: None: a batch waits for all of its calls
    resources: Callable[[], Any] | None = None
    name: str = ""  #: the workers keep the resources under this name
    by_key: bool = False  #: messages of one key are handled one after another
    in_order: bool = False  #: a message that has not ended holds back the later ones of its key
    has_result: bool = False

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.fn) or inspect.iscoroutinefunction(type(self.fn).__call__)


class Calls(Protocol):
    """Calls of a task. Each call ends with its row in ``Rows.done``, from any thread."""

    def submit(self, rows: Rows, indexes: Iterable[int]) -> None:
        """Has the handler called for these rows, in this order. Blocks while too many calls run.

        With ``in_order``, rows that must wait for an earlier one of their key are blocked instead.

        Raises:
            KeyOrderLost: with ``in_order``, a row comes after a later one of its key.
        """

    def hold_back(self, rows: Rows, indexes: Iterable[int]) -> None:
        """Makes later messages of the keys of these rows wait: an earlier attempt did not ack the rows."""

    def finish(self, timeout_s: float | None = None) -> bool:
        """Waits until all calls are done. False if some still run after the timeout."""

    def give_up_overdue(self) -> None:
        """Ends the calls that run for longer than their timeout."""

    def running(self) -> list[tuple[Rows, int]]:
        """Returns the messages whose handlers run."""

    def close(self) -> None:
        """Ends the threads that have no call."""

    @property
    def times(self) -> HandlerTimes:
        """Times of the calls that are done."""


def calls_of(handling: Handling, resources: tuple[Any, ...]) -> Calls:
    """Returns the calls of a task. ``resources`` are the further arguments of the handler."""
    if handling.is_async:
        return SideBySide(handling, lambda end: _OnLoop(handling, resources, end))
    if handling.concurrency > 1 or handling.timeout_ms is not None or handling.stragglers_ms is not None:
        return SideBySide(handling, lambda end: _InThreads(handling, resources, end))
    return InOrder(handling, resources)


class InOrder:
    """Calls the handler in the thread of the task, in row order."""

    def __init__(self, handling: Handling, resources: tuple[Any, ...]) -> None:
        fn = handling.fn
        # Unpacking no arguments would take as long as the call.
        self._call: Handler = (lambda message: fn(message, *resources)) if resources else fn
        self._has_result = handling.has_result
        self._order = KeysInOrder() if handling.in_order else None
        self.times = HandlerTimes()

    def submit(self, rows: Rows, indexes: Iterable[int]) -> None:
        call, done, clock = self._call, rows.done.append, time.perf_counter
        before = len(rows.done)
        ends = [clock()]
        for index in indexes if self._order is None else self._unblocked(rows, indexes, self._order):
            try:
                outcome = call(Message(rows, index))
            except Exception as problem:  # noqa: BLE001 - whatever the handler raises concerns its row only
                rows.odd[index] = failed(Message(rows, index), problem)
            else:
                if outcome is not None and outcome is not True:
                    rows.odd[index] = described(outcome, has_result=self._has_result)
            done(index)
            ends.append(clock())
        actions = None
        if rows.odd:
            actions = [one for one in map(rows.action, rows.done[before:]) if one != BLOCK]
        self.times.add(actions, np.diff(ends))

    @staticmethod
    def _unblocked(rows: Rows, indexes: Iterable[int], order: KeysInOrder) -> Iterator[int]:
        """Yields the rows to handle. The handler of a row is done when the next one is asked for."""
        for index in indexes:
            order.arrives(rows, index)
            if order.blocks(rows, index):
                rows.done.append(index)
                continue
            yield index
            order.ended(rows, index)

    def hold_back(self, rows: Rows, indexes: Iterable[int]) -> None:
        if self._order is not None:
            self._order.hold_back(rows, indexes)

    def finish(self, timeout_s: float | None = None) -> bool:
        return True

    def give_up_overdue(self) -> None: ...

    def running(self) -> list[tuple[Rows, int]]:
        return []

    def close(self) -> None: ...


class _Call:
    """One call. ``began_s`` is on the monotonic clock."""

    __slots__ = ("began_s", "index", "is_over", "key", "rows")

    def __init__(self, rows: Rows, index: int, key: bytes | None) -> None:
        self.rows, self.index, self.key = rows, index, key
        self.began_s = 0.0
        self.is_over = False

    @property
    def message(self) -> Message:
        return Message(self.rows, self.index)


class _Runner(Protocol):
    """Threads or a loop in which calls run. Its methods are called under the lock of :class:`SideBySide`."""

    def run(self, call: _Call) -> None: ...

    def ended(self, call: _Call, *, is_given_up: bool) -> None: ...

    def close(self) -> None: ...


End = Callable[[_Call, Any, BaseException | None], bool]


class SideBySide:
    """Runs up to ``concurrency`` calls at once, and those of one key one after another with ``by_key``.

    A message without a key has the same key as all others without one, as in the task split by keys. A call
    that exceeds its timeout is given up: its outcome is a release, and what its handler returns later is
    ignored. A thread cannot be ended from outside, so it goes on, and another thread takes its place.
    """

    def __init__(self, handling: Handling, runner: Callable[[End], _Runner]) -> None:
        self._handling = handling
        self._changed = threading.Condition()
        self._running: dict[_Call, None] = {}
        self._lanes: dict[bytes | None, deque[_Call]] = {}  # running keys, and the calls that wait for each
        self._waiting = 0  # calls in lanes
        self._ready: deque[_Call] = deque()  # read ahead, so that a call begins as soon as another one ends
        self._order = KeysInOrder() if handling.in_order else None
        self._failure: BaseException | None = None
        self._done: list[tuple[str, float]] = []  # action and seconds of each call
        self._runner = runner(self._end)

    def submit(self, rows: Rows, indexes: Iterable[int]) -> None:
        for index in indexes:
            with self._changed:
                self._take(rows, index)
                has_room = self._has_room()
            if not has_room:
                self._wait(self._wants_more, None)

    def hold_back(self, rows: Rows, indexes: Iterable[int]) -> None:
        if self._order is not None:
            with self._changed:
                self._order.hold_back(rows, indexes)

    def finish(self, timeout_s: float | None = None) -> bool:
        self._wait(lambda: not self._ready, None)
        return self._wait(lambda: not self._running, timeout_s)

    def give_up_overdue(self) -> None:
        timeout_ms = self._handling.timeout_ms
        if timeout_ms is None:
            return
        before_s = time.monotonic() - timeout_ms / 1000
        with self._changed:
            overdue = [call for call in self._running if call.began_s <= before_s]
        late = TimeoutError(f"the handler did not return in {format_duration(timeout_ms)}")
        for call in overdue:
            self._end(call, None, late, is_given_up=True)

    def running(self) -> list[tuple[Rows, int]]:
        with self._changed:
            return [(call.rows, call.index) for call in self._running]

    def close(self) -> None:
        with self._changed:
            self._runner.close()

    @property
    def times(self) -> HandlerTimes:
        times = HandlerTimes()
        with self._changed:
            done = list(self._done)
        if done:
            times.add([action for action, _ in done], [seconds for _, seconds in done])
        return times

    # -- under the lock, or for the runner -------------------------------------------------------------

    def _take(self, rows: Rows, index: int) -> None:
        if self._order is not None:
            self._order.arrives(rows, index)
            if self._order.blocks(rows, index):
                rows.done.append(index)
                return
        call = _Call(rows, index, rows.of("key")[index] if self._handling.by_key else None)
        if self._handling.by_key:
            lane = self._lanes.get(call.key)
            if lane is not None:
                lane.append(call)
                self._waiting += 1
                return
            self._lanes[call.key] = deque()
        if len(self._running) < self._handling.concurrency:
            self._begin(call)
        else:
            self._ready.append(call)

    def _has_room(self) -> bool:
        return len(self._ready) < self._handling.concurrency and self._waiting < _MOST_WAITING

    def _wants_more(self) -> bool:
        return len(self._ready) <= self._handling.concurrency // 2 and self._waiting < _MOST_WAITING

    def _wait(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        tick_s = None if self._handling.timeout_ms is None else _TICK_S
        while True:
            left_s = None if until_s is None else max(until_s - time.monotonic(), 0.0)
            with self._changed:
                bounds = [one for one in (left_s, tick_s) if one is not None]
                met = self._changed.wait_for(
                    lambda: self._failure is not None or condition(), min(bounds, default=None)
                )
                if self._failure is not None:
                    raise self._failure
            if met or left_s == 0.0:
                return met
            self.give_up_overdue()

    def _begin(self, call: _Call) -> None:
        call.began_s = time.monotonic()
        self._running[call] = None
        try:
            self._runner.run(call)
        except RuntimeError as problem:
            # The system has no further thread, for example because given up handlers hold all of them.
            del self._running[call]
            self._failure = self._failure or problem

    def _end(
        self, call: _Call, outcome: Any, problem: BaseException | None, *, is_given_up: bool = False
    ) -> bool:
        """Records what a call came to. False if the call was given up before."""
        odd, failure = self._judged(call, outcome, problem)
        with self._changed:
            if call not in self._running:
                return False
            del self._running[call]
            call.is_over = True
            self._runner.ended(call, is_given_up=is_given_up)
            if failure is not None:
                self._failure = self._failure or failure
            else:
                if odd is not None:
                    call.rows.odd[call.index] = odd
                if self._order is not None:
                    self._order.ended(call.rows, call.index)
                    self._block_lane(call)
                call.rows.done.append(call.index)
                self._done.append((call.rows.action(call.index), time.monotonic() - call.began_s))
            self._begin_next(call)
            if self._wants_more() or self._failure is not None:
                self._changed.notify_all()
        return True

    def _block_lane(self, call: _Call) -> None:
        """Blocks the calls that wait for this one, if its message holds back later ones."""
        lane = self._lanes.get(call.key, deque())
        while lane and self._order is not None and self._order.blocks(lane[0].rows, lane[0].index):
            waiting = lane.popleft()
            self._waiting -= 1
            waiting.rows.done.append(waiting.index)

    def _judged(
        self, call: _Call, outcome: Any, problem: BaseException | None
    ) -> tuple[Described | None, BaseException | None]:
        if call not in self._running:
            return None, None
        try:
            if problem is None:
                if outcome is None or outcome is True:
                    return None, None
                return described(outcome, has_result=self._handling.has_result), None
            if isinstance(problem, (Exception, asyncio.CancelledError)):
                return failed(call.message, problem), None
        except Exception as unknown:  # noqa: BLE001 - the thread of the task raises it
            return None, unknown
        return None, problem

    def _begin_next(self, call: _Call) -> None:
        lane = self._lanes.get(call.key) if self._handling.by_key else None
        if self._failure is not None:
            return
        if lane:
            self._waiting -= 1
            self._begin(lane.popleft())
            return
        self._lanes.pop(call.key, None)
        if self._ready:
            self._begin(self._ready.popleft())


class _InThreads:
    """Threads that take calls. One is added when all others have a call."""

    def __init__(self, handling: Handling, resources: tuple[Any, ...], end: End) -> None:
        self._fn, self._resources, self._end = handling.fn, resources, end
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads = self._calls = 0  # threads that take calls, calls that they have

    def run(self, call: _Call) -> None:
        self._calls += 1
        self._queue.put(call)
        if self._calls > self._threads:
            self._threads += 1
            threading.Thread(target=self._work, name="cursorq-handler", daemon=True).start()

    def ended(self, call: _Call, *, is_given_up: bool) -> None:
        self._calls -= 1
        self._threads -= is_given_up

    def close(self) -> None:
        for _ in range(self._threads):
            self._queue.put(None)
        self._threads = 0

    def _work(self) -> None:
        while (call := self._queue.get()) is not None:
            outcome, problem = None, None
            try:
                outcome = self._fn(call.message, *self._resources)
            except BaseException as raised:  # noqa: BLE001 - SideBySide decides what it means
                problem = raised
            if not self._end(call, outcome, problem):
                return  # given up: another thread has taken the place of this one


class _OnLoop:
    """The event loop of the worker, in which coroutines run."""

    def __init__(self, handling: Handling, resources: tuple[Any, ...], end: End) -> None:
        self._fn, self._resources, self._end = handling.fn, resources, end
        self._loop, self._thread = worker_loop()
        self._tasks: dict[_Call, asyncio.Task[None]] = {}
        self._lock = threading.Lock()  # a call is not given up between the check and the start of its task

    def run(self, call: _Call) -> None:
        if threading.current_thread() is self._thread:
            self._start(call)
        else:
            self._loop.call_soon_threadsafe(self._start, call)

    def ended(self, call: _Call, *, is_given_up: bool) -> None:
        with self._lock:
            task = self._tasks.pop(call, None)
        if is_given_up and task is not None:
            self._loop.call_soon_threadsafe(task.cancel)

    def close(self) -> None: ...

    def _start(self, call: _Call) -> None:
        with self._lock:
            if not call.is_over:
                self._tasks[call] = self._loop.create_task(self._work(call))

    async def _work(self, call: _Call) -> None:
        outcome, problem = None, None
        try:
            outcome = await self._fn(call.message, *self._resources)
        except BaseException as raised:  # noqa: BLE001 - SideBySide decides what it means
            problem = raised
        self._end(call, outcome, problem)
