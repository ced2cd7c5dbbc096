"""Committed offsets of a consumer group, read and set by a consumer that never joins the group.

An AdminClient is not used, because librdkafka's requests about group offsets crash the process when a broker
restarts. ListConsumerGroupOffsets crashes if a broker responds that is not the coordinator (SIGSEGV,
librdkafka issue 5040). It and AlterConsumerGroupOffsets crash if the response arrives after their timeout
(SIGABRT, librdkafka issue 4605).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spark_cursor_source.errors import (
    GroupInUse,
    KafkaFailure,
    KafkaUnavailable,
    TopicNotFound,
    TransactionStaysOpen,
)
from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.config_roles import consumer_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import (
    COMMIT,
    NOT_NOW,
    READ_COMMITTED,
    UNAUTHORIZED,
    UNKNOWN_TOPIC,
    ErrorCallback,
    error_of,
    failures_of_commit,
    group_unavailable,
    refusal,
    refusal_of_offsets,
)

# A consumer closes only after its last request has ended: a request in flight, or a commit that waits for the
# coordinator. librdkafka keeps such a commit for the session timeout and uses a whole CPU core meanwhile.
_ENDS_SOON: Mapping[str, object] = {
    "group.protocol": "classic",  # with the other protocol the brokers set the session timeout
    "session.timeout.ms": 1_000,
    "heartbeat.interval.ms": 300,
}
_REQUEST_TIMEOUT_MS = 10_000
_ONE_REQUEST_S = 2.0
_PAUSE_S = 0.02
_ANSWER_MS = 1_000  # a coordinator that is there answers sooner
_POLL_S = 0.002
_KEPT = 16  # each has some threads and a connection to each broker
_DENIAL_MS = 3_000  # a new topic or permission may be unknown for about this long
_HAS_MEMBERS = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.NON_EMPTY_GROUP,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.UNKNOWN_MEMBER_ID,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """Committed offset of a consumer group for a partition, with its metadata."""

    position: int
    metadata: str


class _Answer:
    """Result of the last commit.

    This is a separate object without a reference to the consumer. A consumer in a reference cycle would be
    left to the garbage collector, which may run in a thread of another client and block that client until
    this consumer has closed.
    """

    def __init__(self) -> None:
        self.awaited = False
        self.failed: list[tuple[str, KafkaError]] = []  #: (topic, error)

    def __call__(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self.awaited, self.failed = False, failures_of_commit(error, partitions)


class GroupOffsets:
    """Offsets of one group. Keep the instance, because the search for the coordinator takes most of the time.

    If ``stable``, reads wait for open transactions that set offsets.
    """

    def __init__(self, config: Mapping[str, Any], group: str, *, stable: bool = True) -> None:
        self._group = group
        self._complaints, self._answer = ErrorCallback(), _Answer()
        settings = {
            "group.id": group,
            "isolation.level": "read_committed" if stable else "read_uncommitted",
            "error_cb": self._complaints,
            "on_commit": self._answer,
            **_ENDS_SOON,
        }
        patient = {"socket.timeout.ms": _REQUEST_TIMEOUT_MS, **config}
        self._consumer: Consumer = open_client(Consumer, consumer_config(patient, settings))
        self._lock = threading.Lock()  # one call at a time, committed() or commit()
        self._denied: KafkaError | None = None  # authorization error since the last success

    @property
    def is_idle(self) -> bool:
        """True if no call is under way and no commit is unanswered."""
        return not self._lock.locked() and not self._answer.awaited

    def committed(
        self, partitions: Iterable[tuple[str, int]], deadline: Deadline
    ) -> dict[tuple[str, int], CommittedOffset]:
        """Return the committed offset of each partition that has one.

        Raises:
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        wanted = [TopicPartition(topic, number) for topic, number in sorted(set(partitions))]
        with self._lock:
            return self._committed(wanted, deadline)

    def answers(self, partitions: Iterable[tuple[str, int]]) -> bool:
        """Return True if the coordinator gives the offsets at once."""
        try:
            self.committed(partitions, Deadline.after_ms(_ANSWER_MS))
        except KafkaFailure:
            return False
        return True

    def commit(self, positions: Mapping[tuple[str, int], int], deadline: Deadline) -> None:
        """Commit offsets. They are durable on the broker when this method returns.

        Raises:
            GroupInUse: the group has members.
            TopicNotFound: a topic no longer exists.
            KafkaUnavailable: the commit did not finish in time. It may still be applied, but before any later
                commit.
            NotAuthorized, KafkaRefused
        """
        offsets = [TopicPartition(topic, number, at) for (topic, number), at in sorted(positions.items())]
        with self._lock:
            self._commit(offsets, deadline)

    def _committed(
        self, wanted: list[TopicPartition], deadline: Deadline
    ) -> dict[tuple[str, int], CommittedOffset]:
        while wanted:
            timeout_s = deadline.left_s(most=_ONE_REQUEST_S, least=0.05)
            try:
                answers = self._consumer.committed(wanted, timeout=timeout_s)
                error = next((answer.error for answer in answers if answer.error is not None), None)
            except KafkaException as raised:
                error = error_of(raised)
            if error is None:
                self._denied = None
                return {
                    (answer.topic, answer.partition): CommittedOffset(
                        position=answer.offset, metadata=answer.metadata or ""
                    )
                    for answer in answers
                    if answer.offset >= 0
                }
            if error.code() not in NOT_NOW:
                raise refusal(error, operation=READ_COMMITTED, resource=self._group)
            self._wait(READ_COMMITTED, error, deadline)
        return {}

    def _commit(self, offsets: list[TopicPartition], deadline: Deadline) -> None:
        denial: Deadline | None = None
        while offsets:
            # One commit at a time: librdkafka retries unanswered commits, and an older offset could win.
            self._await_answer(deadline)
            self._answer.awaited, self._answer.failed = True, []
            try:
                self._consumer.commit(offsets=offsets, asynchronous=True)
            except KafkaException as raised:
                self._answer(error_of(raised), [])
            self._await_answer(deadline)
            failed = self._answer.failed
            if not failed:
                self._denied = None
                return
            if any(error.code() in UNKNOWN_TOPIC for _, error in failed):
                denial = denial or Deadline.after_ms(_DENIAL_MS)
            self._raise_what_stays(denial)
            self._wait(COMMIT, failed[0][1], deadline)

    def _await_answer(self, deadline: Deadline) -> None:
        while self._answer.awaited:
            self._poll(COMMIT, deadline)
            if deadline.over and self._answer.awaited:
                raise group_unavailable(COMMIT, self._group, deadline, None, self._complaints)

    def _raise_what_stays(self, denial: Deadline | None) -> None:
        """Raise the error of the last response if a retry cannot resolve it."""
        for topic, error in self._answer.failed:
            if error.code() in _HAS_MEMBERS:
                raise GroupInUse(self._group)
            if error.code() in UNKNOWN_TOPIC and denial is not None and denial.over:
                raise TopicNotFound((topic,))
            if error.code() not in NOT_NOW:
                raise refusal_of_offsets(error, operation=COMMIT, topic=topic, group=self._group)

    def _wait(self, operation: str, error: KafkaError, deadline: Deadline) -> None:
        self._poll(operation, deadline)
        if deadline.over:
            raise group_unavailable(operation, self._group, deadline, error, self._complaints)
        deadline.pause(_PAUSE_S)

    def _poll(self, operation: str, deadline: Deadline) -> None:
        # The consumer reports a missing right on the group once, as a message. The requests only time out.
        message = self._consumer.poll(_POLL_S)
        error = message.error() if message is not None else None
        if error is not None and error.code() in UNAUTHORIZED:
            self._denied = error
        if self._denied is not None and deadline.spent_ms > _DENIAL_MS:
            raise refusal(self._denied, operation=operation, resource=self._group)


