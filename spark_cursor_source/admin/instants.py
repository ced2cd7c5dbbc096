"""Parsing of times and offsets given by an operator."""

from __future__ import annotations

import argparse

from spark_cursor_source.wire.deliver_at import parse_instant

_DIGITS = 18  # of the largest partition or offset that can be given


def instant_ms(text: str) -> int:
    """Converts ISO 8601 with a UTC offset, or digits (ms since 1970), to milliseconds since 1970.

    >>> instant_ms("2026-11-21T08:00:00+00:00")
    1795248000000

    Raises:
        argparse.ArgumentTypeError: the text has neither format. Use this function as ``type=`` of an
            argument.
    """
    at_ms = parse_instant(text)
    if at_ms is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an instant such as 2026-11-21T08:00:00+00:00")
    return at_ms


def offsets_by_partition(text: str) -> dict[int, int]:
    """Converts ``0=17,1=40`` to one offset for each partition.

    >>> offsets_by_partition("0=17,1=40")
    {0: 17, 1: 40}

    Raises:
        argparse.ArgumentTypeError: the text has another format or too many digits, or names a partition
            twice.
    """
    pairs = [pair.strip().partition("=") for pair in text.split(",")]
    if not all(number.isdecimal() and at.isdecimal() for number, _, at in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 0=17,1=40")
    if any(len(one) > _DIGITS for number, _, at in pairs for one in (number, at)):
        raise argparse.ArgumentTypeError(f"a partition and an offset have at most {_DIGITS} digits")
    offsets = {int(number): int(at) for number, _, at in pairs}
    if len(offsets) < len(pairs):
        raise argparse.ArgumentTypeError(f"{text!r} names a partition twice")
    return offsets
