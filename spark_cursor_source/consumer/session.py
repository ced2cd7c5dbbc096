"""Session of a run with the tracker: sends Hello for each cell and reads the answers from cursors."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from spark_cursor_source.consumer.known_topics import check_same_topic
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.limits import Limits, strictest
from spark_cursor_source.core.marker import Delete, Hello
from spark_cursor_source.errors import CursorqError, NoTracker
from spark_cursor_source.topics.cursors import CursorTable, check_tracked_through

log = logging.getLogger(__name__)
_POLL_S = 0.01
_TELL_S = 5  # wait for an answer after which a warning says that no tracker answers
REPEATS = 4  #: number of Hello retries before the run fails


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerAddress:
    """Topics of the tracker that a run uses, and the timeout for its answers in ms."""

    markers_topic: str
    cursors_topic: str
    timeout_ms: int


class TrackerSession:
    """Sends Hello for each cell and tracks which cells the tracker has answered.

    A cursor that names this run includes the effect of every marker before its Hello. A cell that this run
    released and acquires again is greeted under a new run id, because the answer to the first Hello is stale.
    """

    def __init__(
        self,
        run_id: str,
        tracker: TrackerAddress,
        cursors: CursorTable,
        send: Callable[[Sequence[Hello | Delete]], object],
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run_id = run_id
        self._now_s = now_s
        self._tracker = tracker
        self._cursors = cursors
        self._send = send
        self._ids: dict[Cell, str] = {}  # run id of each greeted cell, if different from run_id
        self._next_ids: dict[Cell, str] = {}  # run id for the next Hello of a released cell
        self._times = 0  # number of releases so far, used as suffix of the next run ids
        self._greeted: dict[Cell, tuple[float, Hello]] = {}  # unanswered cells: monotonic send time and Hello
        self._told = False  # True if a warning has said that the unanswered cells wait
        self._owners: dict[Cell, str | None] = {}  # owner of each greeted cell before its Hello
        # cells released because a Seek preceded the tracker's answer
        self._sought: set[Cell] = set()
        self.answers: dict[Cell, CursorSnapshot] = {}
        self._read: dict[Cell, int] = {}  # last seen read position of each answered cell
        self._left_off: dict[Cell, int] = {}  # last seen read position of each cell that was deleted since

    def greet(
        self,
        positions: Mapping[Cell, int],
        topic_ids: Mapping[str, str],
        *,
        remade: Collection[Cell] = frozenset(),
    ) -> None:
        """Sends Hello for cells that this run has not greeted yet.

        The tracker's state of cells in ``remade`` belongs to a deleted topic. A Delete marker before the
        Hello removes that state.

        A cell that was deleted during this run begins at its last seen read position. The tracker has no
        record of deliveries started after that position.

        Raises:
            QueueTopicRecreated: a cursor belongs to another topic of the same name.
            TrackedElsewhere: a cursor belongs to the tracker of another markers topic.
        """
        new = {c: at for c, at in positions.items() if c not in self._greeted and c not in self.answers}
        if not new:
            return
        now = self._now_s()
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
        # Refreshed before the Hello, because the Hello creates the cell at the tracker that reads it.
        self._cursors.refresh()
        for hello in hellos:
            cursor = self._cursors.get(hello.cell)
            self._owners[hello.cell] = None if cursor is None else cursor.owner
            if hello.cell not in remade:
                self._check(hello, cursor)
        # Both markers go to one partition in one send, without another marker in between. The tracker deletes
        # the cell and creates it again.
        try:
            self._send(
                [marker for hello in hellos for marker in _beginning(hello, anew=hello.cell in remade)]
            )
        except CursorqError:
            # The brokers may have stored these Hellos. Under the same run id, a Seek between an unconfirmed
            # Hello and the next one would stay unnoticed.
            self._use_next_ids(new)
            raise
        self._greeted |= {hello.cell: (now, hello) for hello in hellos}
        log.info("The run starts. event=run_started run=%s cells=%d", self.run_id, len(new))

    def id_of(self, cell: Cell) -> str:
        """Returns the run id of this run's markers and redeliveries for a cell."""
        return self._ids.get(cell, self.run_id)

    def give_up(self, cells: Iterable[Cell]) -> None:
        """Releases the cells. Markers about deliveries in progress keep their run id until the next Hello."""
        known = [cell for cell in cells if cell in self.answers or cell in self._greeted]
        if not known:
            return
        for cell in known:
            self.answers.pop(cell, None)
            self._greeted.pop(cell, None)
            self._read.pop(cell, None)
        self._use_next_ids(known)

    def _use_next_ids(self, cells: Iterable[Cell]) -> None:
        """Greets these cells under a new run id next time."""
        self._times += 1
        self._next_ids |= dict.fromkeys(cells, f"{self.run_id}.{self._times}")

    def wait_for(self, cells: Sequence[Cell], still_mine: Callable[[Sequence[Cell]], Sequence[Cell]]) -> None:
        """Blocks until the tracker has answered for each cell that ``still_mine`` confirms.

        ``still_mine`` is called before each Hello retry. Otherwise a process that was paused would take cells
        away from their new owner.

        Raises:
            NoTracker: the tracker did not answer within ``trackerTimeout``.
            QueueTopicRecreated: see :meth:`listen`.
        """
        timeout_s = self._tracker.timeout_ms / 1000
        again_s = timeout_s / REPEATS
        began = said = self._now_s()
        while missing := [cell for cell in cells if cell not in self.answers]:
            self.listen()
            if not any(cell not in self.answers for cell in missing):
                return
            now = self._now_s()
            if now - began > timeout_s:
                raise self._no_tracker(len(missing))
            if now - said > again_s:
                # A tracker that was rebuilt since may have lost the first Hello.
                said, cells = now, still_mine(cells)
                self._send([self._greeted[cell][1] for cell in cells if cell in self._greeted])
            time.sleep(_POLL_S)

    def listen(self) -> None:
        """Reads the answers that the tracker has written so far.

        Raises:
            NoTracker: a cell has waited longer than ``trackerTimeout``.
            QueueTopicRecreated: the tracker's cursor belongs to another topic of the same name.
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
        now, timeout_s = self._now_s(), self._tracker.timeout_ms / 1000
        waited_s = [now - since for since, _ in self._greeted.values()]
        late = sum(waited > timeout_s for waited in waited_s)
        if late:
            raise self._no_tracker(late)
        self._tell(max(waited_s, default=0.0))

    def _tell(self, waited_s: float) -> None:
        """Warns once for each wait that no tracker answers."""
        if waited_s < _TELL_S:
            self._told = self._told and bool(self._greeted)
        elif not self._told:
            self._told = True
            log.warning(
                "No tracker has answered yet, and messages are delivered only after its answer. Check that a "
                "tracker runs, or start one (cursorq tracker, Tracker of spark_cursor_source.tracker, or "
                "in Spark start_tracker). event=tracker_awaited markers_topic=%s cells=%d waited_s=%.0f "
                "giving_up_in_s=%.0f",
                self._tracker.markers_topic,
                len(self._greeted),
                waited_s,
                self._tracker.timeout_ms / 1000 - waited_s,
            )

    def taken_over(self) -> dict[Cell, str | None]:
        """Returns the cells whose redeliveries no longer go to this run, each with its new run id.

        The run id is None if the subscription was sought or deleted and starts again without an owner. It is
        also None if a Seek, a deletion or the Hello of another run preceded the tracker's answer. The answer
        then never arrives, and the cell is returned after a quarter of the timeout.
        """
        self._cursors.refresh()
        others: dict[Cell, str | None] = {}
        late = self._now_s() - self._tracker.timeout_ms / 1000 / REPEATS
        for cell in [cell for cell, (since, _) in self._greeted.items() if since < late]:
            cursor = self._cursors.get(cell)
            if cursor is None:
                continue
            if cursor.sought and cursor.owner is None and cell not in self._sought:
                self._sought.add(cell)  # only once per Hello: a missing tracker must still raise NoTracker
                others[cell] = None
            elif cursor.owner is not None and cursor.owner not in (self.id_of(cell), self._owners[cell]):
                others[cell] = None  # the tracker has read the Hello of another run since
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

    def read_position(self, cell: Cell) -> int:
        """Returns the read position of the cell, as of the last read of the cursors; 0: no cursor."""
        cursor = self._cursors.get(cell)
        return 0 if cursor is None else cursor.read_position

    def paused(self, cells: Iterable[Cell]) -> frozenset[Cell]:
        """Returns those of the cells that an operator has paused, as of the last read of the cursors."""
        found = {cell: self._cursors.get(cell) for cell in cells}
        return frozenset(
            cell for cell, cursor in found.items() if cursor is not None and cursor.paused_ms is not None
        )

    def limits(self, cells: Iterable[Cell]) -> Limits:
        """Returns the strictest limits of these cells, as of the last read of the cursors.

        An operator sets the same limits for all cells. A cell that is new since has none.
        """
        found = (self._cursors.get(cell) for cell in cells)
        return strictest(cursor.limits for cursor in found if cursor is not None)

    def _check(self, hello: Hello, cursor: CursorSnapshot | None) -> None:
        check_tracked_through(self._tracker.markers_topic, hello.cell, cursor)
        check_same_topic(hello.cell.topic, None if cursor is None else cursor.topic_id, hello.topic_id)

    def _no_tracker(self, cells: int) -> NoTracker:
        tracker = self._tracker
        return NoTracker(cells, tracker.timeout_ms, tracker.markers_topic, tracker.cursors_topic)


def _beginning(hello: Hello, *, anew: bool) -> list[Hello | Delete]:
    return [Delete(cell=hello.cell), hello] if anew else [hello]
