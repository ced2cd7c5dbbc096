"""Cell: one subscription's view of one topic-partition, and the unit of all stored state."""

from __future__ import annotations

import zlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Cell:
    """One (subscription, topic, partition).

    The text form is the Kafka record key of all records of the cell, as in Liftbridge's cursors stream.

    >>> cell = Cell(subscription="billing", topic="orders", partition=3)
    >>> cell.key
    b'billing,orders,3'
    >>> Cell.from_key(cell.key) == cell
    True
    """

    subscription: str
    topic: str
    partition: int

    @property
    def topic_partition(self) -> tuple[str, int]:
        """Topic and partition of the messages."""
        return self.topic, self.partition

    @property
    def key(self) -> bytes:
        """Record key: ``<subscription>,<topic>,<partition>`` in UTF-8."""
        return f"{self.subscription},{self.topic},{self.partition}".encode()

    @classmethod
    def from_key(cls, key: bytes) -> Cell:
        """Returns the cell of a record key.

        Raises:
            ValueError: the key is not UTF-8, or not three parts with a partition number at the end.
        """
        subscription, topic, partition = key.decode().rsplit(",", 2)
        if not partition.isascii() or not partition.isdigit() or not topic:
            raise ValueError(f"{key!r} does not end in ',<topic>,<partition>'")
        return cls(subscription=subscription, topic=topic, partition=int(partition))

    def control_partition(self, partitions: int) -> int:
        """Returns the partition of a control topic that holds this cell: CRC32-IEEE(key) mod ``partitions``.

        >>> Cell(subscription="billing", topic="orders", partition=3).control_partition(8)
        7
        """
        return control_partition(self.key, partitions)

    def __str__(self) -> str:
        return f"{self.subscription},{self.topic},{self.partition}"


def control_partition(key: bytes, partitions: int) -> int:
    """Returns CRC32-IEEE(key) mod ``partitions``, as Liftbridge does for its cursors stream."""
    return zlib.crc32(key) % partitions
