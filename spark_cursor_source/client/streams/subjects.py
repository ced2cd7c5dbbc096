"""NATS subjects: dot-separated words that route a message to the attached streams."""

from __future__ import annotations

ANY_WORD = "*"
ANY_TAIL = ">"


def why_no_subject(subject: str, *, wildcards: bool) -> str | None:
    """Returns why ``subject`` is not a valid subject, or None. A publish subject has no wildcards.

    >>> why_no_subject("orders.*.paid", wildcards=True) is None
    True
    >>> why_no_subject("orders..paid", wildcards=True)
    'a subject has words between its dots'
    >>> why_no_subject("orders.*", wildcards=False)
    'nothing is published to wildcards'
    """
    if not isinstance(subject, str):
        return "a subject is a text"
    if not subject.isprintable() or any(char.isspace() for char in subject):
        return "a subject has no spaces and nothing that cannot be shown"
    words = subject.split(".")
    if not all(words):
        return "a subject has words between its dots"
    if ANY_TAIL in words[:-1]:
        return "'>' can only be the last word"
    if not wildcards and {ANY_WORD, ANY_TAIL} & set(words):
        return "nothing is published to wildcards"
    return None


def matches(pattern: str, subject: str) -> bool:
    """True if ``subject`` matches ``pattern``. ``*`` matches one word, ``>`` one or more words.

    >>> matches("orders.*", "orders.eu"), matches("orders.*", "orders.eu.paid"), matches("orders.>", "orders")
    (True, False, False)
    """
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ANY_TAIL:
        return len(given) >= len(wanted) and _same(wanted[:-1], given)
    return len(given) == len(wanted) and _same(wanted, given)


def attached(pattern: str, partitions: int, subject: str) -> list[int]:
    """Returns the partitions of a stream that receive a message to ``subject``, as in Liftbridge.

    Partition 0 is attached to the stream's own subject. Partition 3 is attached to that subject plus ``.3``.

    >>> attached("orders", 4, "orders"), attached("orders", 4, "orders.3"), attached("orders", 4, "orders.4")
    ([0], [3], [])
    """
    found = [0] if matches(pattern, subject) else []
    base, _, last = subject.rpartition(".")
    # '>' must be the last word, so a partition number cannot follow it.
    if last.isascii() and last.isdigit() and str(int(last)) == last and not pattern.endswith(ANY_TAIL):
        number = int(last)
        if 0 < number < partitions and matches(pattern, base):
            found.append(number)
    return found


def _same(wanted: list[str], given: list[str]) -> bool:
    return all(word in (ANY_WORD, there) for word, there in zip(wanted, given, strict=False))
