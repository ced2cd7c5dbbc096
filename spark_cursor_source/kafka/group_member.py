"""Consumer group member that reads no records. It receives an assignment and commits offsets.

With an ``instance_id`` it is a static member (KIP-345). The broker allows one member with that id and fences
the previous one when another joins. Without it the group's assignor distributes the partitions.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spark_cursor_source.core.member_name import MemberName
from spark_cursor_source.errors import KafkaUnavailable, MemberFenced, TopicNotFound
from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.config_roles import consumer_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import (
    COMMIT,
    RETRIABLE,
    TURNED_AWAY,
    UNAUTHORIZED,
    UNKNOWN_TOPIC,
    ErrorCallback,
    error_of,
    failures_of_commit,
    group_unavailable,
    refusal,
    refusal_of_offsets,
)

log = logging.getLogger(__name__)
SOLE = "sole"  #: prefix of the instance id of a sole member
_JOIN = "join group"
_DISCOVERY_MS = 5_000  # upper bound of the delay until new partitions are assigned
_HEARTBEAT_MS = 500  # a fenced member learns of it from the heartbeat response
_POLL_S = 0.02  # until a request of another thread is noticed
_IDLE_POLL_S = 0.2  # the same, for a member that had none for a while
_IDLE_AFTER_S = 5.0
_PAUSE_S = 0.02
_CLOSE_S = 5.0
_FENCED = frozenset({KafkaError.FENCED_INSTANCE_ID, KafkaError._FENCED, KafkaError._FATAL})
_NOT_A_MEMBER_NOW = frozenset({KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID})
# The broker answers REBALANCE_IN_PROGRESS only to members of the current generation.
_NOT_NOW = RETRIABLE | TURNED_AWAY | _NOT_A_MEMBER_NOW | {KafkaError.REBALANCE_IN_PROGRESS}

Partition = tuple[str, int]  #: (topic, partition)


class GroupMember:
    """Consumer group member with its own thread, which keeps it in the group until :meth:`close`.

    It joins the group after :meth:`subscribe`. If the broker receives no heartbeat for ``session_ms``, the
    member loses its partitions immediately. A rebalance moves partitions to another member only while no
    thread is inside :meth:`steady`.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        group: str,
        name: MemberName,
        *,
        session_ms: int,
        instance_id: str | None = None,
    ) -> None:
        self._group, self._name, self._farewell = group, str(name), name.farewell
        self._sole, self._session_ms = instance_id is not None, session_ms
        self._complaints = ErrorCallback()
        settings: dict[str, Any] = {
            "group.id": group,
            "client.id": self._name,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": min(session_ms // 6, _HEARTBEAT_MS),
            "max.poll.interval.ms": max(session_ms, 300_000),
            "partition.assignment.strategy": "cooperative-sticky",
            "topic.metadata.refresh.interval.ms": _DISCOVERY_MS,
            "error_cb": self._complaints,
            "on_commit": self._on_commit,
        }
        if self._sole:
            settings["group.instance.id"] = instance_id
        self._consumer: Consumer = open_client(Consumer, consumer_config(config, settings))
        self._lock = threading.Condition(threading.RLock())  # guards the fields below
        self._wanted: frozenset[str] = frozenset()
        self._partitions: frozenset[Partition] | None = None
        self._revoked: frozenset[Partition] = frozenset()  # since the last take_revoked
        self._rebalances = 0  # number of changes of the assignment
        self._unknown: set[str] = set()  # topics that the brokers do not know; of the member thread
        self._hides_once = False  # the next look at the assignment finds it lost
        self._metadata: Any = None  # None after each rebalance until the member thread has read it
        self._failure: KafkaError | None = None
        self._ended_by: Exception | None = None  # what ended the member thread
        self._commit_lock = threading.Lock()
        self._waiting = False  # True while a commit waits for its response
        self._answers: list[tuple[str, KafkaError]] = []  # (topic, error) of the last commit
        self._committed: dict[Partition, int] = {}
        self._requests: deque[list[TopicPartition]] = deque()  # commits that the member thread has to send
        self._heard_at = self._busy_at = time.monotonic()
        self.is_given_up = False  #: sole member only: its partitions were lost and it is in no group
        self._is_doubtful = False  # this process was paused for so long that the session may have expired
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cursorq-group-member", daemon=True)
        self._thread.start()

    def subscribe(self, topics: Collection[str]) -> None:
        """Set the topics of the member. The member thread then joins the group for them.

        Without topics, the member stays in the group for those it had, because a deleted topic may be created
        again. A member that left could not commit, and another sole member could join.
        """
        self._wanted = frozenset(topics)

    @property
    def partitions(self) -> frozenset[Partition] | None:
        """Partitions assigned to this member. None before it has joined and after its session has expired.

        Raises:
            MemberFenced: another sole member has joined.
            NotAuthorized, KafkaRefused: the group refuses the member.
        """
        with self._lock:
            self._check()
            if self._hides_once:
                self._hides_once = False
                return None
            return self._partitions

    def take_revoked(self) -> frozenset[Partition]:
        """Return the partitions that left this member since the last call, also those that have come back.

        Another member may have read a partition that came back.
        """
        with self._lock:
            revoked, self._revoked = self._revoked, frozenset()
            return revoked

    def metadata(self) -> Any:
        """Return the group metadata of this member, the fence of a transactional commit of offsets.

        Raises:
            KafkaUnavailable: the member is in no group, also because it was closed.
        """
        deadline = Deadline.after_ms(self._session_ms)
        with self._lock:
            while not self._closing.is_set():
                if self._metadata is not None:
                    return self._metadata
                self._check()
                if deadline.over:
                    raise group_unavailable(_JOIN, self._group, deadline, None, self._complaints)
                self._lock.wait(deadline.left_s(most=0.5, least=0.01))
        raise KafkaUnavailable(_JOIN, deadline.spent_ms, "the member has left the group")

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Hold the assignment: inside the block no partition moves to another member.

        The only exception is a member whose session has expired. Keep the block short, because other members
        wait for their partitions. If this process may have been paused for long, call :meth:`confirm` first.
        """
        with self._lock:
            yield

    def confirm(self, *, in_doubt: bool = False) -> bool:
        """Check that :attr:`partitions` match the broker's view, even if this process was paused until now.

        Returns True if a request to the broker was necessary. Partitions that were assigned before the call
        may then belong to another member.

        Raises:
            MemberFenced: another sole member has joined.
            KafkaUnavailable: the broker did not respond.
        """
        if not in_doubt and not self._is_doubtful and self._silent_ms <= self._session_ms / 2:
            return False
        self._prove_membership()
        return True

    def commit(self, positions: Mapping[Partition, int], deadline: Deadline) -> None:
        """Commit offsets as this member. They are durable on the broker when this method returns.

        Raises:
            MemberFenced: another sole member has joined.
            TopicNotFound: a topic no longer exists.
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        with self._commit_lock:
            self._commit(positions, self._name, deadline)

    def try_commit(self, positions: Mapping[Partition, int]) -> bool:
        """Commit offsets asynchronously.

        Return False, without a commit, if the previous commit is still pending or the member has no
        assignment.
        """
        if not positions or not self._commit_lock.acquire(blocking=False):
            return False
        try:
            with self._lock:
                if self._waiting or self._partitions is None:
                    return False
            self._request(positions, self._name)
            return True
        finally:
            self._commit_lock.release()

    def close(self, positions: Mapping[Partition, int] | None = None) -> None:
        """Leave the group.

        A sole member first commits offsets without its name, which announces that it leaves.
        """
        if self._closing.is_set():
            return
        if self._sole and positions and self._partitions is not None:
            try:
                with self._commit_lock:
                    self._commit(positions, self._farewell, Deadline.after_ms(int(_CLOSE_S * 1000)))
            except Exception as why:  # noqa: BLE001 - it leaves all the same, a session timeout later
                log.info(
                    "The member could not leave its consumer group in order. event=leave_group_failed "
                    "group=%s why=%s",
                    self._group,
                    why,
                )
        self._closing.set()
        self._thread.join(_CLOSE_S)

    # -- member thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._stay()
        except Exception as why:  # noqa: BLE001 - who waits for this thread gets it
            self._ended_by = why
            told = error_of(why) if isinstance(why, KafkaException) else None
            self._fail(told or KafkaError(KafkaError._FAIL, repr(why)))
        finally:
            self._consumer.close()

    def _stay(self) -> None:
        """Keep the member in the group until it is closed."""
        joined: frozenset[str] = frozenset()
        while not self._closing.is_set():
            # Subscribe in this thread. A call of another thread could wait forever while this one polls.
            if (wanted := self._wanted) and wanted != joined and not self.is_given_up:
                joined = wanted
                self._subscribe(joined)
                self._busy_at = time.monotonic()
            while self._requests:
                self._send(self._requests.popleft())
                self._busy_at = time.monotonic()
            try:
                told = self._consumer.poll(self._poll_s)
            except KafkaException as raised:
                self._take_in(error_of(raised))
                continue
            if told is not None and (error := told.error()) is not None:
                if error.code() in UNKNOWN_TOPIC:
                    self._unknown.add(told.topic() or "")
                self._take_in(error)
            self._is_doubtful |= self._silent_ms > self._session_ms / 2
            self._heard_at = time.monotonic()
            if self._metadata is None and self._partitions is not None:
                self._read_metadata()

    @property
    def _poll_s(self) -> float:
        # Events of the group end a poll at once. Only requests of other threads wait for its end.
        is_idle = self._partitions is not None and time.monotonic() - self._busy_at > _IDLE_AFTER_S
        return _IDLE_POLL_S if is_idle else _POLL_S

    def _read_metadata(self) -> None:
        # In this thread. In another one the call could wait forever while this one polls.
        metadata = self._consumer.consumer_group_metadata()
        with self._lock:
            self._metadata = metadata
            self._lock.notify_all()

    def _subscribe(self, topics: frozenset[str]) -> None:
        self._consumer.subscribe(
            sorted(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _take_in(self, error: KafkaError) -> None:
        if error.code() in _FENCED | UNAUTHORIZED or (error.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL):
            self._fail(error)
            self._closing.wait(1.0)  # a fatal error is reported at every poll

    def _fail(self, error: KafkaError) -> None:
        with self._lock:
            self._failure = error
            self._partitions = None
            self._lock.notify_all()

    def _on_assign(self, consumer: Consumer, added: list[TopicPartition]) -> None:
        began = [TopicPartition(place.topic, place.partition, 0) for place in added]
        consumer.incremental_assign(began)
        self._unknown -= {place.topic for place in added}
        if began:
            consumer.pause(began)  # this consumer reads no records
        with self._lock:
            self._rebalances += 1
            self._metadata = None
            # Not the previous set and `added`: a refused commit may have cleared the set. A consumer that
            # closes tells nothing.
            places = added if self._closing.is_set() else consumer.assignment()
            assigned = frozenset((place.topic, place.partition) for place in places)
            self._partitions = assigned
            self._lock.notify_all()
        log.info(
            "Partitions were assigned. event=partitions_assigned group=%s added=%d now=%d",
            self._group,
            len(added),
            len(assigned),
        )

    def _on_revoke(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        with self._lock:  # waits for threads inside steady
            consumer.incremental_unassign(taken)
            self._rebalances += 1
            self._metadata = None
            if not self._sole and self._partitions is not None:  # a sole member keeps all until it leaves
                revoked = {(place.topic, place.partition) for place in taken}
                self._partitions -= revoked
                self._revoked |= revoked
        log.info(
            "Partitions were revoked. event=partitions_revoked group=%s partitions=%d",
            self._group,
            len(taken),
        )

    def _on_lost(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        self._rebalances += 1
        self._metadata = None
        self._revoked |= {(place.topic, place.partition) for place in taken}
        self._partitions = None  # also for threads inside steady, because another member may own them already
        if self._sole:
            # Unsubscribe before the unassign. Otherwise the consumer would rejoin and fence its successor.
            consumer.unsubscribe()
            self.is_given_up = True
        consumer.incremental_unassign(taken)
        # The consumer tells that a topic is unknown before it gives the partitions up.
        topics = {place.topic for place in taken}
        if topics and topics <= self._unknown:
            log.warning(
                "Topics of this consumer group member were deleted, and their partitions are lost. "
                "event=assigned_topics_deleted group=%s topics=%s partitions=%d",
                self._group,
                ",".join(sorted(topics)),
                len(taken),
            )
            return
        log.warning(
            "The consumer group removed this member, and its partitions are lost. "
            "event=session_expired group=%s partitions=%d",
            self._group,
            len(taken),
        )

    # -- commits ---------------------------------------------------------------------------------------

    def _commit(self, positions: Mapping[Partition, int], metadata: str, deadline: Deadline) -> None:
        denial: Deadline | None = None
        while positions:
            self._await_answer(deadline)
            self._request(positions, metadata)
            self._await_answer(deadline)
            with self._lock:
                failed = list(self._answers)
            if not failed:
                return
            for topic, error in failed:
                if error.code() in _FENCED:
                    raise MemberFenced(self._group)
                if error.code() in UNKNOWN_TOPIC:
                    denial = denial or Deadline.after_ms(3_000)
                    if denial.over:
                        raise TopicNotFound((topic,))
                elif error.code() not in _NOT_NOW:
                    raise refusal_of_offsets(error, operation=COMMIT, topic=topic, group=self._group)
            if deadline.over:
                raise group_unavailable(COMMIT, self._group, deadline, failed[0][1], self._complaints)
            deadline.pause(_PAUSE_S)

    def _request(self, positions: Mapping[Partition, int], metadata: str) -> None:
        offsets = [
            TopicPartition(topic, number, at, metadata) for (topic, number), at in sorted(positions.items())
        ]
        with self._lock:
            self._waiting, self._answers = True, []
            self._committed |= positions
        self._requests.append(offsets)

    def _send(self, offsets: list[TopicPartition]) -> None:
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as raised:
            self._on_commit(error_of(raised), [])

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        with self._lock:
            self._waiting, self._answers = False, failures_of_commit(error, partitions)
            self._lock.notify_all()

    def _await_answer(self, deadline: Deadline) -> None:
        with self._lock:
            while self._waiting:
                self._lock.wait(deadline.left_s(most=0.5, least=0.01))
                self._check()
                if deadline.over and self._waiting:
                    raise group_unavailable(COMMIT, self._group, deadline, None, self._complaints)

    def _prove_membership(self) -> None:
        """Ask the broker whether this is still a member of the group."""
        deadline = Deadline.after_ms(self._session_ms)
        asked_at = time.monotonic()
        while self._heard_at < asked_at and not deadline.over:
            self._check()
            deadline.pause(_PAUSE_S)
        with self._commit_lock:
            self._await_answer(deadline)
            with self._lock:
                mine, rebalances = self._partitions or frozenset(), self._rebalances
                last = {tp: at for tp, at in self._committed.items() if self._sole or tp in mine}
            if not last:
                self._is_doubtful = False
                return
            # Repeat the last commit. The broker accepts it only from a member of the current generation.
            self._request(last, self._name)
            self._await_answer(deadline)
            with self._lock:
                codes = {error.code() for _, error in self._answers}
                if codes & _FENCED:
                    raise MemberFenced(self._group)
                if codes & _NOT_A_MEMBER_NOW:
                    # If the member has joined again since, its new assignment is valid, and no other one
                    # would follow. The caller must see once that the earlier one is lost.
                    if self._rebalances == rebalances:
                        self._partitions = None
                    else:
                        self._hides_once = True
                self._is_doubtful = False

    @property
    def _silent_ms(self) -> float:
        return (time.monotonic() - self._heard_at) * 1000

    def _check(self) -> None:
        if self.is_given_up:
            raise MemberFenced(self._group)
        error = self._failure
        if error is None:
            return
        if error.code() in _FENCED:
            raise MemberFenced(self._group)
        raise refusal(error, operation=_JOIN, resource=self._group) from self._ended_by


def not_assigned(group: str, member: GroupMember | None, deadline: Deadline) -> KafkaUnavailable:
    """Return the error for a group that has assigned nothing until the deadline."""
    complaints = None if member is None else member._complaints
    return group_unavailable(_JOIN, group, deadline, None, complaints)
