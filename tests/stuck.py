"""End a worker process of pytest whose test hangs where ``pytest-timeout`` cannot reach it.

``pytest-timeout`` raises an exception in the main thread, once. That does not end a test whose main thread is
in a C library, nor one that hangs in its teardown after that. Here the whole process ends instead, after it
printed where each of its threads is; pytest-xdist reports the test as failed and starts another process for
the tests that are left.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Generator

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

TEST_S = 900  #: for all of a test; more than ``timeout`` in pyproject.toml
TEARDOWN_S = 400  #: for a teardown


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Begin to count with the test."""
    _end_after(TEST_S, item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Begin to count again: pytest stops the count when a test fails."""
    _end_after(TEARDOWN_S, item)


def _end_after(seconds: float, item: pytest.Item) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True, file=item.config.stash[fault_handler_stderr_fd_key])
