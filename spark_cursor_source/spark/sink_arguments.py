"""Checks of the arguments of sinks, before any message is processed."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from pickle import PicklingError
from typing import Any

from pyspark.cloudpickle import dumps
from pyspark.errors import PySparkException

from spark_cursor_source.errors import HandlerNotPicklable, InvalidOption
from spark_cursor_source.options.kinds import check_duration

_LEAST_MS = 100


def check_travels(function: Callable[..., Any]) -> None:
    """Refuses a function that cannot be pickled to executors.

    Raises:
        HandlerNotPicklable
    """
    try:
        dumps(function)  # type: ignore[no-untyped-call]  # pyspark does not annotate it
    except (AttributeError, PicklingError, PySparkException, RecursionError, TypeError, ValueError) as why:
        raise HandlerNotPicklable(_name_of(function), str(why)) from why


def _name_of(function: object) -> str:
    name: str = getattr(function, "__qualname__", type(function).__name__)
    return name


def check_takes(option: str, function: Callable[..., Any] | None, *arguments: str) -> None:
    """Refuses a function that cannot be called with these arguments: each message would fail alike.

    Raises:
        InvalidOption
    """
    try:
        signature(function).bind(*arguments)  # type: ignore[arg-type]  # None is refused like other values
    except TypeError as why:
        listed = ", ".join(arguments)
        cause = f"it cannot be called with ({listed}): {why}"
        raise InvalidOption(option, _name_of(function), cause, f"give a function of ({listed})") from why
    except ValueError:
        return  # a function in C may not tell its arguments


def check_at_least(option: str, value: int, least: int) -> int:
    """Returns a whole number of at least ``least``.

    Raises:
        InvalidOption
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOption(option, value, "it is not a whole number", f"give {least} or more")
    if value < least:
        raise InvalidOption(option, value, f"it is below {least}", f"give {least} or more")
    return value


def check_not_blank(option: str, value: str, expected: str) -> None:
    """Refuses a value that is no text, or a blank one.

    Raises:
        InvalidOption
    """
    if not isinstance(value, str) or not value.strip():
        raise InvalidOption(option, value, "it is not a text, or it is blank", f"give {expected}")


def check_is_true_or_false(option: str, value: bool) -> None:
    """Refuses other values. The text "false" would count as true.

    Raises:
        InvalidOption
    """
    if not isinstance(value, bool):
        raise InvalidOption(option, value, "it is neither True nor False", "give one of them")


def short_duration_ms(option: str, text: str) -> int:
    """Returns the milliseconds of a duration of at least 100ms.

    Raises:
        InvalidOption
    """
    return check_duration(option, text, least_ms=_LEAST_MS)
