"""Every error of spark_cursor_source, in one tree.

An error states the facts and the next move. Errors of other libraries are turned into these once, where
they enter (``kafka/`` for librdkafka), and nothing here imports anything.
"""

from __future__ import annotations


class CursorqError(Exception):
    """Root of all errors of this library: ``except CursorqError`` catches each of them."""
