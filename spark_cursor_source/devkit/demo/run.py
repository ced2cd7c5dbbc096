"""The demo from its first process to its verdict."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from rich.console import Console

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.devkit.demo.processes import SparkProcess
from spark_cursor_source.devkit.demo.progress import Progress, rows_of
from spark_cursor_source.devkit.demo.render import title, verdict_view
from spark_cursor_source.devkit.demo.scenario import QUEUE_TOPIC, Scenario, messages
from spark_cursor_source.devkit.demo.screen import Screen, screen_of
from spark_cursor_source.devkit.demo.topics import DemoTopics
from spark_cursor_source.devkit.demo.verdict import Verdict, judge
from spark_cursor_source.devkit.messages import ensure_topic, send_messages
from spark_cursor_source.errors import DemoProcessEnded
from spark_cursor_source.options.kafka import KafkaOptions

#: Shares of acked messages. From the first on, the consumer is killed if it is within a batch; from the
#: second on, at any time.
CRASH_FROM, CRASH_BY = 0.4, 0.8
_LOOK_S = 0.15
_SHOW_S = 0.6


def demo(scenario: Scenario, console: Console, *, keep: Path | None = None) -> Verdict:
    """Runs the whole demo on a console, shows the verdict there, and returns it.

    If ``keep`` is given, logs, checkpoints and the broker's data remain in this new directory.

    Raises:
        DemoProcessEnded: a Spark process ended by itself.
        BrokerError: the broker cannot be started.
    """
    console.print(title(scenario), highlight=False)
    verdict = run_demo(scenario, screen_of(console), keep=keep)
    console.print(verdict_view(verdict), highlight=False, soft_wrap=True)
    return verdict


def run_demo(scenario: Scenario, screen: Screen, *, keep: Path | None = None) -> Verdict:
    """Runs broker, messages, consumer, tracker and a crash until done or until the time limit."""
    began = time.monotonic()
    with ExitStack() as stack:
        if keep is None:
            scratch = Path(stack.enter_context(_temporary()))
        else:
            scratch = keep.absolute()
            scratch.mkdir(parents=True)
        screen.say("starting a broker")
        broker = stack.enter_context(EmbeddedKafka(data_dir=scratch / "kafka", progress=screen.say))
        return _Demo(scenario, screen, broker.bootstrap_servers, scratch, stack, began).run()


def _temporary() -> tempfile.TemporaryDirectory[str]:
    # Processes that die in a crash may still write while the directory is removed.
    return tempfile.TemporaryDirectory(prefix="cursorq-demo-", ignore_cleanup_errors=True)


class _Demo:
    def __init__(
        self, scenario: Scenario, screen: Screen, servers: str, scratch: Path, stack: ExitStack, began: float
    ) -> None:
        self._scenario, self._screen, self._servers = scenario, screen, servers
        self._scratch, self._stack, self._began = scratch, stack, began
        self._kafka = KafkaOptions({"bootstrap.servers": servers, "log_level": "2"})
        self._topics = stack.enter_context(closing(DemoTopics(self._kafka)))
        self._processes: dict[str, SparkProcess] = {}
        self._consumers = 0
        self._shown: Progress | None = None

    def run(self) -> Verdict:
        scenario, say = self._scenario, self._screen.say
        ensure_topic(self._kafka, QUEUE_TOPIC, partitions=scenario.partitions)
        self._start("tracker", 1)
        self._start_consumer()
        sent = send_messages(self._kafka, QUEUE_TOPIC, messages(scenario))
        say(f"{sent:,} messages are in topic {QUEUE_TOPIC}; consumer and tracker are starting")
        with self._screen:
            if self._follow(self._is_amid_a_batch):
                self._processes["consumer"].kill()
                history = self._topics.follow_markers()
                say(
                    f"{self._elapsed_s:3.0f} s · SIGKILL for the consumer after {len(history.acked):,} acks, "
                    f"with {history.in_flight:,} messages in its hands; it is started again"
                )
                self._start_consumer()
                self._follow(self._is_done)
        say("reading the topics")
        return judge(self._topics.evidence(), scenario)

    def _start_consumer(self) -> None:
        self._consumers += 1
        self._start("consumer", self._consumers)

    def _start(self, name: str, number: int) -> None:
        process = SparkProcess(name, number, self._scenario, self._servers, self._scratch)
        self._stack.callback(process.kill)
        self._processes[name] = process

    def _follow(self, until: Callable[[], bool]) -> bool:
        """Displays progress until the condition holds. Returns False if the time limit passed first."""
        while not until():
            if self._elapsed_s > self._scenario.time_limit_s:
                self._screen.say(f"not done after {self._elapsed_s:.0f} s: the verdict is on what there is")
                return False
            for process in self._processes.values():
                if not process.alive:
                    raise DemoProcessEnded(process.name, process.log_tail())
            time.sleep(_LOOK_S)
        return True

    def _is_amid_a_batch(self) -> bool:
        self._show_now_and_then()
        history = self._topics.follow_markers()
        acked = len(history.acked) / self._scenario.messages
        amid = history.in_flight >= self._scenario.batch // 4
        return (acked >= CRASH_FROM and amid) or acked >= CRASH_BY

    def _is_done(self) -> bool:
        return self._show_now_and_then().done

    def _show_now_and_then(self) -> Progress:
        if self._shown is None or self._elapsed_s > self._shown.elapsed_s + _SHOW_S:
            self._shown = self._look()
            self._screen.show(self._shown)
        return self._shown

    def _look(self) -> Progress:
        runs = len(self._topics.follow_markers().runs)
        cursors = self._topics.cursors()
        return Progress(
            elapsed_s=self._elapsed_s,
            consumer="running" if runs == self._consumers else "starting",
            tracker="running" if cursors else "starting",
            rows=rows_of(self._topics.produced(), cursors),
        )

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._began
