"""Log lines as tests compare them: the event and its fields, without the sentence."""

from __future__ import annotations

import logging
from collections.abc import Iterable


def events(records: Iterable[logging.LogRecord]) -> list[str]:
    """``name key=value ...`` of each line.

    >>> record = logging.makeLogRecord({"msg": "It starts. event=run_started run=%s", "args": ("r1",)})
    >>> events([record])
    ['run_started run=r1']
    """
    return [record.getMessage().partition("event=")[2] for record in records]


def names(records: Iterable[logging.LogRecord]) -> list[str]:
    """The name of the event of each line."""
    return [event.partition(" ")[0] for event in events(records)]
