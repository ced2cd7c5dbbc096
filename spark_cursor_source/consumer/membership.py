"""Which partitions of a subscription are this query's: by the type of the subscription and the group."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from spark_cursor_source.consumer.this_process import is_dead, name_member
from spark_cursor_source.core.member_name import MemberName
from spark_cursor_source.core.subscription_type import SubscriptionType
from spark_cursor_source.errors import MemberFenced, SubscriptionInUse
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.group_admin import GroupMemberInfo
from spark_cursor_source.kafka.group_member import SOLE, GroupMember, Partition

log = logging.getLogger(__name__)
_LOOK_S = 0.5  # how often one that waits looks whether the holder is there
_SETTLE_S = 1.5  # longer than from a look to having joined
_JOIN_MS = 10_000  # a broker waits so long, and longer, for members that may come too
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """What somebody wants of a subscription's group."""

    group: str
    queue: str  #: which topics, as a text: a sole member is the only one of its group and queue
    type: SubscriptionType
    session_ms: int
    query_id: str


class Membership:
    """The part that one query takes in the group of its subscription."""

    def __init__(self, config: Mapping[str, Any], topics: ClusterAdmin, part: GroupConfig) -> None:
        self._config, self._topics, self._part = config, topics, part
        self._name = name_member(part.type, part.query_id)
        self._member: GroupMember | None = None
        self._since = time.monotonic()  # waiting
        self._looked_at = 0.0
        self._is_named = False  # in the metadata of the group's offsets
        self._joined_at: float | None = None
        self._last: dict[Partition, int] = {}

    def assigned_partitions(self, partitions: Collection[Partition]) -> frozenset[Partition]:
        """Those of the partitions that this query is to read; joins the group where it can.

        Raises:
            SubscriptionInUse: somebody has it, and is there for longer than the session timeout.
            MemberFenced: somebody has taken it over, and this query does not wait for it.
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
            if not self._part.type.is_sole:
                return assigned & frozenset(partitions)
            return frozenset(partitions) if self._is_let_be(partitions) else frozenset()
        except MemberFenced as fenced:
            self._give_way(fenced)
            return frozenset()

    def _is_let_be(self, partitions: Collection[Partition]) -> bool:
        """Whether this sole member is the one that stays, of several that waited and saw nobody there.

        Each that joins takes the place of the one before. When no other can still be on its way, the last
        one writes its name, and only a member can.
        """
        if self._is_named:
            return True
        self._joined_at = self._joined_at or time.monotonic()
        if self._part.type is SubscriptionType.FAILOVER and time.monotonic() - self._joined_at < _SETTLE_S:
            return False
        self._is_named = self.commit(self._topics.committed(self._part.group, partitions))
        return self._is_named

    def wait_for_assignment(self, partitions: Collection[Partition]) -> frozenset[Partition]:
        """:meth:`mine`, once it is known: joined, or, of a failover, held by one that is alive."""
        deadline = Deadline.after_ms(2 * self._part.session_ms + _JOIN_MS)
        while True:
            mine = self.assigned_partitions(partitions)
            if mine or self._is_settled or deadline.over:
                return mine
            deadline.pause(_PAUSE_S)

    @contextmanager
    def steady(self) -> Iterator[None]:
        """What :meth:`mine` says stays so inside of this, for as long as the process does not stand still.

        Raises:
            MemberFenced, KafkaUnavailable: as :meth:`confirm`.
        """
        self.confirm()
        if self._member is None:
            yield
            return
        with self._member.steady():
            yield

    def confirm(self, *, in_doubt: bool = False) -> bool:
        """What :meth:`mine` says next is as the broker sees it, though this process may have stood still.

        Whether it had, so that what was this query's before may be another's since.

        Raises:
            MemberFenced: somebody has taken the subscription over, and this query does not wait for it.
            KafkaUnavailable: the broker did not answer.
        """
        try:
            return self._member is not None and self._member.confirm(in_doubt=in_doubt)
        except MemberFenced as fenced:
            self._give_way(fenced)
            return True

    def commit(self, positions: Mapping[Partition, int]) -> bool:
        """Commit offsets; they are on the broker when this returns. False: this is no member any more.

        Raises:
            MemberFenced: somebody has taken the subscription over, and this query does not wait for it.
            TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        if self._member is None:
            return False
        try:
            self._member.commit(positions, Deadline.after_ms(PATIENCE_MS))
        except MemberFenced as fenced:
            self._give_way(fenced)
            return False
        self._last |= positions
        return True

    def try_commit(self, positions: Mapping[Partition, int]) -> bool:
        """Let offsets be committed soon; False where that cannot be now."""
        done = self._member is not None and self._member.try_commit(positions)
        if done:
            self._last |= positions
        return done

    def close(self) -> None:
        """Leave the group."""
        if self._member is not None:
            self._member.close(self._last)

    def _give_way(self, fenced: MemberFenced) -> None:
        """The broker does not take this for a member: wait until it does again, or say so."""
        assert self._member is not None
        # Given up, because it was not heard of: whether anybody has come since is seen when it joins.
        if self._part.type is not SubscriptionType.FAILOVER and not self._member.is_given_up:
            raise fenced
        log.warning("joins_again group=%s", self._part.group)
        self.close()
        self._member, self._since = None, time.monotonic()
        self._is_named, self._joined_at = False, None
        self._looked_at = time.monotonic() + _SETTLE_S  # until the other one has written its name

    # -- who else is there -----------------------------------------------------------------------------

    @property
    def _is_settled(self) -> bool:
        if self._member is not None:
            return self._is_named or (not self._part.type.is_sole and self._member.partitions is not None)
        waits = self._part.type is SubscriptionType.FAILOVER
        return waits and (time.monotonic() - self._since) * 1000 > self._part.session_ms

    def _try_to_join(self, partitions: Collection[Partition]) -> bool:
        now = time.monotonic()
        if now - self._looked_at < _LOOK_S or not partitions:
            return False
        self._looked_at = now
        holder = self._holder(partitions)
        if holder is not None:
            waited_ms = (now - self._since) * 1000
            # For so long it may be a dead one, of which the broker does not know yet.
            if self._part.type is not SubscriptionType.FAILOVER and waited_ms > self._part.session_ms + 1_000:
                raise SubscriptionInUse(self._part.group, self._part.type.value, holder)
            return False
        self._member = GroupMember(
            self._config,
            self._part.group,
            self._name,
            session_ms=self._part.session_ms,
            instance_id=f"{SOLE}-{crc32(self._part.queue.encode())}" if self._part.type.is_sole else None,
        )
        return True

    def _holder(self, partitions: Collection[Partition]) -> str | None:
        """Who keeps this query out, if anybody does."""
        queue = {topic for topic, _ in partitions}
        for other in self._topics.group_members(self._part.group):
            if not queue & {topic for topic, _ in other.partitions}:
                continue  # a subscription is one of a topic
            if (other.instance_id or "").startswith(SOLE):
                # A static member that took the place of another is shown with the client.id of that one.
                committed = self._topics.committed_with_metadata(self._part.group, partitions)
                said = {one.metadata for one in committed.values()} or {other.client_id}
                name = next(filter(None, map(MemberName.parse, sorted(said))), None)
                if name is None or name == self._name or is_dead(name):
                    continue  # it has left, or died on this machine, or this is it
                return _described(name)
            if self._part.type.is_sole:
                name = MemberName.parse(other.client_id)
                if name is None or not is_dead(name):
                    return _described(name) if name else _stranger(other)
        return None


def _described(name: MemberName) -> str:
    return (
        f"query {name.query_id} ({name.type.value}) on host {name.host}, process"
        f" {name.process.partition('@')[0]}, since {name.since}"
    )


def _stranger(member: GroupMemberInfo) -> str:
    return f"a consumer '{member.client_id}' on host {member.host}"
