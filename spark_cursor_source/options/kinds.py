"""Kinds of option values. A kind checks the text of an option and returns its value.

Every kind has the shape ``kind(option, text) -> value``. The name of the option is for the error.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from spark_cursor_source.core.duration import format_duration, parse_duration
from spark_cursor_source.core.names import why_no_subscription, why_no_template, why_no_topic
from spark_cursor_source.errors import ConflictingOptions, InvalidArgument, InvalidDuration, InvalidOption

MAX_LONG = 2**63 - 1

ValueT = TypeVar("ValueT")
ChoiceT = TypeVar("ChoiceT", bound=enum.StrEnum)
Kind = Callable[[str, str], ValueT]


def as_text(option: str, value: object, *, secret: bool = False) -> str | None:
    """Convert an option's value to text as Spark does. None stays None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    shown = None if secret else value
    raise InvalidOption(option, shown, f"its value is a {type(value).__name__}", "give a text")


def items_of(argument: str, options: Mapping[str, ValueT]) -> Iterable[tuple[str, ValueT]]:
    """Return the options with their values.

    >>> items_of("kafka", "broker:9092")
    Traceback (most recent call last):
    spark_cursor_source.errors.client.InvalidArgument: The argument kafka=<class 'str'> is invalid: it is ...

    Raises:
        InvalidArgument: they are not a mapping with texts as keys.
    """
    if not isinstance(options, Mapping):
        why = "it is not a mapping from option names to values, such as a dict"
        raise InvalidArgument(argument, type(options), why)  # the value itself may be a secret
    for option in options:
        if not isinstance(option, str):
            raise InvalidArgument(argument, type(options), f"its key {option!r} is not a text")
    return options.items()


def put_once(values: dict[str, str], key: str, option: str, text: str | None) -> None:
    """Add the text of an option, unless it is None. The same key with another text is refused."""
    if text is None:
        return
    if values.get(key, text) != text:
        raise ConflictingOptions((option,), "given twice with different values", "give it once")
    values[key] = text


def integer(*, least: int = 1) -> Kind[int]:
    """Return the kind of whole numbers of at least ``least``.

    >>> integer(least=0)("maxDeliveries", "5")
    5
    """
    return partial(parse_integer, least=least)


def decimal(*, least: float, most: float) -> Kind[float]:
    """Return the kind of decimal numbers between ``least`` and ``most``."""
    return partial(_parse_decimal, least=least, most=most)


def duration(*, least_ms: int = 0, most_ms: int = MAX_LONG) -> Kind[int]:
    """Return the kind of durations. The value is in ms.

    >>> duration(least_ms=1_000)("leaseTimeout", "5m")
    300000
    """
    return partial(check_duration, least_ms=least_ms, most_ms=most_ms)


def trigger(option: str, value: str) -> int | None:
    """Return the time between two batches in ms, or None for ``availableNow``.

    >>> trigger("trigger", "2s"), trigger("trigger", "availableNow")
    (2000, None)
    """
    return None if value.lower() == "availablenow" else check_duration(option, value)


def choice(choices: type[ChoiceT]) -> Kind[ChoiceT]:
    """Return the kind of the values of an enum. Case does not matter."""
    return partial(_check_choice, choices=choices)


def text(option: str, value: str) -> str:
    """Return any text unchanged."""
    return value


def boolean(option: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise InvalidOption(option, value, "it is neither true nor false", "use one of these")
    return value.lower() == "true"


def topic(option: str, name: str) -> str:
    return _check_name(option, name, why_no_topic, "give a name that Kafka takes for a topic")


def subscription(option: str, name: str) -> str:
    return _check_name(option, name, why_no_subscription, "choose another name")


def dead_letter_template(option: str, template: str) -> str:
    next_move = "write it like {topic}-{subscription}-DLQ, or give one topic's name"
    return _check_name(option, template, why_no_template, next_move)


def parse_integer(option: str, value: str, *, least: int, most: int = MAX_LONG) -> int:
    # Nineteen digits hold every Java long. int() alone would also accept '1_000', ' 1 ' and non-ASCII digits.
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise InvalidOption(option, value, "it is not a whole number", f"use one of at least {least}")
    number = int(value)
    if not least <= number <= most:
        raise InvalidOption(option, value, f"it is not in {least} to {most}", "give a number of that range")
    return number


def check_duration(option: str, text: str, *, least_ms: int = 0, most_ms: int = MAX_LONG) -> int:
    try:
        duration_ms = parse_duration(text)
    except InvalidDuration as cause:
        next_move = "give a whole number and a unit: 500ms, 30s, 5m, 2h or 1d"
        raise InvalidOption(option, text, "it is not a duration", next_move) from cause
    if duration_ms < least_ms:
        raise InvalidOption(option, text, "it is too short", f"give {format_duration(least_ms)} or more")
    if duration_ms > most_ms:
        raise InvalidOption(option, text, "it is too long", f"give {format_duration(most_ms)} or less")
    return duration_ms


def _parse_decimal(option: str, value: str, *, least: float, most: float) -> float:
    try:
        number = float(value)
    except ValueError as cause:
        raise InvalidOption(option, value, "it is not a number", f"use one of at least {least}") from cause
    if not least <= number <= most:  # the comparison also refuses nan
        raise InvalidOption(option, value, f"it is not in {least} to {most}", "give one of that range")
    return number


def _check_choice(option: str, value: str, *, choices: type[ChoiceT]) -> ChoiceT:
    for choice in choices:
        if choice.value == value.lower():
            return choice
    listed = ", ".join(choice.value for choice in choices)
    raise InvalidOption(option, value, "it is not an allowed value", f"use one of {listed}")


def _check_name(option: str, name: str, why_not: Callable[[str], str | None], next_move: str) -> str:
    why = why_not(name)
    if why is not None:
        raise InvalidOption(option, name, why, next_move)
    return name
