"""Limits of a subscription on the page: asked for, confirmed, and set."""

from __future__ import annotations

from spark_cursor_source.admin.limits import check_limits, limit_subscription, outstanding_of, rate_of
from spark_cursor_source.admin.outstanding import read_cursors
from spark_cursor_source.core.limits import NO_LIMITS, Limits, strictest
from spark_cursor_source.ui.moves import kept
from spark_cursor_source.ui.plans import Fields, Plan, Question, TextField
from spark_cursor_source.ui.settings import UiSettings


class LimitActions:
    """The action that sets the limits of a subscription, on all its topics.

    Raises:
        KeyError: a field is missing.
        CursorqError: the errors of ``limit_subscription``.
    """

    def __init__(self, settings: UiSettings, author: str) -> None:
        self._settings, self._author = settings, author

    def limit(self, given: Fields) -> Plan | Question:
        """Returns what the limits would mean, or asks for them."""
        name = given["name"]
        if "rate" not in given or "max_outstanding" not in given:
            return self._question(given)
        limits = _limits_of(given)
        check_limits(limits)
        is_limited = limits != NO_LIMITS
        told = "On all its topics. Its consumers follow within two seconds."
        if is_limited:
            told += (
                " Consumers that share it divide the limits by the number of their partitions. What they "
                "hold now is finished and acked as usual."
            )
        return Plan(
            title=f"Limit {name} to {limits.words()}" if is_limited else f"Remove the limits of {name}",
            told=told,
            button="Set the limits" if is_limited else "Remove the limits",
            fields=kept(given) | {name: given[name] for name in ("rate", "max_outstanding")},
        )

    def do_limit(self, given: Fields) -> str:
        """Sets the limits, and returns the result in words."""
        one, limits = self._settings, _limits_of(given)
        limit_subscription(
            one.kafka,
            given["name"],
            rate=limits.rate,
            max_outstanding=limits.max_outstanding,
            author=self._author,
            **one.tracker_topics,
        )
        return f"{limits.told_of(given['name'])}."

    def _question(self, given: Fields) -> Question:
        one, name = self._settings, given["name"]
        cursors = read_cursors(one.kafka, one.cursors_topic, topic=None, subscription=name)
        present = strictest(cursor.limits for cursor in cursors.values())
        rate = "" if present.rate is None else f"{present.rate:.12g}"
        most = "" if present.max_outstanding is None else str(present.max_outstanding)
        return Question(
            title=f"Limit {name} on all its topics",
            told="The rate counts messages that its consumers receive, redeliveries included. At the limit "
            "of outstanding messages they receive no new message. An empty field is no limit.",
            fields=kept(given),
            texts=(
                TextField(
                    name="rate", label="Messages per second", example="no limit", value=rate, required=False
                ),
                TextField(
                    name="max_outstanding",
                    label="Outstanding messages",
                    example="no limit",
                    value=most,
                    required=False,
                ),
            ),
        )


def _limits_of(given: Fields) -> Limits:
    return Limits(rate=rate_of(given["rate"]), max_outstanding=outstanding_of(given["max_outstanding"]))
