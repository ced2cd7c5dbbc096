"""Gate of a task for messages that wait behind an earlier message of their key (option ordering=key)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from spark_cursor_source.core.key_order import BlockedKeys, KeyGate, key_hash
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.topics.chunks import Chunk

ChunkT = TypeVar("ChunkT", bound=Chunk)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderFilter:
    """Holds back messages that must wait, and reports them to ``on_blocked``."""

    blocked: BlockedKeys  #: messages outside the batch that have not ended
    #: called once for each slice with messages that wait: the slice, their offsets, and what each waits for
    on_blocked: Callable[[Slice, OffsetSet, tuple[int, ...]], None]


class OrderedMessages:
    """Messages of one task in offset order. Later ones of a blocked key are held back."""

    def __init__(self, blocked: BlockedKeys) -> None:
        self._gate = KeyGate(blocked)
        self._hashes = np.sort(np.fromiter(self._gate.hashes(), np.uint64))
        self._behind: dict[int, int] = {}  # held back messages of the slice, and what each one waits for

    def hold(self, chunk: Chunk) -> None:
        """Makes later messages of the keys of this chunk wait: its messages are not delivered now."""
        hashes = _hashes_of(chunk)
        for offset, of_key in zip(chunk.offsets.tolist(), hashes.tolist(), strict=True):
            self._gate.hold(offset, of_key)
        self._hashes = np.union1d(self._hashes, hashes)

    def sift(self, chunk: ChunkT) -> ChunkT:
        """Return the messages that need not wait, maybe none."""
        if not self._gate:
            return chunk
        hashes = _hashes_of(chunk)
        places = np.searchsorted(self._hashes, hashes)
        places[places == len(self._hashes)] = 0
        passes = np.ones(len(chunk), np.bool_)
        for row in np.flatnonzero(self._hashes[places] == hashes).tolist():
            offset = int(chunk.offsets[row])
            behind = self._gate.blocker(offset, int(hashes[row]))
            if behind is not None:
                self._behind[offset] = behind
                passes[row] = False
        return chunk.where(passes)

    def take_blocked(self) -> tuple[OffsetSet, tuple[int, ...]]:
        """Return the messages held back since the last call, and the offset that each one waits for."""
        behind, self._behind = self._behind, {}
        return OffsetSet.from_offsets(list(behind)), tuple(behind[one] for one in sorted(behind))


def _hashes_of(chunk: Chunk) -> np.ndarray:
    return np.fromiter(map(key_hash, chunk.keys()), np.uint64, len(chunk))
