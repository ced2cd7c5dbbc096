"""A run of a planner: it introduces itself to the tracker and learns what went before."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.marker import Hello
from spark_cursor_source.core.source_options import SourceOptions
from spark_cursor_source.errors import NoTracker, QueueTopicRecreated, RunSuperseded

log = logging.getLogger(__name__)
POLL_S = 0.05
REPEATS = 4  #: how often a run says Hello again before it gives up


class Cursors(Protocol):
    """Where the tracker's answers are read."""

    def refresh(self) -> bool: ...

    def get(self, cell: Cell) -> CursorSnapshot | None: ...


class Run:
    """Says Hello for each cell and knows which of them the tracker has answered.

    The cursor that names this run holds the effect of every marker that came before its Hello.
    """

    def __init__(
        self,
        run_id: str,
        options: SourceOptions,
        cursors: Cursors,
        send: Callable[[Sequence[Hello]], None],
    ) -> None:
        self.run_id = run_id
        self._options = options
        self._cursors = cursors
        self._send = send
        self._greeted: dict[Cell, tuple[float, Hello]] = {}  # not answered yet: since when
        self.answers: dict[Cell, CursorSnapshot] = {}

    def greet(self, positions: Mapping[Cell, int], topic_ids: Mapping[str, str]) -> None:
        """Say Hello for cells that this run has not met yet.

        Raises:
            QueueTopicRecreated: a cursor at hand is that of another topic of the same name.
        """
        new = {c: at for c, at in positions.items() if c not in self._greeted and c not in self.answers}
        if not new:
            return
        now = time.monotonic()
        hellos = [
            Hello(cell=cell, run_id=self.run_id, position=at, topic_id=topic_ids.get(cell.topic))
            for cell, at in new.items()
        ]
        for hello in hellos:
            _check_topic(hello, self._cursors.get(hello.cell))
        self._send(hellos)
        self._greeted |= {hello.cell: (now, hello) for hello in hellos}
        log.info("run_begins run=%s cells=%d", self.run_id, len(new))

    def wait_for(self, cells: Sequence[Cell]) -> None:
        """Block until the tracker has answered for each of the cells.

        Raises:
            NoTracker: it did not, in ``trackerTimeout``.
            QueueTopicRecreated: as :meth:`listen`.
        """
        timeout_s = self._options.tracker_timeout_ms / 1000
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
                said = now
                self._send([self._greeted[cell][1] for cell in missing if cell in self._greeted])
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
            if cursor is not None and cursor.owner == self.run_id:
                _check_topic(hello, cursor)
                self.answers[cell] = cursor
                del self._greeted[cell]
        late = time.monotonic() - self._options.tracker_timeout_ms / 1000
        waiting = sum(since < late for since, _ in self._greeted.values())
        if waiting:
            raise self._no_tracker(waiting)

    def check_alone(self) -> None:
        """That no later run has said Hello to a cell: what is due would be announced to that one only.

        Raises:
            RunSuperseded: one has.
        """
        self._cursors.refresh()
        for cell in self.answers:
            cursor = self._cursors.get(cell)
            if cursor is not None and cursor.owner != self.run_id:
                raise RunSuperseded(cell.subscription, cell.topic, cell.partition)

    def _no_tracker(self, cells: int) -> NoTracker:
        options = self._options
        return NoTracker(cells, options.tracker_timeout_ms, options.markers_topic, options.cursors_topic)


def _check_topic(hello: Hello, cursor: CursorSnapshot | None) -> None:
    was, now = None if cursor is None else cursor.topic_id, hello.topic_id
    if was is not None and now is not None and was != now:
        raise QueueTopicRecreated(hello.cell.topic, was, now)
