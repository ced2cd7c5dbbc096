"""What the source acks when Spark has completed a batch (``ackMode`` batch or cumulative)."""

from __future__ import annotations

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.leftovers import leftovers
from spark_cursor_source.core.marker import End, EndUpTo, Marker
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.planning import BatchPlan, SourceOffset
from spark_cursor_source.core.source_options import AckMode, SourceOptions
from spark_cursor_source.kafka.run import Run
from spark_cursor_source.spark.holdings import Holdings
from spark_cursor_source.spark.inbox import Inbox
from spark_cursor_source.spark.replays import Replays


class Completion:
    """Knows which messages the end of a batch ends: its own, and once a run those that dead runs left."""

    def __init__(
        self, options: SourceOptions, holdings: Holdings, run: Run, inbox: Inbox, replays: Replays
    ) -> None:
        self._mode, self._is_sole = options.ack_mode, options.subscription_type.is_sole
        self._holdings, self._run, self._inbox, self._replays = holdings, run, inbox, replays
        self._looked_back = False  # at what dead runs left
        self._apart: set[Cell] = set()  # with messages that a cumulative ack must not end

    def markers(self, batch: BatchPlan | None, end: SourceOffset, *, has_checkpoint: bool) -> list[Marker]:
        """What is to be written when the batch in progress, if there is one, ended here.

        ``has_checkpoint`` is False where the query had none, so that nothing before it was committed.
        """
        if self._mode is AckMode.INDIVIDUAL:
            return []
        markers: list[Marker] = [*self._ends_of_the_dead(batch, end if has_checkpoint else None, end)]
        for delivery in batch.deliveries if batch else ():
            if self._mode is AckMode.BATCH or delivery.cell in self._apart:
                run_id = self._run.id_of(delivery.cell)
                markers.append(End(cell=delivery.cell, offsets=delivery.offsets, run_id=run_id))
        if batch and self._mode is AckMode.CUMULATIVE:
            # Only where no others are outstanding: it would end them too.
            cells = {self._holdings.cell(*tp): position for tp, position in self._holdings.next.items()}
            markers += [
                EndUpTo(cell=cell, position=position, run_id=self._run.id_of(cell))
                for cell, position in cells.items()
                if position and cell not in self._apart
            ]
        return markers

    def _ends_of_the_dead(
        self, batch: BatchPlan | None, committed: SourceOffset | None, end: SourceOffset
    ) -> list[End]:
        """Once a run: Ends for what dead runs left leased in batches that Spark has committed."""
        if self._looked_back or not self._run.answers or not self._is_sole:
            # Of a shared subscription what others left, or are at, cannot be told apart.
            return []
        self._looked_back = True
        delivered: dict[Cell, OffsetSet] = {}
        for delivery in batch.deliveries if batch else ():
            delivered[delivery.cell] = delivered.get(delivery.cell, EMPTY) | delivery.offsets
        left = leftovers(
            self._run.answers,
            run_id=self._run.run_id,
            end=committed,
            later=[record.redeliver for record in self._inbox.after(end)],
            replayed=self._replays.held,
            delivered=delivered,
        )
        self._apart |= left.unsure
        return [End(cell=cell, offsets=offsets) for cell, offsets in left.committed.items()]
