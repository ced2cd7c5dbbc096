"""Consumer group membership: decides which partitions of a subscription this query reads."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from spark_cursor_source.consumer.named_members import is_named_by_commits
from spark_cursor_source.consumer.queue_ids import check_queue_id, described
from spark_cursor_source.consumer.this_process import is_dead, name_member, note_joined, note_left
from spark_cursor_source.core.member_name import MemberName
from spark_cursor_source.core.subscription_type import SubscriptionType
from spark_cursor_source.errors import MemberFenced, SubscriptionInUse
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.group_admin import GroupMemberInfo
from spark_cursor_source.kafka.group_member import SOLE, GroupMember, Partition, not_assigned

log = logging.getLogger(__name__)
_LOOK_S = 0.5  # poll interval of a standby that checks whether the current holder is alive
_SETTLE_S = 1.5  # longer than the time between a standby's check and its join
_JOIN_MS = 10_000  # the broker's join phase waits at least this long for other members
_PAUSE_S = 0.02  # between two looks at the assignment
_PROMPT_S = 1.0  # a look that takes longer had to wait for a coordinator


@dataclass(frozen=True, slots=True)
class _Holder:
    """The member that keeps a query out."""

    description: str
    coordinator: int  #: id of the broker that coordinates the group


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Settings of one member of a subscription's consumer group."""

    group: str
    queue: str  #: the topic selection as text; a sole member is the only member of its group and queue
    type: SubscriptionType
    session_ms: int
    query_id: str
    queue_id: str | None  #: only messages with this key are read; None: all messages


