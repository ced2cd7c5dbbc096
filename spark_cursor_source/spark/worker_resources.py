"""Resources of handlers and an event loop, which a Python worker keeps between its tasks."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from spark_cursor_source.errors import HandlerSetupFailed

log = logging.getLogger(__name__)

_opening = threading.Lock()
_lock = threading.Lock()
_opened: dict[str, Any] = {}
_loop: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None
_ends: list[Callable[[], object]] = []  # called when this worker ends, last in, first out
_awaited: set[threading.Thread] = set()
_is_watched = False


def opened(name: str, open_: Callable[[], Any], *, on_loop: bool) -> Any:
    """Returns the resource ``name`` of this worker. The first call opens it.

    ``open_`` returns a context manager, which is entered, or any other object. With ``on_loop``, ``open_`` is
    called in the worker's event loop, and an asynchronous context manager is entered there. A context manager
    is exited when the worker ends.

    Raises:
        HandlerSetupFailed: ``open_`` or the entry raised an exception.
    """
    with _opening:
        if name not in _opened:
            watch_the_end()
            try:
                _opened[name] = _in_loop(_enter_async(open_)) if on_loop else _enter(open_)
            except Exception as problem:
                what = getattr(open_, "__qualname__", type(open_).__name__)
                raise HandlerSetupFailed(what, f"{type(problem).__name__}: {problem}") from problem
        return _opened[name]


def worker_loop() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    """Returns the event loop of this worker, and the thread in which it runs."""
    global _loop
    with _lock:
        if _loop is None:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_run, args=(loop,), name="cursorq-handler-loop", daemon=True)
            thread.start()
            _loop = loop, thread
        return _loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    # asyncio ends the loop when a task raises one of these. The handlers that run would then never return.
    while not loop.is_closed():
        with suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()


def outlive_idleness(thread: threading.Thread) -> None:
    """Lets this worker end after the thread, if Spark closes it because it had no task for a minute."""
    watch_the_end()
    with _lock:
        _awaited.difference_update([one for one in _awaited if not one.is_alive()])
        _awaited.add(thread)


def worker_is_reused() -> bool:
    """True if this process is a Spark worker that lives on after its task (spark.python.worker.reuse)."""
    return _is_daemon_worker() and bool(os.environ.get("SPARK_REUSE_WORKER"))


def _enter(open_: Callable[[], Any]) -> Any:
    made = open_()
    if not hasattr(made, "__enter__"):
        return made
    value = made.__enter__()
    _ends.append(lambda: made.__exit__(None, None, None))
    return value


async def _enter_async(open_: Callable[[], Any]) -> Any:
    made = open_()
    if not hasattr(made, "__aenter__"):
        return _enter(lambda: made)
    value = await made.__aenter__()
    _ends.append(lambda: _in_loop(made.__aexit__(None, None, None)))
    return value


def _in_loop(coroutine: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(coroutine, worker_loop()[0]).result()


def _end_worker() -> None:
    while _ends:
        end = _ends.pop()
        try:
            end()
        except Exception as problem:  # noqa: BLE001 - the other resources are closed all the same
            log.warning(
                "A resource of a handler could not be closed. event=handler_teardown_failed why=%s: %s",
                *(type(problem).__name__, problem),
            )


def _is_daemon_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == "pyspark.daemon"


def watch_the_end() -> None:
    """Makes this process close its resources when it ends. The main thread of a worker calls it."""
    global _is_watched
    with _lock:
        if _is_watched:
            return
        _is_watched = True
    atexit.register(_end_worker)
    if not _is_daemon_worker():
        return
    # Spark's daemon ends idle workers with os._exit, which calls no atexit function, and all with SIGHUP.
    exit_now, pid = os._exit, os.getpid()

    def exit_after_ends(code: int) -> None:
        if os.getpid() == pid:  # not a process that a handler has forked
            for thread in list(_awaited):
                thread.join()
            _end_worker()
        exit_now(code)

    def hang_up(number: int, frame: FrameType | None) -> None:
        _end_worker()
        exit_now(0)

    os._exit = exit_after_ends  # type: ignore[assignment]
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGHUP, hang_up)
