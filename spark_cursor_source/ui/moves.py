"""Seek, skip, expire and undo on the page: a question, the effect by partition, and the action."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import TypeVar

from spark_cursor_source.admin.instants import instant_ms, offsets_by_partition
from spark_cursor_source.admin.subscriptions import (
    EARLIEST,
    LATEST,
    Position,
    Subscriptions,
    at_offsets,
    at_time,
)
from spark_cursor_source.core.counted import counted
from spark_cursor_source.core.duration import parse_duration
from spark_cursor_source.core.marker import UNDO
from spark_cursor_source.core.move_preview import effect_of
from spark_cursor_source.errors import InvalidArgument
from spark_cursor_source.ui.plans import Choice, Fields, Plan, Question
from spark_cursor_source.ui.settings import UiSettings
from spark_cursor_source.wire.instant_text import instant_text

_T = TypeVar("_T")
_INSTANT = "2026-11-21T08:00:00Z"  # an example
_ASKED = {
    "seek": "Reading goes on from a position, back or forward. Outstanding messages are forgotten.",
    "skip": "Messages end from the oldest on, whether they are outstanding or unread. They count as acked.",
    "expire": "Messages that are older than a time end. They count as acked, and no dead letter is written. "
    "An age counts from the last marker.",
}
_CHOICES = {
    "seek": (
        Choice(value="earliest", label="the first message that is left"),
        Choice(value="latest", label="the end of the log"),
        Choice(value="time", label="the first message from a time on", field="time", example=_INSTANT),
        Choice(
            value="offsets", label="an offset of each named partition", field="offsets", example="0=17,1=40"
        ),
    ),
    "skip": (
        Choice(value="count", label="the next messages of each partition", field="messages", example="100"),
        Choice(value="all", label="every message that can be read now"),
    ),
    "expire": (
        Choice(value="age", label="messages older than", field="age", example="2d"),
        Choice(value="before", label="messages from before a time", field="before", example=_INSTANT),
    ),
}


class Moves:
    """Actions that move a subscription. A plan is made by the same code as the preview of the command line.

    Raises:
        KeyError: a field is missing.
        CursorqError: the errors of ``Subscriptions``.
    """

    def __init__(self, settings: UiSettings, author: str) -> None:
        self._settings, self._author = settings, author

    def seek(self, given: Fields) -> Plan | Question:
        """Returns the effect of a seek, or asks for the position."""
        if "how" not in given:
            return _question("seek", given, f"Seek {given['name']} on {given['topic']}")
        to, words = _position(given)
        with opened(self._settings, self._author) as subscriptions:
            preview = subscriptions.preview_seek(given["name"], given["topic"], to)
        return Plan(
            title=f"Seek {given['name']} on {given['topic']} to {words}",
            told=f"{effect_of(preview)}. Outstanding messages are forgotten, acked messages from there on "
            "come again. Running consumers follow. Undo returns to the present state.",
            button="Seek",
            fields=kept(given, "how", "time", "offsets"),
            moves=preview,
        )

    def skip(self, given: Fields) -> Plan | Question:
        """Returns the effect of a skip, or asks for the number of messages."""
        if "how" not in given:
            return _question("skip", given, f"Skip messages of {given['name']} on {given['topic']}")
        messages, partition = _messages(given), _partition(given)
        with opened(self._settings, self._author) as subscriptions:
            preview = subscriptions.preview_skip(given["name"], given["topic"], messages, partition=partition)
        positions = ",".join(f"{one.partition}={one.position}" for one in preview)
        which = "all messages" if messages is None else f"the next {counted(messages, 'message')}"
        return Plan(
            title=f"Skip {which} of {given['name']} on {given['topic']}",
            told=f"{effect_of(preview)}. They count as acked. Undo brings them back.",
            button="Skip",
            # The form has the positions themselves: a number would count from others when it is sent.
            fields=kept(given) | {"positions": positions},
            moves=preview,
        )

    def expire(self, given: Fields) -> Plan | Question:
        """Returns the effect of an expiry, or asks for the time."""
        if "how" not in given:
            return _question("expire", given, f"Expire messages of {given['name']} on {given['topic']}")
        with opened(self._settings, self._author) as subscriptions:
            before_ms = _before_ms(given, subscriptions)
            preview = subscriptions.preview_expire(
                given["name"], given["topic"], before_ms=before_ms, partition=_partition(given)
            )
        before = instant_text(before_ms)
        return Plan(
            title=f"Expire messages of {given['name']} on {given['topic']} from before {before}",
            told=f"{effect_of(preview)}. They count as acked. Undo brings them back.",
            button="Expire",
            # The form has the time itself: an age would count from another marker when it is sent.
            fields=kept(given, "partition") | {"how": "before", "before": before},
            moves=preview,
        )

    def undo(self, given: Fields) -> Plan:
        """Returns the effect of an undo of the last move."""
        name, topic = given["name"], given["topic"]
        with opened(self._settings, self._author) as subscriptions:
            preview = subscriptions.preview_restore(name, topic, UNDO)
        return Plan(
            title=f"Undo the last move of {name} on {topic}",
            told=f"{effect_of(preview)}. The subscription returns to the state before its last seek, skip, "
            "expiry or restore. Acks that were made since then are forgotten. A second undo takes this one "
            "back.",
            button="Undo",
            fields=kept(given),
            moves=preview,
        )

    def do_seek(self, given: Fields) -> str:
        """Does a seek, and returns its result in words."""
        to, _ = _position(given)
        with opened(self._settings, self._author) as subscriptions:
            positions = subscriptions.seek(given["name"], given["topic"], to)
        return f"{given['name']} goes on at {places(positions)}."

    def do_skip(self, given: Fields) -> str:
        """Does a skip, and returns its result in words."""
        name, wanted = given["name"], _parsed("positions", given, offsets_by_partition)
        with opened(self._settings, self._author) as subscriptions:
            positions = subscriptions.skip_to(name, given["topic"], wanted)
        return f"{name} has nothing left below {places(positions)}."

    def do_expire(self, given: Fields) -> str:
        """Does an expiry, and returns its result in words."""
        name = given["name"]
        with opened(self._settings, self._author) as subscriptions:
            positions = subscriptions.expire(
                name,
                given["topic"],
                before_ms=_before_ms(given, subscriptions),
                partition=_partition(given),
            )
        if not positions:
            return f"{name} has no older message."
        return f"{name} has nothing left below {places(positions)}."

    def do_undo(self, given: Fields) -> str:
        """Undoes the last move, and returns its result in words."""
        with opened(self._settings, self._author) as subscriptions:
            positions = subscriptions.undo(given["name"], given["topic"])
        return f"{given['name']} goes on at {places(positions)}."


def opened(settings: UiSettings, author: str) -> Subscriptions:
    """Returns the admin client of the subscriptions of a page."""
    return Subscriptions(
        settings.kafka, group_id_prefix=settings.group_id_prefix, author=author, **settings.tracker_topics
    )


def _question(name: str, given: Fields, title: str) -> Question:
    return Question(
        title=title,
        told=_ASKED[name],
        fields=kept(given),
        choices=_CHOICES[name],
        partition=name != "seek",
    )


def kept(given: Fields, *names: str) -> dict[str, str]:
    """Returns the fields that name a subscription, and those of these names that are not blank."""
    return {name: given[name] for name in ("topic", "name", *names) if given.get(name, "").strip()}


def _position(given: Fields) -> tuple[Position, str]:
    """Returns the position of a seek, and the position in words."""
    match given["how"]:
        case "earliest":
            return EARLIEST, "the first message that is left"
        case "latest":
            return LATEST, "the end of the log"
        case "time":
            at_ms = _parsed("time", given, instant_ms)
            return at_time(at_ms), instant_text(at_ms)
        case "offsets":
            offsets = _parsed("offsets", given, offsets_by_partition)
            return at_offsets(given["topic"], offsets), given["offsets"]
    raise KeyError("how")


def _before_ms(given: Fields, subscriptions: Subscriptions) -> int:
    if given["how"] == "before":
        return _parsed("before", given, instant_ms)
    age_ms = parse_duration(given.get("age", "").strip())
    latest_ms = subscriptions.latest_marker_ms()
    if latest_ms is None:
        raise InvalidArgument("age", given["age"], "there is no marker that tells the time; give a time")
    return latest_ms - age_ms


def _messages(given: Fields) -> int | None:
    return None if given["how"] == "all" else _number("messages", given)


def _partition(given: Fields) -> int | None:
    if not given.get("partition", "").strip():
        return None
    if given["how"] == "all":
        raise InvalidArgument("partition", given["partition"], "all messages of all partitions are skipped")
    return _number("partition", given)


def _number(name: str, given: Fields) -> int:
    text = given.get(name, "").strip()
    if not text.isdecimal() or len(text) > 18:
        raise InvalidArgument(name, text, "it is not a whole number")
    return int(text)


def _parsed(name: str, given: Fields, parse: Callable[[str], _T]) -> _T:
    text = given.get(name, "").strip()
    try:
        return parse(text)
    except ArgumentTypeError as why:
        raise InvalidArgument(name, text, str(why)) from None


def places(positions: dict[int, int]) -> str:
    """Returns positions by partition in words.

    >>> places({1: 4_000, 0: 2})
    'offset 2 of partition 0, offset 4,000 of partition 1'
    """
    found = [f"offset {at:,} of partition {number}" for number, at in sorted(positions.items())]
    shown = ", ".join(found[:8])
    return shown + (f" and {len(found) - 8} more" if len(found) > 8 else "")
