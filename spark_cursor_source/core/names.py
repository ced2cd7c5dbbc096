"""Names of topics and subscriptions, and of the dead-letter topic built from both by a template."""

from __future__ import annotations

import re
from collections.abc import Callable
from string import Formatter

MAX_PARTITIONS = 100_000  #: librdkafka creates no topic with more
MAX_TOPIC_CHARS = 249  # Kafka's own limit
DEFAULT_MARKERS_TOPIC = "__cursorq_markers"
DEFAULT_REDELIVERIES_TOPIC = "__cursorq_redeliveries"
DEFAULT_CURSORS_TOPIC = "__cursors"
DEFAULT_STREAMS_TOPIC = "__cursorq_streams"
DEFAULT_RESCUE_TOPIC = "__cursorq_rescue"
DEFAULT_DEAD_LETTER_TOPIC = "{topic}-{subscription}-DLQ"

_NAME = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_PLACEHOLDERS = frozenset({"topic", "subscription"})


def why_no_topic(name: str) -> str | None:
    """Returns the reason why Kafka would reject this topic name, or None if the name is valid.

    >>> why_no_topic("orders") is None
    True
    >>> why_no_topic("or ders")
    'a topic name has only the characters A-Z a-z 0-9 . _ -'
    """
    if not isinstance(name, str):
        return "a topic name is a text"
    if name in ("", ".", ".."):
        return "a topic name cannot be empty, '.' or '..'"
    if len(name) > MAX_TOPIC_CHARS:
        return f"a topic name has at most {MAX_TOPIC_CHARS} characters"
    return None if _NAME.fullmatch(name) else "a topic name has only the characters A-Z a-z 0-9 . _ -"


def why_no_subscription(name: str) -> str | None:
    """Returns the reason why this subscription name is invalid, or None if it is valid.

    Commas are invalid, because the text form of a cell is split at commas.

    >>> why_no_subscription("billing") is None, why_no_subscription("a,b")
    (True, 'a subscription has only the characters A-Z a-z 0-9 . _ -')
    """
    if not isinstance(name, str):
        return "the name of a subscription is a text"
    if not name:
        return "a subscription cannot be empty"
    if len(name) > MAX_TOPIC_CHARS:
        return f"a subscription has at most {MAX_TOPIC_CHARS} characters"
    return None if _NAME.fullmatch(name) else "a subscription has only the characters A-Z a-z 0-9 . _ -"


def why_no_template(template: str) -> str | None:
    """Returns the reason why this dead-letter topic template is invalid, or None if it is valid.

    >>> why_no_template("{topic}-{subscription}-DLQ") is None, why_no_template("{queue}")
    (True, 'only {topic} and {subscription} can stand in braces')
    """
    try:
        parts = list(Formatter().parse(template))
    except ValueError as malformed:
        return f"its braces are malformed ({malformed})"
    for _, field, spec, conversion in parts:
        if field is not None and (field not in _PLACEHOLDERS or spec or conversion):
            return "only {topic} and {subscription} can stand in braces"
    return why_no_topic(template.format(topic="t", subscription="s"))


def is_literal(template: str) -> bool:
    """True if a dead-letter template names one topic for every queue topic and subscription.

    >>> is_literal("dead"), is_literal("{topic}-dead")
    (True, False)
    """
    return "{" not in template


def holds_dead_letters(template: str, topic: str, is_queue: Callable[[str], bool]) -> bool:
    """True if a topic of this name receives the dead letters of a queue topic, for any subscription.

    ``is_queue`` tells whether a topic name is a queue topic.

    >>> is_queue = re.compile("orders.*").fullmatch
    >>> holds_dead_letters("{topic}-{subscription}-DLQ", "orders-billing-DLQ", lambda t: bool(is_queue(t)))
    True
    >>> holds_dead_letters("{topic}-{subscription}-DLQ", "returns-billing-DLQ", lambda t: bool(is_queue(t)))
    False
    """
    if not _matches(template, topic, origin=None):
        return False
    if "{topic}" not in template:
        return True
    # A name such as a-b-c-DLQ is ambiguous (a-b and c, a and b-c): any reading with a queue topic counts.
    spans = ((start, end) for start in range(len(topic)) for end in range(start + 1, len(topic) + 1))
    origins = {topic[start:end] for start, end in spans}
    return any(is_queue(origin) and _matches(template, topic, origin=origin) for origin in origins)


def _matches(template: str, topic: str, *, origin: str | None) -> bool:
    of_topic = _NAME.pattern if origin is None else re.escape(origin)
    placeholders = {"topic": of_topic, "subscription": _NAME.pattern, None: ""}
    parts = Formatter().parse(template)
    pattern = "".join(re.escape(literal) + placeholders[name] for literal, name, _, _ in parts)
    return re.fullmatch(pattern, topic) is not None


def dead_letter_topic(template: str, *, topic: str, subscription: str) -> str:
    """Returns the dead-letter topic of one queue topic and subscription.

    >>> dead_letter_topic("{topic}-{subscription}-DLQ", topic="orders", subscription="billing")
    'orders-billing-DLQ'
    """
    return template.format(topic=topic, subscription=subscription)


def why_no_dead_letters(template: str, *, topic: str, subscription: str) -> str | None:
    """Returns the reason why the dead-letter topic of a queue topic and subscription is invalid, or None.

    >>> why_no_dead_letters("{topic}-{subscription}-DLQ", topic="orders", subscription="s" * 240)
    'its dead letters of orders go to a topic of 251 characters: a topic name has at most 249 characters'
    """
    name = dead_letter_topic(template, topic=topic, subscription=subscription)
    why = why_no_topic(name)
    if why is None:
        return None
    return f"its dead letters of {topic} go to a topic of {len(name)} characters: {why}"
