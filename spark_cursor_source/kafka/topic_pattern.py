"""The option subscribePattern: a Java regular expression, as Spark's Kafka source takes it."""

from __future__ import annotations

import re

from spark_cursor_source.errors import InvalidOption

#: topics of the brokers' own, which Java's consumer leaves out of patterns too
INTERNAL_TOPICS = frozenset(
    {"__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state"}
)

_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|$)", re.DOTALL)
_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z])")


def compile_topic_pattern(pattern: str) -> re.Pattern[str]:
    """The pattern in Python's words; a topic matches with its whole name.

    >>> compile_topic_pattern(r"\\Qa.b\\E-(?<region>eu|us)").fullmatch("a.b-eu") is not None
    True

    Raises:
        InvalidOption: it is none, or uses what only Java knows, such as ``\\p{Alpha}``.
    """
    translated = _QUOTED.sub(lambda quoted: re.escape(quoted.group(1)), pattern)
    translated = _NAMED_GROUP.sub("(?P<", translated)
    try:
        return re.compile(translated)
    except re.error as cause:
        raise InvalidOption(
            "subscribePattern", pattern, f"no regular expression ({cause})", "write one that Python knows too"
        ) from cause


def matching_topics(pattern: str, topics: list[str]) -> list[str]:
    """Those of the topics that match, sorted, without the brokers' own."""
    compiled = compile_topic_pattern(pattern)
    return sorted(name for name in topics if name not in INTERNAL_TOPICS and compiled.fullmatch(name))
