"""Strict option parsing: keys must be known, values are checked, and each error names the next step.

Spark lower-cases option keys. All keys are therefore compared in lower case, and errors show the documented
spelling.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import TypeVar

from spark_cursor_source.errors import (
    ConflictingOptions,
    InvalidOption,
    MissingOption,
    UnknownOption,
)
from spark_cursor_source.options.kafka import CONFIG_FILE, KafkaOptions
from spark_cursor_source.options.kinds import Kind, as_text, items_of, put_once

KAFKA = "kafka."
_FINDABLE = ("kafka.bootstrap.servers", "kafka." + CONFIG_FILE)

ValueT = TypeVar("ValueT")
DefaultT = TypeVar("DefaultT")


class OptionReader:
    """Reader of the given options by their documented names.

    >>> reader = OptionReader({"SUBSCRIBE": "orders", "kafka.client.id": "me"}, known=("subscribe", "view"))
    >>> reader.text("subscribe"), reader.text("view"), reader.kafka
    ('orders', None, KafkaOptions(client.id))
    >>> OptionReader({"subscirbe": "orders"}, known=("subscribe",))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    spark_cursor_source.errors.options.UnknownOption: There is no option 'subscirbe'. Did you mean ...
    """

    def __init__(
        self,
        options: Mapping[str, object],
        *,
        known: Collection[str],
        elsewhere: Mapping[str, str] | None = None,
    ) -> None:
        """``known``: the documented keys.

        ``elsewhere``: lower-cased keys of other operations, with a hint each.
        """
        canonical = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        kafka: dict[str, str] = {}
        for option, value in items_of("options", options):
            key = option.lower()
            if key == "path":
                refuse_path(value)
            elif key.startswith(KAFKA) and key != KAFKA:
                put_once(kafka, key.removeprefix(KAFKA), option, as_text(option, value, secret=True))
            elif key in canonical:
                put_once(self._values, key, option, as_text(canonical[key], value))
            else:
                raise unknown_option(option, canonical.values(), elsewhere or {})
        self.kafka = KafkaOptions(kafka)

    def given(self, option: str) -> bool:
        """True if the option is given. An empty value counts as given."""
        return option.lower() in self._values

    def text(self, option: str) -> str | None:
        """Return the raw text, or None if the option is absent. An empty text is refused."""
        value = self._values.get(option.lower())
        if value is not None and not value.strip():
            raise InvalidOption(option, value, "it is empty", "give a value, or leave the option out")
        return value

    def value(self, option: str, kind: Kind[ValueT], *, default: DefaultT) -> ValueT | DefaultT:
        """Return the checked value, or the default if the option is absent."""
        value = self.text(option)
        return default if value is None else kind(option, value)

    def brokers(self) -> KafkaOptions:
        """Return the ``kafka.*`` options, after a check that they name the brokers or a properties file."""
        check_brokers(self.kafka)
        return self.kafka


def refuse_path(value: object) -> None:
    if value is not None:
        raise InvalidOption(
            "path",
            value,
            "a queue has no path",
            "call load() or save() without one and name topics in subscribe",
        )


def unknown_option(option: str, known: Collection[str], elsewhere: Mapping[str, str]) -> UnknownOption:
    """Return the error for an unknown key, with the nearest known key."""
    if option.lower() in elsewhere:
        return UnknownOption(option, None, elsewhere[option.lower()])
    names = {name.lower(): name for name in (*known, *_FINDABLE)}
    nearest = difflib.get_close_matches(option.lower(), names, n=1)
    return UnknownOption(option, names[nearest[0]] if nearest else None)


def check_brokers(kafka: KafkaOptions) -> None:
    for name in ("bootstrap.servers", "metadata.broker.list", CONFIG_FILE):
        if name in kafka and not kafka[name].strip():
            raise InvalidOption(KAFKA + name, kafka[name], "it is empty", "give a value")
    if not {"bootstrap.servers", "metadata.broker.list", CONFIG_FILE} & set(kafka):
        raise MissingOption(
            "kafka.bootstrap.servers", "give it as host:port,host:port, or name a file in kafka.config.file"
        )


def check_distinct(topics: Mapping[str, str]) -> None:
    """Check that no two options name the same topic. Control topics hold different kinds of records."""
    by_topic: dict[str, str] = {}
    for option, topic in topics.items():
        if topic in by_topic:
            raise ConflictingOptions(
                (by_topic[topic], option), f"both name the topic '{topic}'", "give each a topic of its own"
            )
        by_topic[topic] = option