class Membership:
    """Membership of one query in the consumer group of its subscription."""

    def __init__(self, config: Mapping[str, Any], topics: ClusterAdmin, part: GroupConfig) -> None:
        self._config, self._topics, self._part = config, topics, part
        self._name = name_member(part.type, part.query_id, part.queue_id)
        self._member: GroupMember | None = None
        self._since = time.monotonic()  # monotonic seconds since when this query has waited to join
        self._looked_at = 0.0
        self._kept_out: tuple[float, int] | None = None  # monotonic seconds since when, and by which broker
        # True after the check of queue ids. A sole member's name is in the metadata of the offsets then.
        self._is_admitted = False
        self._is_compared = False  # True after the check of a member that has no partitions
        self._joined_at: float | None = None
        self._last: dict[Partition, int] = {}

    def assigned_partitions(self, partitions: Collection[Partition]) -> frozenset[Partition]:
        """Returns the partitions that this query reads. Joins the group if possible.

        Raises:
            SubscriptionInUse: another member has held the subscription for longer than the session timeout.
            MemberFenced: another member has taken over the subscription, and this query is not a standby.
            QueueIdConflict: another member reads or has read other messages of these topics.
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        if self._member is None and not self._try_to_join(partitions):
            return frozenset()
        assert self._member is not None
        self._member.subscribe({topic for topic, _ in partitions})
        try:
            assigned = self._member.partitions
            if assigned is None:
                return frozenset()
            mine = frozenset(partitions) if self._part.type.is_sole else assigned & frozenset(partitions)
            if not mine:
                self._compare_without_partitions(partitions)
                return mine
            return mine if self._may_read(partitions) else frozenset()
        except MemberFenced as fenced:
            self._handle_fencing(fenced)
            return frozenset()

    def take_revoked(self) -> frozenset[Partition]:
        """Returns the partitions that left this query since the last call, also those that have come back."""
        return frozenset() if self._member is None else self._member.take_revoked()

    def _may_read(self, partitions: Collection[Partition]) -> bool:
        """True if the group's other members leave room for this one. Checks their queue ids once.

        It resolves a race between standby queries: the last static member to join wins. Each one that joins
        fences the previous one. When no other standby can still be joining, the last member writes its name
        into the group's offsets. Only a current member can commit.
        """
        if self._is_admitted:
            return True
        self._joined_at = self._joined_at or time.monotonic()
        if self._part.type is SubscriptionType.FAILOVER and time.monotonic() - self._joined_at < _SETTLE_S:
            return False
        committed = self._topics.committed_with_metadata(self._part.group, partitions)
        self._check_queue_id(offset.metadata for offset in committed.values())
        if self._part.type.is_sole:
            self._is_admitted = self.commit({tp: offset.position for tp, offset in committed.items()})
        else:
            # Compared when this member has partitions: of two that join, the later one sees the other.
            self._check_queue_id(other.client_id for other in self._members_of(partitions))
            self._is_admitted = True
        return self._is_admitted

    def _compare_without_partitions(self, partitions: Collection[Partition]) -> None:
        """Checks the queue ids once if the other members have all partitions of these topics.

        This member is checked again when it has partitions.
        """
        if self._part.type.is_sole or self._is_compared:
            return
        # Amid a rebalance the broker shows no member with partitions.
        others = [other.client_id for other in self._members_of(partitions)]
        self._check_queue_id(others)
        self._is_compared = bool(others)

    def _check_queue_id(self, members: Iterable[str]) -> None:
        """Raises :class:`QueueIdConflict` if one of the members has or had another queue id.

        ``members`` are their names, or the metadata of the offsets that they committed.
        """
        check_queue_id(self._name, self._part.group, members)

    def wait_for_assignment(self, partitions: Collection[Partition]) -> frozenset[Partition]:
        """Waits until :meth:`assigned_partitions` is final.

        For a failover subscription, a live holder of the partitions makes the result final and empty.

        Raises:
            KafkaUnavailable: the group has not assigned anything within three minutes. Without this error a
                query with Trigger.AvailableNow would end as if there were nothing to read.
            SubscriptionInUse, MemberFenced, QueueIdConflict, NotAuthorized, KafkaRefused
        """
        deadline = Deadline.after_ms(max(PATIENCE_MS, 2 * self._part.session_ms + _JOIN_MS))
        while True:
            mine = self.assigned_partitions(partitions)
            if mine or self._is_settled or not partitions:
                return mine
            if deadline.over:
                raise not_assigned(self._part.group, self._member, deadline)
            deadline.pause(_PAUSE_S)

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Keeps :meth:`assigned_partitions` constant inside the block, unless the process is paused.

        Raises:
            MemberFenced, KafkaUnavailable: see :meth:`confirm`.
        """
        self.confirm()
        if self._member is None:
            yield
            return
        with self._member.steady():
            yield

    def confirm(self, *, in_doubt: bool = False) -> bool:
        """Aligns :meth:`assigned_partitions` with the broker after a possible pause of this process.

        Returns True if the membership had to be checked with the broker. Partitions held before may belong to
        another member in that case.

        Raises:
            MemberFenced: another member has taken over the subscription, and this query is not a standby.
            KafkaUnavailable: the broker did not answer.
        """
        try:
            return self._member is not None and self._member.confirm(in_doubt=in_doubt)
        except MemberFenced as fenced:
            self._handle_fencing(fenced)
            return True

    def commit(self, positions: Mapping[Partition, int]) -> bool:
        """Commits offsets and waits for the broker. Returns False if this query is no longer a member.

        Raises:
            MemberFenced: another member has taken over the subscription, and this query is not a standby.
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        if self._member is None:
            return False
        try:
            self._member.commit(positions, Deadline.after_ms(PATIENCE_MS))
        except MemberFenced as fenced:
            self._handle_fencing(fenced)
            return False
        self._last |= positions
        return True

    def try_commit(self, positions: Mapping[Partition, int]) -> bool:
        """Queues an offset commit. Returns False if no commit is possible now."""
        done = self._member is not None and self._member.try_commit(positions)
        if done:
            self._last |= positions
        return done

    def living(self) -> frozenset[str]:
        """Returns the query ids of the group's members as the broker shows them.

        Empty if this query may not read. Amid a rebalance this query may be missing.

        Raises:
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        if not self._is_admitted:
            return frozenset()
        if self._part.type.is_sole:
            return frozenset({self._name.query_id})
        names = (MemberName.parse(one.client_id) for one in self._topics.group_members(self._part.group))
        return frozenset(name.query_id for name in names if name is not None)

    def close(self) -> None:
        """Leaves the group."""
        if self._member is not None:
            self._member.close(self._last)
            note_left(self._name)

    def _handle_fencing(self, fenced: MemberFenced) -> None:
        """Handles the loss of membership: waits to join again, or raises ``fenced``."""
        assert self._member is not None
        # After a session timeout no other member is known: the next join shows whether another one has
        # joined.
        if self._part.type is not SubscriptionType.FAILOVER and not self._member.is_given_up:
            raise fenced
        log.warning("The query rejoins its consumer group. event=rejoining_group group=%s", self._part.group)
        self.close()
        self._member, self._since, self._kept_out = None, time.monotonic(), None
        self._is_admitted, self._is_compared, self._joined_at = False, False, None
        self._looked_at = time.monotonic() + _SETTLE_S  # allows time for the other member to write its name

    # -- other members ------------------------------------------------------------------------------------

    @property
    def _is_settled(self) -> bool:
        if self._member is not None:
            return self._is_admitted or self._is_compared
        waits = self._part.type is SubscriptionType.FAILOVER
        return waits and (time.monotonic() - self._since) * 1000 > self._part.session_ms

    def _try_to_join(self, partitions: Collection[Partition]) -> bool:
        now = time.monotonic()
        if now - self._looked_at < _LOOK_S or not partitions:
            return False
        self._looked_at = now
        holder = self._holder(partitions)
        if holder is not None:
            # A dead member stays in the group until its session times out.
            waited_ms = self._kept_out_ms(holder, asked_at=now)
            if self._part.type is not SubscriptionType.FAILOVER and waited_ms > self._part.session_ms + 1_000:
                raise SubscriptionInUse(self._part.group, self._part.type.value, holder.description)
            return False
        note_joined(self._name)
        self._member = GroupMember(
            self._config,
            self._part.group,
            self._name,
            session_ms=self._part.session_ms,
            instance_id=f"{SOLE}-{crc32(self._part.queue.encode())}" if self._part.type.is_sole else None,
        )
        return True

    def _kept_out_ms(self, holder: _Holder, *, asked_at: float) -> float:
        """Returns for how long the holder has kept this query out, under the same coordinator.

        A coordinator that starts gives each member of the group a whole session again, also a dead one.
        """
        waited_for_coordinator = time.monotonic() - asked_at > _PROMPT_S
        if self._kept_out is None or waited_for_coordinator or self._kept_out[1] != holder.coordinator:
            self._kept_out = time.monotonic(), holder.coordinator
        return (asked_at - self._kept_out[0]) * 1000

    def _holder(self, partitions: Collection[Partition]) -> _Holder | None:
        """Returns the member that keeps this query out; None if the subscription is free."""
        for other in self._members_of(partitions):
            if is_named_by_commits(other):
                # The broker shows a static member that replaced another one with the client.id of its
                # predecessor.
                committed = self._topics.committed_with_metadata(self._part.group, partitions)
                names = {offset.metadata for offset in committed.values()} or {other.client_id}
                name = next(filter(None, map(MemberName.parse, sorted(names))), None)
                if name is None or name == self._name or is_dead(name):
                    continue  # the holder has left, died on this machine, or is this member
                self._check_queue_id(names)
                return _Holder(described(name), other.coordinator)
            if self._part.type.is_sole:
                name = MemberName.parse(other.client_id)
                if name is None or not is_dead(name):
                    self._check_queue_id([other.client_id])
                    said = described(name) if name else _stranger(other)
                    return _Holder(said, other.coordinator)
        return None

    def _members_of(self, partitions: Collection[Partition]) -> Iterator[GroupMemberInfo]:
        """Yields the members of the group that read one of these topics. Others do not conflict."""
        topics = {topic for topic, _ in partitions}
        for other in self._topics.group_members(self._part.group):
            if topics & {topic for topic, _ in other.partitions}:
                yield other


def _stranger(member: GroupMemberInfo) -> str:
    return f"a consumer '{member.client_id}' on host {member.host}"
