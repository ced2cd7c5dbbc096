"""Dead letters for an operator: selection, list, and groups by reason and error template."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from typing import Any, Final

from spark_cursor_source.admin.letter_log import REDRIVEN, WAITING, LetterLog
from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC
from spark_cursor_source.core.payload_decoder import PayloadDecoder
from spark_cursor_source.core.payload_mask import NO_MASK, PayloadMask
from spark_cursor_source.core.time_counts import TimeCounts
from spark_cursor_source.errors import InvalidOption
from spark_cursor_source.options.arguments import check_is_text
from spark_cursor_source.topics.dead_letters import DeadLetterRecord

__all__ = [
    "DeadLetterFilter",
    "DeadLetterGroup",
    "DeadLetterRecord",
    "group_dead_letters",
    "letter_to_json",
    "read_dead_letter",
    "read_dead_letters",
]

ALL_SUBSCRIPTIONS: Final = "*"  #: no subscription has this name


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Selects dead letters; without arguments, all.

    Raises:
        InvalidOption: ``reason`` or ``error`` is not a regular expression.
        InvalidArgument: ``reason``, ``error`` or ``subscription`` is not a text.
    """

    reason: str = ""  #: regular expression to search in the reason (max-deliveries, rejected)
    error: str = ""  #: regular expression to search in the handler's error
    since_ms: int | None = None  #: messages produced at or after this time, in ms since 1970
    until_ms: int | None = None  #: messages produced before this time, in ms since 1970
    template: str | None = None  #: template of the error, as in :class:`DeadLetterGroup`; empty: no error
    subscription: str = ALL_SUBSCRIPTIONS  #: subscription that gave the messages up; ``"*"``: all
    at: frozenset[tuple[int, int]] | None = None  #: partitions and offsets of the dead letters

    def __post_init__(self) -> None:
        for option, pattern in (("reason", self.reason), ("error", self.error)):
            check_is_text(option, pattern)
            try:
                re.compile(pattern)
            except re.error as why:
                raise InvalidOption(
                    option,
                    pattern,
                    f"it is not a regular expression ({why})",
                    "put a backslash before a special character",
                ) from why
        check_is_text("subscription", self.subscription)

    @property
    def selects_all(self) -> bool:
        """True if the filter has no criterion."""
        return self == DeadLetterFilter()

    def takes(self, reason: str, timestamp_ms: int, *, error: str = "") -> bool:
        """True if the filter selects a dead letter with this reason, message timestamp and error.

        >>> bank = DeadLetterFilter(reason="rejected", error="^Bank", until_ms=2_000)
        >>> bank.takes("rejected", 1_999, error="BankClosed: at night"), bank.takes("rejected", 1_999)
        (True, False)
        >>> bank.takes("max-deliveries", 0, error="BankClosed"), bank.takes("rejected", 2_000, error="Bank")
        (False, False)
        """
        return (
            (self.since_ms is None or timestamp_ms >= self.since_ms)
            and (self.until_ms is None or timestamp_ms < self.until_ms)
            and re.search(self.reason, reason) is not None
            and re.search(self.error, error) is not None
        )

    def selects(self, letter: DeadLetterRecord) -> bool:
        """True if the filter selects this dead letter."""
        return (
            self.subscription in (ALL_SUBSCRIPTIONS, letter.subscription)
            and (self.at is None or (letter.partition, letter.offset) in self.at)
            and self.takes(letter.reason, letter.original_ms or 0, error=letter.error)
            and self.template in (None, letter.template)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroup:
    """Dead letters with one subscription, reason and error template."""

    subscription: str
    reason: str
    template: str  #: the error with its numbers, ids and quoted texts masked; empty: no error
    waiting: int  #: dead letters that were neither redriven nor deleted
    redriven: int
    deleted: int  #: deleted dead letters whose records are still in the log
    first_ms: int | None  #: when the first of them was written, in ms since 1970
    last_ms: int | None  #: when the last of them was written
    sample: DeadLetterRecord  #: the latest of them
    #: when they were written: start in ms since 1970, and count, of each span that has any
    over_time: tuple[tuple[int, int], ...] = ()
    span_ms: int = 0  #: width of these spans, the same for all groups of a topic

    def to_json(self, *, indent: int | None = None) -> str:
        """Returns the group as a JSON object, without the content of the sample."""
        plain = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "sample"}
        plain["sample"] = f"{self.sample.topic}/{self.sample.partition}/{self.sample.offset}"
        return json.dumps(plain | {"error": self.sample.error}, indent=indent)


