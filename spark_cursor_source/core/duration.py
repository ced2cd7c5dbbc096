"""Durations as users write them: ``500ms``, ``30s``, ``5m``, ``2h``, ``1d``, or Spark's ``30 seconds``."""

from __future__ import annotations

import re

from spark_cursor_source.errors import InvalidDuration

# 19 digits cover every 64-bit number and bound the size of a number in hostile input.
_DURATION = re.compile(r"([0-9]{1,19})(ms|s|m|h|d)")
_SPARKS = re.compile(r"(?: +[0-9]{1,19} +(?:week|day|hour|minute|second|millisecond)s?)+", re.IGNORECASE)
_SPARKS_PARTS = re.compile(r"([0-9]+) +([a-z]+)")
_SPARKS_UNIT_MS = {
    "week": 604_800_000,
    "day": 86_400_000,
    "hour": 3_600_000,
    "minute": 60_000,
    "second": 1_000,
    "millisecond": 1,
}
_MOST_MS = 2**63 - 1
_UNIT_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def parse_duration(text: str) -> int:
    """Returns the milliseconds of a duration; signs, fractions and bare numbers are invalid.

    Besides the short form, the function accepts the durations of Spark's ``trigger(processingTime=)``: whole
    numbers with units in words, with or without a leading ``interval``.

    >>> parse_duration("500ms"), parse_duration("30s"), parse_duration("2h")
    (500, 30000, 7200000)
    >>> parse_duration("30 seconds"), parse_duration("interval 1 minute 30 seconds")
    (30000, 90000)
    >>> parse_duration("30")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    spark_cursor_source.errors.options.InvalidDuration: '30' is not a duration. Write ...

    Raises:
        InvalidDuration: the text is not a duration, or its milliseconds exceed 64 bits. A number is none.
    """
    if not isinstance(text, str):
        raise InvalidDuration(text)
    match = _DURATION.fullmatch(text)
    if match is not None:
        number, unit = match.groups()
        duration_ms = int(number) * _UNIT_MS[unit]
    else:
        duration_ms = _parse_sparks(text)
    if duration_ms > _MOST_MS:
        raise InvalidDuration(text)
    return duration_ms


def _parse_sparks(text: str) -> int:
    words = " " + text.strip(" ").lower().removeprefix("interval ")
    if _SPARKS.fullmatch(words) is None:
        raise InvalidDuration(text)
    return sum(
        int(number) * _SPARKS_UNIT_MS[unit.removesuffix("s")] for number, unit in _SPARKS_PARTS.findall(words)
    )


def format_duration(duration_ms: int) -> str:
    """Returns the shortest exact text of a duration; ``parse_duration`` reverses it.

    >>> format_duration(90_000), format_duration(7_200_000), format_duration(1_500), format_duration(0)
    ('90s', '2h', '1500ms', '0s')

    Raises:
        InvalidDuration: the duration is negative.
    """
    if duration_ms < 0:
        raise InvalidDuration(f"{duration_ms}ms")
    if duration_ms == 0:
        return "0s"
    unit = next(unit for unit, unit_ms in _UNIT_MS.items() if duration_ms % unit_ms == 0)
    return f"{duration_ms // _UNIT_MS[unit]}{unit}"
