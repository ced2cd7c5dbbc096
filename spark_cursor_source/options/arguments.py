"""Arguments of configuration objects: Python values that are checked when the object is created.

Each field is declared once with its check, its default and its meaning, as ``options.declare`` does for the
options of Spark.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
from collections.abc import Callable, Iterable
from functools import partial
from numbers import Real
from typing import Any, TypeVar

from spark_cursor_source.core.names import why_no_topic
from spark_cursor_source.errors import InvalidArgument
from spark_cursor_source.options.declare import Option, documented

_CHECK = "cursorq.check"
_MAX_TIMEOUT_MS = 366 * 24 * 3_600_000  # Python waits no longer than about 292 years
_Value = TypeVar("_Value")

#: check of an argument: (name, value) -> the value to keep
Check = Callable[[str, Any], Any]


def argument(check: Check, *, doc: str, **field: Any) -> Any:
    """Declare a field with one argument. ``field`` are arguments of ``dataclasses.field``.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Wait:
    ...     timeout_ms: int = argument(number(1, 9_000), default=5_000, doc="longest wait")
    ...     __post_init__ = check_arguments
    >>> Wait().timeout_ms
    5000
    >>> Wait(timeout_ms=0)
    Traceback (most recent call last):
    spark_cursor_source.errors.client.InvalidArgument: The argument timeout_ms=0 is invalid: it is not in ...
    """
    default = str(field.get("default", ""))
    return dataclasses.field(**field, metadata={_CHECK: check} | documented(Option("", doc, default or None)))


def check_arguments(config: Any) -> None:
    """Check the fields of a new object in order. Each field gets the value that its check returns.

    Raises:
        InvalidArgument: a value is not valid.
    """
    for field in dataclasses.fields(config):
        value = field.metadata[_CHECK](field.name, getattr(config, field.name))
        object.__setattr__(config, field.name, value)


def check_number(argument: str, value: int, *, least: int, most: int) -> int:
    """Return a whole number between ``least`` and ``most``. Those of other libraries become an int."""
    try:
        whole = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        whole = None
    if whole is None:
        raise InvalidArgument(argument, value, "it is not a whole number")
    if not least <= whole <= most:
        raise InvalidArgument(argument, value, f"it is not in {least} to {most}")
    return whole


def check_is_number(argument: str, value: float, *, kind: type = Real, words: str = "a number") -> None:
    """Check the type of a number, where its bounds are checked elsewhere."""
    if isinstance(value, bool) or not isinstance(value, kind):
        raise InvalidArgument(argument, value, f"it is not {words}")


def call_timeout(timeout_ms: int | None, default_ms: int) -> int:
    """Return the timeout of a call in ms. None is the default.

    >>> call_timeout(None, 60_000), call_timeout(500, 60_000)
    (60000, 500)
    >>> call_timeout("5s", 60_000)
    Traceback (most recent call last):
    spark_cursor_source.errors.client.InvalidArgument: The argument timeout_ms='5s' is invalid: it is not ...
    """
    if timeout_ms is None:
        return default_ms
    check_is_number("timeout_ms", timeout_ms, words="a number of milliseconds")
    if not timeout_ms <= _MAX_TIMEOUT_MS:  # also if it is NaN
        raise InvalidArgument("timeout_ms", timeout_ms, "it is longer than a year")
    return int(timeout_ms)


def check_key_and_value(key: bytes | None, value: bytes | None, *, name: str) -> None:
    """Check the types of the key and the value of a message. The Kafka client encodes a value that is a text.

    ``name`` is the argument of the value.
    """
    if key is not None and not isinstance(key, bytes):
        raise InvalidArgument("key", key, "it is not bytes; encode a text")
    if isinstance(value, str):
        check_text(name, value)
    elif value is not None and not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidArgument(name, value, "it is not bytes")


def check_is_text(argument: str, value: str) -> None:
    """Check the type of a name. A variable that is not set gives None, which can mean something else."""
    if not isinstance(value, str):
        raise InvalidArgument(argument, value, "it is not a text")


def check_topic(argument: str, name: str) -> None:
    """Check that Kafka takes a name for a topic."""
    if (why := why_no_topic(name)) is not None:
        raise InvalidArgument(argument, name, why)


def check_is_callable(argument: str, value: object) -> None:
    """Check that a value can be called, before another thread calls it and its error is seen nowhere."""
    if not callable(value):
        raise InvalidArgument(argument, value, "it cannot be called")


def check_text(argument: str, text: str) -> None:
    """Check that a value is a text, and that UTF-8 has bytes for it."""
    check_is_text(argument, text)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(argument, text, "UTF-8 has no bytes for a lone surrogate in it") from None


def check_headers(headers: Iterable[tuple[str, _Value]]) -> tuple[tuple[str, _Value], ...]:
    """Return the headers of a message to send.

    The Kafka client would end the process because of a name that has no UTF-8 bytes.

    >>> check_headers([("caf\\udce9", b"open")])
    Traceback (most recent call last):
    spark_cursor_source.errors.client.InvalidArgument: The argument headers='caf\\udce9' is invalid: ...
    """
    try:
        given = tuple((name, value) for name, value in headers)
    except (TypeError, ValueError):
        raise InvalidArgument("headers", headers, "they are not pairs of a name and a value") from None
    for name, value in given:
        check_text("headers", name)
        if value is not None and not isinstance(value, bytes | str):
            raise InvalidArgument("headers", value, f"the value of '{name}' is not bytes")
    return given


def unchecked(argument: str, value: Any) -> Any:
    """Return any value unchanged."""
    return value


def true_or_false(argument: str, value: bool) -> bool:
    """Return True or False. The text "false" would count as true."""
    if not isinstance(value, bool):
        raise InvalidArgument(argument, value, "it is not True or False")
    return value


def number(least: int, most: int) -> Check:
    """Return the check of whole numbers between ``least`` and ``most``."""

    return partial(check_number, least=least, most=most)


def choice(choices: type[enum.StrEnum]) -> Check:
    """Return the check of the members of an enum, which may be given by value."""

    def check(argument: str, value: str) -> enum.StrEnum:
        if value not in list(choices):
            raise InvalidArgument(argument, value, f"it is none of {', '.join(choices)}")
        return choices(value)

    return check


def name(why_not: Callable[[str], str | None]) -> Check:
    """Return the check of a name. ``why_not`` gives the reason why a name is not valid, or None."""

    def check(argument: str, value: str) -> str:
        if (why := why_not(value)) is not None:
            raise InvalidArgument(argument, value, why)
        return value

    return check
