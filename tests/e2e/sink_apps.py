"""Processes whose queries write a queue through a sink that writes each message once, and that die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from spark_cursor_source.devkit.spark_session import python_environment
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.cursors import CursorTable
from tests.e2e.harness import wait_until
from tests.e2e.processes import TAG, Part, kill_tree, pids_of, signal_all
from tests.kafka.control_plane import Control, new_control, produce
from tests.kafka.tracker_thread import running_tracker

PARTITIONS, MESSAGES = 2, 240
STANDS_STILL = "a task stands still"
EACH_ONCE = Counter(f"{partition}-{n}" for partition in range(PARTITIONS) for n in range(MESSAGES // 2))


def stand_still(go: str | None) -> None:
    """Let this task wait until a file exists; it says so in the log of its app."""
    print(STANDS_STILL, flush=True)
    while go is not None and not Path(go).exists():
        time.sleep(0.1)


@contextmanager
def queue_with_tracker(config: dict[str, str], directory: Path) -> Iterator[Control]:
    """A queue of messages in two partitions, and its tracker."""
    made = new_control(config)
    ClusterAdmin(config).create({made.queue: (PARTITIONS, {})})
    for partition in range(PARTITIONS):
        values = [{"value": b"%d-%d" % (partition, n), "partition": partition} for n in range(MESSAGES // 2)]
        produce(config, made.queue, values)
    with running_tracker(made, directory / "tracker"):
        yield made


class Apps:
    """Processes of an app, whose query hands a queue to a sink that writes each message once."""

    def __init__(
        self,
        app: str,
        control: Control,
        directory: Path,
        *,
        submit_args: str | None = None,
        subscription_type: str = "exclusive",
        **own: Any,
    ) -> None:
        """``own`` is what the configuration of this app has beside the common part."""
        self._app, self._own = app, own
        self._control, self._directory = control, directory
        self._environment = {} if submit_args is None else {"PYSPARK_SUBMIT_ARGS": submit_args}
        self._options = control.options(
            subscribe=control.queue,
            subscription="s",
            groupIdPrefix=control.group_prefix,
            subscriptionType=subscription_type,
            leaseTimeout="4s",
            maxOffsetsPerTrigger="40",
            sessionTimeout="6s",
        )

    @contextmanager
    def running(
        self, die: str | None = None, *, rival: Any = None, **own: Any
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A process with checkpoints of its own, so that what comes again comes with other batch ids.

        ``own`` is added to its configuration.
        """
        self.tag = tag = uuid.uuid4().hex
        config: dict[str, Any] = {
            "options": self._options,
            "checkpoint": str(self._directory / f"checkpoint-{tag}"),
            "die": die,
            "rival": rival,
            "tag": tag,
            **self._own,
            **own,
        }
        work = self._directory / tag
        work.mkdir()
        self.log_file = work / "log"
        environment = os.environ | python_environment() | self._environment | {TAG: tag}
        command = [sys.executable, "-m", self._app, json.dumps(config)]
        with (
            self.log_file.open("wb") as log,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, cwd=work
            ) as process,
        ):
            try:
                yield process
            finally:
                kill_tree(tag)
                process.wait()
                print((work / "log").read_text(errors="replace")[-4_000:])

    @contextmanager
    def overtaken(self, *rivals: dict[str, Any], go: Path) -> Iterator[int]:
        """Tasks stand still until ``go`` exists, and another process writes and acks all messages.

        Each of ``rivals`` is what a process with such a task has in its configuration; the next one starts
        when the task stands. Yields how many messages were redelivered, while the tasks still stand. They go
        on at the end of the block.
        """
        with ExitStack() as stack:
            first = [stack.enter_context(self._standing(own, go)) for own in rivals]
            yield self.until_acked(stack.enter_context(self.running()))
            written = [log.read_text(errors="replace").count("is written") for log, _ in first]
            go.touch()
            for (log, planner), before in zip(first, written, strict=True):
                signal_all(planner, signal.SIGCONT)
                wait_until(
                    lambda log=log, before=before: log.read_text().count("is written") > before,
                    "it goes on",
                )

    @contextmanager
    def _standing(self, own: dict[str, Any], go: Path) -> Iterator[tuple[Path, set[int]]]:
        """A process one of whose tasks stands still, as does its planner; yields its log and the planner."""
        with self.running(rival=str(go), **own):
            wait_until(lambda: STANDS_STILL in self.log(), STANDS_STILL)
            planner = pids_of(self.tag, Part.PLANNER)
            signal_all(planner, signal.SIGSTOP)  # a planner that lives extends the leases of its batch
            yield self.log_file, planner

    def log(self) -> str:
        """What the latest process has written."""
        return self.log_file.read_text(errors="replace")

    def die(self, how: str) -> None:
        with self.running(how) as process:
            wait_until(lambda: process.poll() is not None, f"it dies: {how}")
            assert process.returncode == -9

    def until_acked(self, process: subprocess.Popen[bytes]) -> int:
        """Wait until all messages are acked. Returns how many were redelivered."""
        with closing(CursorTable(self._control.config, self._control.cursors)) as cursors:

            def done() -> bool:
                assert process.poll() is None
                cursors.refresh()
                found = cursors.of(subscription="s").values()
                acked = sum(one.totals.acked for one in found)
                return acked >= MESSAGES and not any(one.outstanding for one in found)

            wait_until(done, "all are acked")
            return sum(one.totals.redelivered for one in cursors.of(subscription="s").values())
