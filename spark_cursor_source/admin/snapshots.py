"""Snapshots of subscriptions: what they hold, and what a restore changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot, SavedState
from spark_cursor_source.core.marker import UNDO
from spark_cursor_source.core.tracker import MAX_SAVED
from spark_cursor_source.errors import InvalidArgument, TooManySnapshots, UnknownSnapshot
from spark_cursor_source.wire.marker import MAX_STATE_NAME

_K = TypeVar("_K")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Snapshot of one subscription of one topic."""

    name: str  #: ``undo`` is the state before the last seek, skip, expiry or restore
    subscription: str
    topic: str
    at_ms: int  #: broker time of its first partition
    positions: Mapping[int, int]  #: read position of each partition
    outstanding: int  #: messages that were delivered and not acked


def why_no_snapshot_name(name: str) -> str | None:
    """Returns why a text cannot be the name of a snapshot, or None if it can.

    >>> [why_no_snapshot_name(name) for name in ("before release 7", "undo", "")]
    [None, 'it is the name of the state before the last move', 'it is empty']
    """
    if not name:
        return "it is empty"
    if name == UNDO:
        return "it is the name of the state before the last move"
    if len(name) > MAX_STATE_NAME:
        return f"it has more than {MAX_STATE_NAME} characters"
    return None if name.isprintable() else "it has characters that cannot be printed"


def check_snapshot_name(name: str) -> None:
    """Checks the name of a new snapshot.

    Raises:
        InvalidArgument: a snapshot cannot have this name.
    """
    if (why := why_no_snapshot_name(name)) is not None:
        raise InvalidArgument("name", name, why)


def snapshots_of(cursors: Iterable[CursorSnapshot]) -> tuple[Snapshot, ...]:
    """Returns the snapshots of these cursors, by subscription, topic and time."""
    parts: dict[tuple[str, str, str], dict[int, SavedState]] = {}
    for cursor in cursors:
        cell = cursor.cell
        for saved in cursor.saved:
            parts.setdefault((cell.subscription, cell.topic, saved.name), {})[cell.partition] = saved
    parts = {key: _of_one_move(states) for key, states in parts.items()}
    found = [
        Snapshot(
            name=name,
            subscription=subscription,
            topic=topic,
            at_ms=min(saved.at_ms for saved in states.values()),
            positions={number: saved.read_position for number, saved in sorted(states.items())},
            outstanding=sum(len(saved.offsets) for saved in states.values()),
        )
        for (subscription, topic, name), states in parts.items()
    ]
    return tuple(sorted(found, key=lambda one: (one.subscription, one.topic, one.at_ms, one.name)))


def check_room(cursors: Mapping[Cell, CursorSnapshot], name: str) -> None:
    """Checks that each of these cells can have a snapshot of this name.

    Raises:
        TooManySnapshots: a cell has as many as it can have.
    """
    for cell, cursor in cursors.items():
        others = {saved.name for saved in cursor.saved} - {UNDO, name}
        if len(others) >= MAX_SAVED:
            raise TooManySnapshots(cell.subscription, cell.topic, tuple(sorted(others)))


def saved_states(
    cursors: Mapping[Cell, CursorSnapshot], subscription: str, topic: str, name: str
) -> dict[Cell, SavedState]:
    """Returns the states of a snapshot, by cell.

    Raises:
        UnknownSnapshot: no cell has a snapshot of this name.
    """
    found = {cell: saved for cell, cursor in cursors.items() for saved in cursor.saved if saved.name == name}
    if not found:
        known = {saved.name for cursor in cursors.values() for saved in cursor.saved}
        raise UnknownSnapshot(subscription, topic, name, tuple(sorted(known)))
    return _of_one_move(found)


def _of_one_move(states: Mapping[_K, SavedState]) -> dict[_K, SavedState]:
    """Returns the states before the latest of their moves.

    A move replaces ``UNDO`` only in the cells that it changes. The others may have that of an earlier move.
    """
    latest = max(states.values(), key=lambda one: one.at_ms)
    return {key: one for key, one in states.items() if one.move == latest.move}
