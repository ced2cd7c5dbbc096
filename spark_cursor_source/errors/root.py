"""The root of all errors, and how they show a value."""

from __future__ import annotations


class CursorqError(Exception):
    """Root of all errors of this library: ``except CursorqError`` catches each of them."""


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"
