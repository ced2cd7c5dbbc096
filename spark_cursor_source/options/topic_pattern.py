"""Option subscribePattern: a Java regular expression, as in Spark's Kafka source."""

from __future__ import annotations

import re
from functools import lru_cache

from spark_cursor_source.errors import InvalidOption

_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|$)", re.DOTALL)
_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z])")
_NAMED_REFERENCE = re.compile(r"\\k<([A-Za-z][A-Za-z0-9]*)>")
_TOKEN = re.compile(r"\\.|&&|.", re.DOTALL)
_OF_PYTHON = re.compile(r"\(\?P")


@lru_cache(maxsize=64)
def compile_topic_pattern(pattern: str) -> re.Pattern[str]:
    """Translate the pattern to a Python regular expression. A topic must match it with its whole name.

    >>> compile_topic_pattern(r"\\Qa.b\\E-(?<region>eu|us)").fullmatch("a.b-eu") is not None
    True

    Raises:
        InvalidOption: the pattern is invalid, or it uses features that only Java has, such as ``\\p{Alpha}``.
    """
    if _OF_PYTHON.search(pattern):
        raise _refusal(pattern, "(?P is of Python alone")
    translated = _QUOTED.sub(lambda quoted: re.escape(quoted.group(1)), pattern)
    translated = _NAMED_GROUP.sub("(?P<", translated)
    translated = _NAMED_REFERENCE.sub(r"(?P=\1)", translated)
    if _has_nested_sets(translated):
        raise _refusal(pattern, "sets within sets are Java's alone")
    try:
        return re.compile(translated)
    except re.error as cause:
        raise _refusal(pattern, str(cause)) from cause


def _has_nested_sets(pattern: str) -> bool:
    """True if brackets contain brackets or ``&&``. Python treats these as plain characters."""
    inside = False
    for token in _TOKEN.findall(pattern):
        if inside and token in ("[", "&&"):
            return True
        inside = token == "[" or (inside and token != "]")
    return False


def _refusal(pattern: str, why: str) -> InvalidOption:
    return InvalidOption(
        "subscribePattern",
        pattern,
        f"it is not a Java regular expression that Python supports as well ({why})",
        "use syntax that both support",
    )
