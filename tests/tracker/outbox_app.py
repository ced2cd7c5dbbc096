"""A tracker's outbox in a process that dies before a step.

It carries out the batches that its log does not hold yet, and writes each into the log when it is done, as
Spark does. Batch ``n`` announces message ``n`` and gives up message ``n`` of the queue.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from spark_cursor_source.kafka import confirmed_producer
from tests.kafka.control_plane import (
    Control,
    cell_of,
    cursor_of,
    dead_letter_of,
    outbox_of,
    redeliver_of,
)

BATCHES = 4


class MortalProducer(Producer):
    """A producer, before whose n-th call that counts the process is gone."""

    left: int | None = None  #: None: it lives

    def _step(self) -> None:
        if MortalProducer.left is not None:
            MortalProducer.left -= 1
            if MortalProducer.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def init_transactions(self, *given: Any) -> Any:
        self._step()
        return super().init_transactions(*given)

    def begin_transaction(self, *given: Any) -> Any:
        self._step()
        return super().begin_transaction(*given)

    def produce(self, *given: Any, **named: Any) -> Any:
        self._step()
        return super().produce(*given, **named)

    def send_offsets_to_transaction(self, *given: Any) -> Any:
        self._step()
        return super().send_offsets_to_transaction(*given)

    def commit_transaction(self, *given: Any) -> Any:
        self._step()
        return super().commit_transaction(*given)


def run(told: dict[str, Any]) -> None:
    """Carry out what is left of the batches."""
    control, log = Control(config=told["config"], name=told["name"]), Path(told["log"])
    MortalProducer.left = told["die_at"]
    confirmed_producer.Producer = MortalProducer  # type: ignore[attr-defined]
    outbox = outbox_of(control)
    outbox.open(take_over=False)
    cell = cell_of(control.queue, 1)
    for number in range(len(log.read_bytes()), BATCHES):
        outbox.carry_out(
            number,
            decisions=[redeliver_of(cell, (number, number + 1)), dead_letter_of(cell, (number, number + 1))],
            cursors=[cursor_of(cell, number + 1)],
            next_markers={1: number + 1},
        )
        with log.open("ab") as file:
            file.write(b".")
    outbox.close()
