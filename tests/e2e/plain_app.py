"""A consumer or a tracker in one plain process that starts at once: all is real but Spark's engine.

Told what to be as :mod:`tests.e2e.spark_app` is; ``die_at`` is the step before which it dies.
"""

from __future__ import annotations

import faulthandler
import pickle
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from spark_cursor_source.consumer.action_columns import MESSAGE_ID
from spark_cursor_source.consumer.membership import Membership
from spark_cursor_source.core.marker import End
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.options.source import SourceOptions
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.spark.actions import markers_of
from spark_cursor_source.spark.handler_calls import Handling as Calling
from spark_cursor_source.spark.handling import handle, handle_and_settle
from spark_cursor_source.spark.reader import CursorqStreamReader
from spark_cursor_source.spark.tracker import TrackerBatch
from spark_cursor_source.spark.tracker_source import MarkerStreamReader
from spark_cursor_source.spark.tracker_state import TrackerProcessor
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.tracker.rows import Folded
from spark_cursor_source.wire.marker import decode_folded
from tests.e2e.consumer_app import PAUSE_S, Handling
from tests.e2e.death import Steps
from tests.e2e.micro_batches import MicroBatches, Tasks
from tests.e2e.spark_app import record
from tests.e2e.tracker_app import prepare_death


def consume(config: dict[str, Any]) -> None:
    """The consumer, started again as often as ``config["restarts"]`` says; rows are handled one by one."""
    steps = Steps(config.get("die_at"), config["events"], str(config["run"]))
    steps.before(MarkerSender, "send", "flush")
    steps.before(Membership, "commit")
    for attempt in range(config["restarts"] + 1):
        handling = OneByOne(config, f"{config['run']}.{attempt}", steps)
        reader = CursorqStreamReader(SourceOptions.parse(config["options"]))
        handling.note("started")
        try:
            batches = MicroBatches(reader, Path(config["checkpoint"]), handling.work, step=steps.step)
            batches.run(0.05, until=Path(config["leave"]).exists)
        except Exception as problem:  # noqa: BLE001 - whatever ended it, it is started again
            handling.note("failed", error=f"{type(problem).__name__}: {problem}")
        reader.stop()
        time.sleep(PAUSE_S)


class OneByOne(Handling):
    """The handler of each message, and what Spark's tasks do around it."""

    def __init__(self, config: dict[str, Any], run: str, steps: Steps) -> None:
        super().__init__(config, run)
        self._steps = steps
        self._batch_id: int | None = None
        self._handled = 0  # of this task

    def batch_id(self) -> int | None:
        return self._batch_id

    def one(self, message: Any) -> Any:
        self._handled += 1
        if self._handled == 2:
            self._steps.step("handle the second message")
        if self._config["bug"] and message.offset == 1:
            return None
        return super().one(message)

    def work(self, tasks: Tasks, batch_id: int) -> None:
        self._batch_id = batch_id
        options = self._config["options"]
        for rows in tasks:
            self._handled = 0
            ordered = options.get("ordering") == "key"
            calling = Calling(fn=self.one, by_key=ordered, in_order=ordered, concurrency=1 + 3 * ordered)
            if options.get("ackMode") == "cumulative":
                done = handle(rows, calling, MESSAGE_ID)
            else:
                # As an AckSink whose rows say that they are their source's: nobody asks for the cursors.
                acks = replace(AckOptions.parse(options), cursors_topic=None)
                done = handle_and_settle(rows, calling, markers_of(acks))
            for _ in done:
                pass


def track(config: dict[str, Any]) -> None:
    """The tracker, until it fails."""
    if config["die_at"] is not None:
        prepare_death(None, **config["die_at"])
    options = TrackerOptions.parse(config["options"])
    reader = MarkerStreamReader(options)
    batches = TrackerBatches(options, bug=config["bug"])

    def note(event: str, **facts: object) -> None:
        record(config["events"], event=event, run=str(config["run"]), at=time.time(), **facts)

    note("started")
    try:
        MicroBatches(reader, Path(options.checkpoint_location), batches.work).run(0.05)
    except Exception as problem:  # noqa: BLE001 - the test asks why it ended
        note("failed", error=f"{type(problem).__name__}: {problem}")


class TrackerBatches:
    """Spark's part between the tracker's source and its outbox: a state that is as old as the last commit."""

    def __init__(self, options: TrackerOptions, *, bug: bool) -> None:
        self._bug = bug
        self._inputs = Path(options.checkpoint_location) / "inputs"
        self._inputs.mkdir(parents=True, exist_ok=True)
        self._state = TwsTester(TrackerProcessor(options.policy_for))
        self._carry_out = TrackerBatch(options)
        self._known = 0  # batches that the state holds

    def work(self, tasks: Tasks, batch_id: int) -> None:
        for earlier in range(self._known, batch_id):
            self._decide(pickle.loads((self._inputs / str(earlier)).read_bytes()))
        rows = [row for task in tasks for batch in task for row in batch.to_pylist()]
        (self._inputs / str(batch_id)).write_bytes(pickle.dumps(rows))
        self._carry_out(_Decided(self._decide(rows)), batch_id)
        self._known = batch_id + 1

    def _decide(self, rows: list[dict[str, Any]]) -> list[Row]:
        by_partition: defaultdict[int, list[Row]] = defaultdict(list)
        for row in rows:
            if self._bug and row["kind"] == Folded.MARKER and isinstance(decode_folded(row["body"]), End):
                self._bug = False
                continue
            by_partition[row["markers_partition"]].append(Row(**row))
        return [one for partition, of in by_partition.items() for one in self._state.test(partition, of)]


@dataclass(frozen=True)
class _Decided:
    """The rows of a batch, as a DataFrame gives them."""

    rows: list[Row]
    sparkSession: None = None

    def collect(self) -> list[Row]:
        return self.rows


ROLES: dict[str, Callable[[dict[str, Any]], None]] = {"consumer": consume, "tracker": track}


def run(config: dict[str, Any]) -> None:
    """Be what the config says."""
    faulthandler.register(signal.SIGUSR1)
    ROLES[config["role"]](config)
