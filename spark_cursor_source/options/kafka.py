"""The ``kafka.*`` options as one value that can be passed, pickled and logged without exposing a secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spark_cursor_source.options.kinds import as_text, items_of, put_once

#: name, without the prefix ``kafka.``, of the properties file that is read when a client is opened
CONFIG_FILE = "config.file"


class KafkaOptions(Mapping[str, str]):
    """Kafka client options without their prefix. Immutable and hashable. Its repr shows only the keys.

    >>> kafka = KafkaOptions({"bootstrap.servers": "b:9092", "sasl.password": "hunter2"})
    >>> kafka["sasl.password"]
    'hunter2'
    >>> kafka
    KafkaOptions(bootstrap.servers, sasl.password)
    """

    __slots__ = ("_items", "_lookup")
    _items: tuple[tuple[str, str], ...]
    _lookup: dict[str, str]

    def __init__(self, options: Mapping[str, object]) -> None:
        """Other values than texts are converted as Spark converts them. An option with None is left out.

        Raises:
            InvalidArgument: ``options`` is not a mapping with texts as keys.
            InvalidOption: a value is not a text, a number or a boolean.
            ConflictingOptions: two keys differ in upper and lower case only, and have different values.
        """
        texts: dict[str, str] = {}
        for name, value in items_of("kafka", options):
            key = name.lower()
            put_once(texts, key, f"kafka.{key}", as_text(f"kafka.{name}", value, secret=True))
        items = tuple(sorted(texts.items()))
        object.__setattr__(self, "_items", items)
        object.__setattr__(self, "_lookup", dict(items))

    def __getitem__(self, name: str) -> str:
        return self._lookup[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lookup)

    def __len__(self) -> int:
        return len(self._lookup)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, KafkaOptions):
            return self._items == other._items
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._items)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("KafkaOptions cannot be changed")

    def __reduce__(self) -> tuple[Any, ...]:
        return (KafkaOptions, (dict(self._items),))

    def __repr__(self) -> str:
        return f"KafkaOptions({', '.join(self._lookup)})"
