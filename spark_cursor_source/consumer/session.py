"""A run of a reader: it introduces itself to the tracker and learns what went before."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import Delete, Hello
from spark_cursor_source.errors import NoTracker, QueueTopicRecreated
from spark_cursor_source.topics.cursors import check_tracked_through

log = logging.getLogger(__name__)
POLL_S = 0.05
REPEATS = 4  #: how often a run says Hello again before it gives up


class Cursors(Protocol):
    """Where the tracker's answers are read."""

    def refresh(self) -> bool: ...

    def get(self, cell: Cell) -> CursorSnapshot | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerAddress:
    """Which tracker a run speaks with, and how long it waits for an answer."""

    markers_topic: str
    cursors_topic: str
    timeout_ms: int


class TrackerSession:
    """Says Hello for each cell and knows which of them the tracker has answered.

    The cursor that names this run holds the effect of every marker that came before its Hello. A cell that
    this run gave up and meets again is greeted under another id: the answer to the first Hello is old.
    """

    def __init__(
        self,
        run_id: str,
        tracker: TrackerAddress,
        cursors: Cursors,
        send: Callable[[Sequence[Hello | Delete]], None],
    ) -> None:
        self.run_id = run_id
        self._tracker = tracker
        self._cursors = cursors
        self._send = send
        self._ids: dict[Cell, str] = {}  # under which a cell was greeted, where it is not run_id
        self._next_ids: dict[Cell, str] = {}  # for the next greeting
        self._times = 0  # that cells were given up
        self._greeted: dict[Cell, tuple[float, Hello]] = {}  # not answered yet: since when
        self._sought: set[Cell] = set()  # given up, because of a Seek that came before the answer was heard
        self.answers: dict[Cell, CursorSnapshot] = {}
        self._read: dict[Cell, int] = {}  # the read position of an answered cell, when it was last seen
        self._left_off: dict[Cell, int] = {}  # the same of cells that were deleted since

    def greet(
        self,
        positions: Mapping[Cell, int],
        topic_ids: Mapping[str, str],
        *,
        remade: Collection[Cell] = frozenset(),
    ) -> None:
        """Say Hello for cells that this run has not met yet.

        What is known of cells that are ``remade`` is of a topic that was deleted: it is forgotten first.

        One that was deleted under this run begins where it was last seen: what was started since then, before
        the deletion or after it, nobody remembers.

        Raises:
            QueueTopicRecreated: a cursor is that of another topic of the same name.
            TrackedElsewhere: a cursor is that of another markers topic's tracker.
        """
        new = {c: at for c, at in positions.items() if c not in self._greeted and c not in self.answers}
        if not new:
            return
        now = time.monotonic()
        self._ids |= {cell: self._next_ids.pop(cell) for cell in new if cell in self._next_ids}
        hellos = [
            Hello(
                cell=cell,
                run_id=self.id_of(cell),
                position=at if cell in remade else self._left_off.get(cell, at),
                topic_id=topic_ids.get(cell.topic),
            )
            for cell, at in new.items()
        ]
        self._cursors.refresh()  # before the Hello: it makes a cell with the tracker that reads it
        for hello in hellos:
            if hello.cell not in remade:
                self._check(hello, self._cursors.get(hello.cell))
        # Of one partition, so that no marker comes in between: the tracker forgets the cell and begins anew.
        self._send([marker for hello in hellos for marker in _beginning(hello, anew=hello.cell in remade)])
        self._greeted |= {hello.cell: (now, hello) for hello in hellos}
        log.info("run_begins run=%s cells=%d", self.run_id, len(new))

    def id_of(self, cell: Cell) -> str:
        """The run id of this run's markers about a cell, and of the redeliveries that are for it."""
        return self._ids.get(cell, self.run_id)

    def give_up(self, cells: Iterable[Cell]) -> None:
        """Forget the cells; markers about what is still in progress keep their ids until the next Hello."""
        known = [cell for cell in cells if cell in self.answers or cell in self._greeted]
        if not known:
            return
        self._times += 1
        for cell in known:
            self.answers.pop(cell, None)
            self._greeted.pop(cell, None)
            self._read.pop(cell, None)
            self._next_ids[cell] = f"{self.run_id}.{self._times}"

    def wait_for(self, cells: Sequence[Cell], still_mine: Callable[[Sequence[Cell]], Sequence[Cell]]) -> None:
        """Block until the tracker has answered for each of the cells that are ``still_mine``.

        That is asked before each Hello that is repeated: a process that stood still meanwhile would take the
        cells from whoever has them since.

        Raises:
            NoTracker: it did not, in ``trackerTimeout``.
            QueueTopicRecreated: as :meth:`listen`.
        """
        timeout_s = self._tracker.timeout_ms / 1000
        again_s = timeout_s / REPEATS
        began = said = time.monotonic()
        while missing := [cell for cell in cells if cell not in self.answers]:
            self.listen()
            if not any(cell not in self.answers for cell in missing):
                return
            now = time.monotonic()
            if now - began > timeout_s:
                raise self._no_tracker(len(missing))
            if now - said > again_s:
                # A tracker that was rebuilt meanwhile may have lost the first one.
                said, cells = now, still_mine(cells)
                self._send([self._greeted[cell][1] for cell in cells if cell in self._greeted])
            time.sleep(POLL_S)

    def listen(self) -> None:
        """Take in what the tracker has answered by now.

        Raises:
            NoTracker: a cell waits longer than ``trackerTimeout``.
            QueueTopicRecreated: the tracker knows a cell of another topic of the same name.
        """
        if not self._greeted:
            return
        self._cursors.refresh()
        for cell, (_, hello) in list(self._greeted.items()):
            cursor = self._cursors.get(cell)
            if cursor is not None and cursor.owner == self.id_of(cell):
                self._check(hello, cursor)
                self.answers[cell] = cursor
                del self._greeted[cell]
                self._sought.discard(cell)
        late = time.monotonic() - self._tracker.timeout_ms / 1000
        waiting = sum(since < late for since, _ in self._greeted.values())
        if waiting:
            raise self._no_tracker(waiting)

    def taken_over(self) -> dict[Cell, str | None]:
        """The cells whose redeliveries go elsewhere by now, and to which run.

        None: to none, because the subscription was sought, or deleted, and begins anew. That may have come
        before the answer was heard: then nobody will answer any more.
        """
        self._cursors.refresh()
        others: dict[Cell, str | None] = {}
        late = time.monotonic() - self._tracker.timeout_ms / 1000 / REPEATS
        for cell in [cell for cell, (since, _) in self._greeted.items() if since < late]:
            cursor = self._cursors.get(cell)
            if cursor is not None and cursor.sought and cursor.owner is None and cell not in self._sought:
                self._sought.add(cell)  # once: a tracker that is away is to be missed
                others[cell] = None
        for cell in self.answers:
            cursor = self._cursors.get(cell)
            if cursor is None:
                self._left_off[cell] = self._read.get(cell, self.answers[cell].read_position)
                others[cell] = None
            elif cursor.owner != self.id_of(cell):
                others[cell] = cursor.owner
            else:
                self._read[cell] = cursor.read_position
                self._left_off.pop(cell, None)
        return others

    def _check(self, hello: Hello, cursor: CursorSnapshot | None) -> None:
        check_tracked_through(self._tracker.markers_topic, hello.cell, cursor)
        was, now = None if cursor is None else cursor.topic_id, hello.topic_id
        if was is not None and now is not None and was != now:
            raise QueueTopicRecreated(hello.cell.topic, was, now)

    def _no_tracker(self, cells: int) -> NoTracker:
        tracker = self._tracker
        return NoTracker(cells, tracker.timeout_ms, tracker.markers_topic, tracker.cursors_topic)


def _beginning(hello: Hello, *, anew: bool) -> list[Hello | Delete]:
    return [Delete(cell=hello.cell), hello] if anew else [hello]
