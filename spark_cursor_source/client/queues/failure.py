"""Unexpected errors of a consumer's threads, which every later call raises."""

from __future__ import annotations

from spark_cursor_source.errors import ConsumerFailed, CursorqError


def as_own_error(why: Exception) -> CursorqError:
    """Returns the error if it is one of this library, or else a ConsumerFailed with this cause."""
    if isinstance(why, CursorqError):
        return why
    failed = ConsumerFailed(type(why).__name__, str(why))
    failed.__cause__ = why
    return failed
