"""The ``kafka.*`` options as one value that can be passed, pickled and logged without exposing a secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

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

    def __init__(self, options: Mapping[str, str]) -> None:
        items = tuple(sorted((name.lower(), value) for name, value in options.items()))
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