class RecentGroups:
    """Offsets of the groups that were asked for last. Threads may share it.

    A process that shows all subscriptions asks for more groups than it may have connections.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = dict(config)
        self._lock = threading.Lock()
        self._groups: dict[tuple[str, bool], GroupOffsets] = {}  # in the order of the last call

    def of(self, group: str, *, stable: bool) -> GroupOffsets:
        """Return the offsets of a group, as :class:`GroupOffsets` reads them."""
        with self._lock:
            found = self._groups.pop((group, stable), None)
            found = found or GroupOffsets(self._config, group, stable=stable)
            # One with an unanswered commit stays, because a commit of its successor could overtake that one.
            idle = [key for key, kept in self._groups.items() if kept.is_idle]
            excess = max(0, len(self._groups) + 1 - _KEPT)
            dropped = [self._groups.pop(key) for key in idle[:excess]]
            self._groups[group, stable] = found
        # Each consumer closes where its last reference is dropped: here, outside the lock, or after its call.
        del dropped
        return found

    def committed(
        self, group: str, partitions: Iterable[tuple[str, int]], deadline: Deadline, *, stable: bool
    ) -> dict[tuple[str, int], CommittedOffset]:
        """Return committed offsets, as :meth:`GroupOffsets.committed` does.

        Raises:
            TransactionStaysOpen: ``stable``, and the brokers withhold an offset until a transaction ends.
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        offsets = self.of(group, stable=stable)
        wanted = set(partitions)
        try:
            return offsets.committed(wanted, deadline)
        except KafkaUnavailable as late:
            # librdkafka retries while an offset is withheld, so this looks like a broker without an answer.
            if not stable or not self.of(group, stable=False).answers(wanted):
                raise
            try:  # the transaction, or the silence, may have ended just now
                return offsets.committed(wanted, Deadline.after_ms(_ANSWER_MS))
            except KafkaUnavailable:
                raise TransactionStaysOpen(late.operation, late.waited_ms) from late
