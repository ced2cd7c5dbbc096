"""Order of the messages of each key in a task of ``AckSink.per_row`` (option ordering=key)."""

from __future__ import annotations

from collections.abc import Iterable

from spark_cursor_source.errors import KeyOrderLost
from spark_cursor_source.spark.per_row import Rows

_Key = tuple[str, int, bytes | None]


class KeysInOrder:
    """Decides which messages wait for an earlier one of their key. Not thread-safe."""

    def __init__(self) -> None:
        self._seen: dict[_Key, int] = {}  # the last offset of each key
        self._held: dict[_Key, int] = {}  # the offset that later ones of the key wait for

    def arrives(self, rows: Rows, index: int) -> None:
        """Checks that the rows of a key arrive in the order of their offsets.

        Raises:
            KeyOrderLost: the row comes after a later one of its key.
        """
        key, offset = _key(rows, index), rows.of("offset")[index]
        if offset < self._seen.get(key, 0):
            raise KeyOrderLost(key[0], key[1], offset, self._seen[key])
        self._seen[key] = offset

    def blocks(self, rows: Rows, index: int) -> bool:
        """True if a row must wait. Its outcome is recorded then."""
        key, offset = _key(rows, index), rows.of("offset")[index]
        behind = self._held.get(key)
        if behind is None or behind >= offset:
            return False
        rows.block(index, behind)
        return True

    def ended(self, rows: Rows, index: int) -> None:
        """Records the outcome of a row that was handled."""
        if not rows.has_ended(index):
            self.hold_back(rows, [index])

    def hold_back(self, rows: Rows, indexes: Iterable[int]) -> None:
        """Makes later messages of the keys of these rows wait for them."""
        for index in indexes:
            key, offset = _key(rows, index), rows.of("offset")[index]
            self._held[key] = min(offset, self._held.get(key, offset))


def _key(rows: Rows, index: int) -> _Key:
    return rows.of("topic")[index], rows.of("partition")[index], rows.of("key")[index]
