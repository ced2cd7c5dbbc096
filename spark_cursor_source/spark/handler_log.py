"""Rate-limited log of handler exceptions on executors. Each line counts the suppressed ones before it."""

from __future__ import annotations

import logging
import threading
import time

from spark_cursor_source.core.log_limit import LogLimit

log = logging.getLogger(__name__)
_MOST = 5
_WINDOW_MS = 60_000
_few = LogLimit(most=_MOST, window_ms=_WINDOW_MS)
_lock = threading.Lock()


def report_failure(topic: str, partition: int, offset: int, delivery_count: int, why: str) -> None:
    """Logs the exception that a handler raised for a message, unless the rate limit is reached.

    The log line identifies the message. The only other content is the exception text.
    """
    with _lock:
        left_out = _few.admit(int(time.monotonic() * 1000))
    if left_out is not None:
        log.warning(
            "The handler raised an exception. event=handler_failed topic=%s partition=%s "
            "offset=%s delivery_count=%s not_shown_before=%d why=%s",
            *(topic, partition, offset, delivery_count, left_out, " ".join(why.split())),
        )
