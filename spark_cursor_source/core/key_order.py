"""Order of the messages of a key: a message is delivered when all earlier ones of its key have ended.

A planner knows which messages of a cell have not ended (:class:`UnfinishedMessages`). The task that reads a
batch gets the keys of those outside the batch (:class:`BlockedKeys`) and holds back later messages of these
keys (:class:`KeyGate`). Keys are compared by a hash of 8 bytes. Two keys with the same hash count as one, so
that a message may wait in vain, but never overtakes another one.

The behaviour follows FIFO queues of SQS, with the record key as message group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import (
    Block,
    End,
    EndLeased,
    EndUpTo,
    Leave,
    Marker,
    Reject,
    Release,
    Requeue,
    Start,
    is_of_another_topic,
)
from spark_cursor_source.core.offsets import EMPTY, OFFSET_LIMIT, OffsetSet


def key_hash(key: bytes | None) -> int:
    """Returns the hash of a key. Messages without a key count as one key.

    >>> key_hash(b"customer 7") == key_hash(b"customer 8"), key_hash(None) == key_hash(b"")
    (False, True)
    """
    return int.from_bytes(blake2b(key or b"", digest_size=8).digest(), "little")


class UnfinishedMessages:
    """Messages of a cell that may not have ended, as the planner of its owner knows them.

    It begins with the tracker's answer to the owner's Hello, and takes in the markers since. It has all
    messages that have not ended. It may have others for a while: a marker that the tracker may ignore, such
    as a late one of an earlier delivery, ends nothing here until a cursor shows that it did.
    """

    def __init__(self, answer: CursorSnapshot) -> None:
        self.offsets = answer.outstanding
        self.blocked = answer.blocked.offsets  #: those that wait behind another one
        self.next_marker = answer.next_marker  #: the first marker that is not taken in
        self._read_position = answer.read_position
        self._owner, self._topic_id = answer.owner, answer.topic_id
        self._given_back = EMPTY  # released, left, blocked or rejected since their last Start

    def apply(self, marker: Marker, *, marker_offset: int) -> None:
        """Takes in a marker of the cell, in log order. Skips one that is included."""
        if marker_offset < self.next_marker:
            return
        self.next_marker = marker_offset + 1
        if is_of_another_topic(marker, self._topic_id):
            return
        match marker:
            case Start(offsets=offsets):
                self.offsets |= offsets.starting_at(self._read_position)  # a Start revives nothing
                if offsets.last is not None:
                    self._read_position = max(self._read_position, offsets.last + 1)
                self._given_back -= offsets
                self.blocked -= offsets
            case End(offsets=offsets):
                self._end(offsets)
            case EndLeased(offsets=offsets, run_id=run_id) if run_id == self._owner:
                self._end(offsets - self._given_back)
            case EndUpTo(position=position):
                self._end(OffsetSet.of((self.offsets.first or 0, position)))
                self._read_position = max(self._read_position, position)
            case Block(offsets=offsets):
                self._given_back |= offsets & self.offsets
                self.blocked |= offsets & self.offsets
            case Release(offsets=offsets) | Leave(offsets=offsets) | Reject(offsets=offsets):
                self._given_back |= offsets & self.offsets
            case Requeue(offsets=offsets):
                self.offsets |= offsets

    def see(self, cursor: CursorSnapshot) -> None:
        """Forgets what has ended by a cursor of the cell with the same owner."""
        beyond = self.offsets.starting_at(cursor.read_position)
        self.offsets = (self.offsets & cursor.outstanding) | beyond
        self._given_back &= self.offsets
        is_newer = cursor.next_marker >= self.next_marker
        self.blocked = cursor.blocked.offsets if is_newer else self.blocked & self.offsets

    def _end(self, offsets: OffsetSet) -> None:
        self.offsets -= offsets
        self.blocked -= offsets
        self._given_back -= offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedKeys:
    """Unfinished messages of a cell outside a batch: the hash of the key and the offset of each.

    ``waits`` is True for messages that wait behind another one themselves.
    """

    hashes: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()  #: ascending
    waits: tuple[bool, ...] = ()

    @classmethod
    def of(cls, hashes: Mapping[int, int], waiting: OffsetSet) -> BlockedKeys:
        """Returns the keys of messages, by offset. Leaves out those that block nothing on their own.

        These are the ``waiting`` ones after a message of their key that does not wait.
        """
        first: dict[int, int] = {}
        for offset in sorted(hashes):
            if offset not in waiting:
                first.setdefault(hashes[offset], offset)
        some = [one for one in sorted(hashes) if one not in waiting or one < first.get(hashes[one], one + 1)]
        return cls(
            hashes=tuple(hashes[one] for one in some),
            offsets=tuple(some),
            waits=tuple(one in waiting for one in some),
        )


NO_KEYS = BlockedKeys()


class KeyGate:
    """Holds back the messages of a task that must wait for an earlier message of their key.

    A message waits for the last earlier one that does not wait itself. So all that wait for one message come
    back together when it has ended.

    >>> gate = KeyGate(BlockedKeys(hashes=(key_hash(b"a"),), offsets=(3,), waits=(False,)))
    >>> [gate.blocker(offset, key_hash(key)) for offset, key in ((2, b"a"), (5, b"b"), (6, b"a"))]
    [None, None, 3]
    >>> gate.hold(7, key_hash(b"b"))
    >>> gate.blocker(8, key_hash(b"b"))
    7
    """

    def __init__(self, blocked: BlockedKeys = NO_KEYS) -> None:
        self._by_hash: dict[int, list[tuple[bool, int]]] = {}
        for hashed, offset, waits in zip(blocked.hashes, blocked.offsets, blocked.waits, strict=True):
            self._by_hash.setdefault(hashed, []).append((not waits, offset))

    def __bool__(self) -> bool:
        """True if a message may have to wait."""
        return bool(self._by_hash)

    def hashes(self) -> Iterable[int]:
        """Returns the hashes of the keys whose messages may have to wait."""
        return self._by_hash.keys()

    def hold(self, offset: int, hashed: int) -> None:
        """Makes later messages of this key wait for the message at ``offset``."""
        self._by_hash.setdefault(hashed, []).append((True, offset))

    def blocker(self, offset: int, hashed: int) -> int | None:
        """Returns the offset that a message waits for; None: it is delivered."""
        earlier = [one for one in self._by_hash.get(hashed, ()) if one[1] < offset]
        return max(earlier)[1] if earlier else None


def unfinished_outside(unfinished: UnfinishedMessages, batch: OffsetSet) -> OffsetSet:
    """Returns the unfinished messages that are not in a batch and may block messages of it."""
    last = batch.last
    return EMPTY if last is None else (unfinished.offsets - batch).below(min(last, OFFSET_LIMIT))
