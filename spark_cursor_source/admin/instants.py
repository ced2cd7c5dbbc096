"""Parsing of times given by an operator."""

from __future__ import annotations

import argparse

from spark_cursor_source.wire.deliver_at import parse_instant


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