def read_dead_letters(
    kafka: Mapping[str, str],
    topic: str,
    only: DeadLetterFilter | None = None,
    *,
    limit: int | None = 100,
    settled: bool = False,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
) -> tuple[DeadLetterRecord, ...]:
    """Returns the dead letters of ``topic`` that wait, in the order of partitions and offsets.

    At most ``limit`` dead letters are returned; None: all. With ``settled``, those that were redriven or
    deleted are returned too, as long as their records are in the log. A dead letter that was written twice
    because of a tracker crash is returned once. The call changes nothing.

    Example::

        from spark_cursor_source.admin import DeadLetterFilter, read_dead_letters

        kafka = {"bootstrap.servers": "broker:9092"}
        for letter in read_dead_letters(kafka, "orders-billing-DLQ", DeadLetterFilter(reason="rejected")):
            print(letter.origin_topic, letter.origin_offset, letter.error)

    Raises:
        NoDeadLetter: a record of the topic does not name the message that it came from.
        TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    found: list[DeadLetterRecord] = []
    for letter in _letters(kafka, topic, only, cursors_topic):
        if limit is not None and len(found) >= limit:
            break
        if settled or letter.state == WAITING:
            found.append(letter)
    return tuple(found)


def read_dead_letter(
    kafka: Mapping[str, str],
    topic: str,
    partition: int,
    offset: int,
    *,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
) -> DeadLetterRecord | None:
    """Returns the dead letter at an offset of ``topic`` with its content and state; None: there is none.

    Raises:
        NoDeadLetter: the record does not name the message that it came from.
        TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    with closing(LetterLog(kafka, topic, cursors_topic)) as letters:
        letters.load(letters.describe())
        return letters.at(partition, offset)


def group_dead_letters(
    kafka: Mapping[str, str],
    topic: str,
    only: DeadLetterFilter | None = None,
    *,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
) -> tuple[DeadLetterGroup, ...]:
    """Returns the dead letters of ``topic`` by subscription, reason and error template, most waiting first.

    The call reads the whole topic once and changes nothing.

    Example::

        from spark_cursor_source.admin import group_dead_letters

        for group in group_dead_letters({"bootstrap.servers": "broker:9092"}, "orders-billing-DLQ"):
            print(group.waiting, group.reason, group.template)

    Raises:
        NoDeadLetter, TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    counts: dict[tuple[str, str, str], Counter[str]] = {}
    times: dict[tuple[str, str, str], list[int]] = {}
    samples: dict[tuple[str, str, str], DeadLetterRecord] = {}
    over_time = TimeCounts[tuple[str, str, str]]()
    for letter in _letters(kafka, topic, only, cursors_topic):
        key = (letter.subscription, letter.reason, letter.template)
        counts.setdefault(key, Counter())[letter.state] += 1
        at_ms = letter.written_ms or 0
        if letter.written_ms is not None:
            over_time.add(key, at_ms)
        known = times.setdefault(key, [at_ms, at_ms])
        known[:] = min(known[0], at_ms), max(known[1], at_ms)
        if at_ms >= known[1]:
            samples[key] = letter
    groups = [
        DeadLetterGroup(
            subscription=key[0],
            reason=key[1],
            template=key[2],
            waiting=count[WAITING],
            redriven=count[REDRIVEN],
            deleted=count.total() - count[WAITING] - count[REDRIVEN],
            first_ms=times[key][0] or None,
            last_ms=times[key][1] or None,
            sample=samples[key],
            over_time=over_time.of(key),
            span_ms=over_time.width_ms,
        )
        for key, count in counts.items()
    ]
    return tuple(sorted(groups, key=lambda one: (-one.waiting, one.subscription, one.reason, one.template)))


def letter_to_json(
    letter: DeadLetterRecord,
    *,
    payload: bool = False,
    mask: PayloadMask = NO_MASK,
    decoder: PayloadDecoder | None = None,
) -> dict[str, Any]:
    """Returns the fields of a dead letter as plain values for JSON.

    With ``payload``, key, value and headers are added as text, without what ``mask`` hides; bytes that are
    not UTF-8 are replaced. With a ``decoder``, the value is decoded, and ``value_note`` tells the format.
    """
    content = ("key", "value", "headers")
    plain = {one.name: getattr(letter, one.name) for one in fields(letter) if one.name not in content}
    plain["template"] = letter.template
    if payload:
        value, note = (letter.value, None) if decoder is None else decoder.value(letter.value)
        plain |= {"key": _text(mask.key(letter.key)), "value": _text(mask.value(value))}
        if note is not None:
            plain["value_note"] = note
        plain["headers"] = [[name, _text(value)] for name, value in mask.headers(letter.headers)]
    return plain


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _letters(
    kafka: Mapping[str, str], topic: str, only: DeadLetterFilter | None, cursors_topic: str
) -> Iterator[DeadLetterRecord]:
    only = only or DeadLetterFilter()
    with closing(LetterLog(kafka, topic, cursors_topic)) as letters:
        letters.load(letters.describe())
        copies: set[int] = set()
        for _, some in letters.walk():
            for letter in some:
                if letter.id not in copies and only.selects(letter):
                    copies.add(letter.id)
                    yield letter
