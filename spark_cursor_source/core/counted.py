"""Numbers with their nouns, in texts that people read."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun.

    >>> counted(1, "dead letter"), counted(0, "message"), counted(1_715, "message")
    ('1 dead letter', '0 messages', '1,715 messages')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
