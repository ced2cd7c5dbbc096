"""The tracker without Spark: a thread in a process, and a member of the tracker's consumer group."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Self

from spark_cursor_source.consumer.this_process import name_member
from spark_cursor_source.core.subscription_type import SubscriptionType
from spark_cursor_source.errors import KafkaUnavailable, TrackerFenced, TrackerOwnedByAnother
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Deadline, wait_in_steps
from spark_cursor_source.kafka.group_member import GroupMember
from spark_cursor_source.metrics.server import DEFAULT_HOST, MetricsServer, serve_metrics
from spark_cursor_source.metrics.table import Sample
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.topics.tracker_progress import tracker_group
from spark_cursor_source.tracker.counts import TrackerCounts
from spark_cursor_source.tracker.decisions import DecisionLog
from spark_cursor_source.tracker.environment import TrackerEnvironment
from spark_cursor_source.tracker.replica import Replica

log = logging.getLogger(__name__)

_LOOK_S = 0.1  # longest delay until a new assignment or the end is noticed
_AGAIN_S = 0.2  # pause before a failed start is repeated
_FINISH_S = 5.0  # longest wait of a close for the batch that is being written
# Longest wait of a close. A transactional call from before the tracker left its group has ended by then.
_STOP_MS = 15_000


class Tracker:
    """Tracker of a markers topic without Spark, from ``with`` or :meth:`start` until :meth:`close`.

    It follows the same rules as the Spark query of :func:`start_tracker` and takes the same options, except
    that it needs no ``checkpointLocation``: its state is in the cursors topic. Several trackers of one
    markers topic share its partitions, as members of a consumer group. If one dies, the others have its
    partitions after ``sessionTimeout`` (10 s).

    A Spark query and this tracker never work at the same time. The one that starts with ``takeOver=true``
    replaces the other, which then ends with TrackerFenced.

    With ``metrics_port`` it shows its metrics over HTTP while it runs, like ``serve_metrics``; 0 takes a free
    port, see :attr:`metrics_port`.

    Raises:
        UnknownOption, InvalidOption, MissingOption: an option is not valid.

    Example::

        from spark_cursor_source.tracker import Tracker

        with Tracker({"kafka.bootstrap.servers": "broker:9092"}):
            ...  # consumers of the queues that this tracker serves
    """

    def __init__(
        self,
        options: Mapping[str, object],
        *,
        metrics_port: int | None = None,
        metrics_host: str = DEFAULT_HOST,
    ) -> None:
        self._options = TrackerOptions.parse_standalone(options)
        client_config(self._options.kafka, "producer")  # raises for invalid Kafka options
        self._log = DecisionLog()
        self._counts = TrackerCounts()
        self._may_take_over = self._options.take_over
        self._has_worked = False
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cursorq-tracker", daemon=True)
        self._member: GroupMember | None = None
        self.metrics_port = metrics_port  #: port of the endpoint of metrics; None: there is none
        self._metrics_host = metrics_host
        self._endpoint: MetricsServer | None = None
        self.failure: BaseException | None = None  #: the error that has ended the tracker

    def start(self) -> Self:
        """Starts the thread and returns immediately.

        Raises:
            ExtraNotInstalled, MetricsPortTaken: there is no endpoint of metrics.
        """
        if self.metrics_port is not None:
            self._endpoint = serve_metrics(self, port=self.metrics_port, host=self._metrics_host)
            self.metrics_port = self._endpoint.port
        self._thread.start()
        return self

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the tracker has ended. Returns False on a timeout.

        Raises:
            CursorqError: the error that has ended it.
        """
        ended = wait_in_steps(self._ended.wait, timeout_s)
        self.check()
        return ended

    def check(self) -> None:
        """Raises the error that has ended the tracker, if there is one."""
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Ends the tracker and leaves the group, so that others have its partitions at once.

        Without an answer from the brokers, the call returns after 15 s. The thread then ends by itself and
        changes nothing in Kafka any more. An interrupted close can be repeated.

        Raises:
            CursorqError: the error that has ended it before.
        """
        self.stop()
        self.check()

    def stop(self) -> None:
        """Ends the tracker like :meth:`close`, without an error."""
        self._stopping.set()
        if self._thread.is_alive():
            self._end_thread()
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None

    def _end_thread(self) -> None:
        deadline = Deadline.after_ms(_STOP_MS)
        if wait_in_steps(self._has_ended, _FINISH_S):
            return
        if self._member is not None:
            self._member.close()
        if not wait_in_steps(self._has_ended, deadline.left_s()):
            log.warning(
                "The brokers do not answer, and the tracker was closed without them. Nothing is lost, "
                "because its state is in the cursors topic. event=tracker_closed_without_brokers topic=%s",
                self._options.markers_topic,
            )

    def _has_ended(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def metrics(self) -> Iterator[Sample]:
        """Yields the metrics of the tracker, for ``serve_metrics``."""
        return self._counts.samples()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object, *_: object) -> None:
        self.stop()
        if kind is None:
            self.check()

    def _run(self) -> None:
        self._counts.is_running = True
        try:
            at = TrackerEnvironment(self._options, self._counts.rescue)
            try:
                self._join(at)
            finally:
                at.close()
        except BaseException as failure:  # noqa: BLE001 - raised by wait, check and close
            self.failure = failure
            if not self._stopping.is_set():
                log.error("The tracker has ended. event=tracker_ended error=%s", failure)
        finally:
            self._counts.is_running = False
            self._ended.set()

    def _join(self, at: TrackerEnvironment) -> None:
        topic = self._options.markers_topic
        self._member = member = GroupMember(
            client_config(self._options.kafka, "consumer"),
            tracker_group(topic),
            name_member(SubscriptionType.SHARED, "tracker"),
            session_ms=self._options.session_ms,
        )
        try:
            member.subscribe([topic])
            self._serve(at, member)
        finally:
            member.close()

    def _serve(self, at: TrackerEnvironment, member: GroupMember) -> None:
        """Works on the partitions that the group assigns, until the tracker is closed."""
        before: frozenset[int] = frozenset()  # partitions whose other owners this tracker has fenced
        while not self._stopping.is_set():
            partitions = _numbers(member)
            before &= partitions
            if not partitions:
                self._stopping.wait(_LOOK_S)
                continue
            try:
                replica = Replica(
                    self._options,
                    at,
                    partitions,
                    member.metadata,
                    take_over=self._may_take_over,
                    fence=partitions - before,
                    log_of=self._log,
                    counts=self._counts,
                )
                before = partitions
                # Taking over again would fight the tracker that has taken over from this one.
                self._may_take_over, self._has_worked = False, True
                self._counts.partitions = partitions
                try:
                    self._work(replica, member)
                finally:
                    self._counts.partitions = frozenset()
                    replica.close()
            except TrackerFenced as fenced:
                before = frozenset()
                log.warning(
                    "The tracker has lost its partitions and reads the group again. "
                    "event=tracker_lost_partitions topic=%s why=%s",
                    self._options.markers_topic,
                    fenced,
                )
                self._stopping.wait(_AGAIN_S)
            except TrackerOwnedByAnother as owned:
                if self._has_worked:
                    raise TrackerFenced(tracker_group(self._options.markers_topic)) from owned
                raise
            except KafkaUnavailable as why:
                log.warning(
                    "The tracker waits for the brokers and continues from the cursors then. "
                    "event=tracker_waits topic=%s why=%s",
                    self._options.markers_topic,
                    why,
                )
                self._stopping.wait(_AGAIN_S)

    def _work(self, replica: Replica, member: GroupMember) -> None:
        while not self._stopping.is_set() and _numbers(member) == replica.partitions:
            if replica.gather(_LOOK_S):
                with member.steady():
                    if _numbers(member) == replica.partitions:
                        replica.work()


def _numbers(member: GroupMember) -> frozenset[int]:
    return frozenset(number for _, number in member.partitions or ())
