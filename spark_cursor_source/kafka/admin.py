"""Admin requests about topics, offsets and consumer groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaException, TopicPartition

from spark_cursor_source.core.durability import WeakTopic
from spark_cursor_source.core.stream_metadata import Broker
from spark_cursor_source.errors import (
    CursorqError,
    KafkaUnavailable,
    NotAuthorized,
    TopicGone,
    TopicNotFound,
)
from spark_cursor_source.kafka.admin_requests import ADMIN_TYPES, DENIAL_MS, FIRST_CONTACT_MS, AdminRequests
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.control_topics import (
    CURSORS,
    DEFAULT_PARTITIONS,
    MARKERS,
    REDELIVERIES,
    RESCUE,
    STREAMS,
    TopicKind,
    await_deletion,
    await_leaders,
    broker_settings,
    create_topics,
    delete_records,
    delete_topics,
    describe_topics,
    ensure_topics,
    known_ids,
    leader_of,
    leaders_of,
    topic_settings,
)
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import RETRIABLE, acl, error_of, refusal
from spark_cursor_source.kafka.group_admin import (
    GroupMemberInfo,
    delete_group,
    group_members,
    members_by_group,
)
from spark_cursor_source.kafka.group_offsets import CommittedOffset, RecentGroups
from spark_cursor_source.kafka.replication import warn_of_weak_topics, weak_topics
from spark_cursor_source.kafka.rights import missing_rights
from spark_cursor_source.options.topic_pattern import compile_topic_pattern

Partition = tuple[str, int]  #: (topic, partition)
AnswerT = TypeVar("AnswerT")
_Ask = Callable[["ClusterAdmin", list[Partition]], dict[Partition, AnswerT]]

_LATEST = ADMIN_TYPES.OffsetSpec.latest()
_EARLIEST = ADMIN_TYPES.OffsetSpec.earliest()
_LATEST_MS = 2**63 - 1  # a later time cannot be sent, and a negative one means a position
_MAX_TIMESTAMP = ADMIN_TYPES.OffsetSpec.max_timestamp()
_ONE_REQUEST_S = 10.0
_FIRST_LOOK_S = 2.0  # an election takes less
_ONE_LEADER_S = 5.0
_REFRESH_S = 3.0  # short, because a client without brokers waits in vain
_LAST_LOOK_S = 1.0  # beyond a deadline, for the reason
_PAUSE_S = 0.02
_ROUNDING_S = 0.05  # a request with the rest of a deadline may end that much earlier
_OPEN_TRANSACTION_S = 0.005  # poll interval: most transactions end within a few milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """Name, id and partition count of a topic.

    A topic that is recreated under the same name has another id.
    """

    name: str
    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlTopics:
    """Partition count of each control topic."""

    markers: int
    redeliveries: int
    cursors: int


class LogEnd(NamedTuple):
    """End offset of a partition, and the epoch of its leader; None: the broker tells no epoch."""

    offset: int
    epoch: int | None


def epochs_of(ends: Mapping[Partition, LogEnd]) -> dict[Partition, int]:
    """Return the leader epochs of the partitions whose brokers tell them."""
    return {partition: end.epoch for partition, end in ends.items() if end.epoch is not None}


class Append(NamedTuple):
    """Offset, append time in milliseconds and leader epoch of an appended record."""

    offset: int
    at_ms: int
    leader_epoch: int | None


class ClusterAdmin:
    """Admin client for topics, offsets and consumer groups. It is thread-safe and lives as long as its owner.

    Every call ends within ``timeout_ms`` (default 30 s). It returns a result or raises KafkaUnavailable,
    NotAuthorized or KafkaRefused.
    """

    def __init__(self, config: Mapping[str, Any], *, timeout_ms: int = 30_000) -> None:
        self._config = dict(config)
        self._calls = AdminRequests(config)
        self._timeout_ms = timeout_ms
        self._judged: set[str] = set()  # topics whose replication has been checked
        self._until: Deadline | None = None
        self._groups = RecentGroups(config)

    def meet(self) -> ClusterAdmin:
        """Wait for the first response of the brokers and return this admin client.

        Call it at the start of a query, a client or a command.

        Raises:
            KafkaUnavailable: no connection to the brokers can be made. The error comes after a few seconds,
                before ``timeout_ms``.
        """
        self._calls.meet(within_ms=min(self._timeout_ms, FIRST_CONTACT_MS))
        return self

    def within(self, deadline: Deadline | None) -> ClusterAdmin:
        """Return an admin client with the same connections whose calls also end by ``deadline``."""
        view = copy(self)
        view._until = deadline
        return view

    def ensure_control(
        self, *, markers: str, redeliveries: str, cursors: str, partitions: int = DEFAULT_PARTITIONS
    ) -> ControlTopics:
        """Create missing control topics, wait for their leaders, and check the settings of all of them.

        A created topic has ``partitions`` partitions.

        Raises:
            MarkersTopicNotLogAppendTime, CursorsTopicNotCompacted: an existing topic has unsuitable settings.
        """
        kinds = {markers: MARKERS, redeliveries: REDELIVERIES, cursors: CURSORS}
        counts = self._ensure(kinds, partitions)
        return ControlTopics(
            markers=counts[markers], redeliveries=counts[redeliveries], cursors=counts[cursors]
        )

    def ensure_markers(self, markers: str, *, partitions: int = DEFAULT_PARTITIONS) -> int:
        """Create and check a markers topic as :meth:`ensure_control` does. Return its partition count."""
        return self._ensure({markers: MARKERS}, partitions)[markers]

    def ensure_cursors(self, cursors: str) -> int:
        """Create and check a cursors topic as :meth:`ensure_control` does. Return its partition count."""
        return self._ensure({cursors: CURSORS})[cursors]

    def ensure_rescue(self, rescue: str) -> int:
        """Create and check a rescue topic as :meth:`ensure_control` does. Return its partition count.

        Raises:
            RescueTopicNotCompacted: the topic exists with another cleanup policy.
        """
        return self._ensure({rescue: RESCUE})[rescue]

    def ensure_streams(self, streams: str) -> int:
        """Create and check a streams topic, which has one partition when it is created.

        Return its partition count.

        Raises:
            StreamsTopicUnfit: the topic exists with other settings.
        """
        return self._ensure({streams: STREAMS}, 1)[streams]

    def _ensure(self, kinds: Mapping[str, TopicKind], partitions: int = DEFAULT_PARTITIONS) -> dict[str, int]:
        counts = ensure_topics(self._calls, kinds, partitions=partitions, deadline=self._deadline())
        if new := kinds.keys() - self._judged:
            warn_of_weak_topics(self._calls, new, deadline=self._deadline())
            self._judged.update(new)
        return counts

    def weak(self, topics: Iterable[str]) -> tuple[WeakTopic, ...]:
        """Return the existing topics that could have more replicas or a higher ``min.insync.replicas``."""
        return weak_topics(self._calls, topics, deadline=self._deadline())

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """Return id and partition count of each topic.

        Raises:
            TopicNotFound: at least one topic does not exist. The error names all missing topics.
        """
        wanted = set(topics)
        found = self.existing(wanted, wanted=[(name, 0) for name in wanted])
        if missing := tuple(sorted(wanted - found.keys())):
            raise TopicNotFound(missing)
        return found

    def partitions_of(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic in ascending order.

        Raises:
            TopicNotFound
        """
        return [(topic, number) for number in range(self.describe([topic])[topic].partitions)]

    def existing(self, topics: Iterable[str], *, wanted: Collection[Partition] = ()) -> dict[str, TopicInfo]:
        """Return id and partition count of the topics that exist.

        A topic created just before may be absent, unless one of its partitions is ``wanted``: a call waits
        some seconds for those that are missing.
        """
        return {
            name: TopicInfo(name=name, topic_id=str(topic.topic_id), partitions=len(topic.partitions))
            for name, topic in self._described(topics, wanted).items()
        }

    def placements(
        self, topic: str, *, wanted: Collection[int] = ()
    ) -> dict[int, tuple[int | None, tuple[int, ...], tuple[int, ...]]]:
        """Return (leader, replicas, in-sync replicas) as broker ids, by partition.

        Empty if the topic is missing. Waits for ``wanted`` partitions as :meth:`existing` does.
        """
        found = self._described([topic], [(topic, number) for number in wanted])
        return {
            part.id: (
                leader_of(part),
                tuple(node.id for node in part.replicas),
                tuple(node.id for node in part.isr),
            )
            for described in found.values()
            for part in described.partitions
        }

    def _described(self, topics: Iterable[str], wanted: Collection[Partition]) -> dict[str, Any]:
        """Return librdkafka's description of the topics that exist.

        A broker that is behind denies what exists, so a wanted partition is only missing if it stays so.
        """
        names, denial = sorted(set(topics)), Deadline.after_ms(DENIAL_MS)
        while True:
            found, _ = describe_topics(self._calls, names, deadline=self._deadline())
            there = {(name, part.id) for name, described in found.items() for part in described.partitions}
            is_over = denial.over or (self._until is not None and self._until.over)
            if is_over or there.issuperset(wanted):
                return found
            denial.pause(_PAUSE_S)

    def missing_rights(self, wanted: Mapping[str, Collection[str]]) -> list[str]:
        """Return the rights among ``{topic: operations}`` that are missing, as ``kafka-acls.sh`` arguments.

        Operations are those of :mod:`spark_cursor_source.kafka.rights`. A right that the brokers do not
        report is only detected when the operation is performed.
        """
        missing, _ = missing_rights(self._calls, wanted, deadline=self._deadline())
        return [acl(operation, topic) for topic, operation in missing]

    def check_rights(
        self,
        wanted: Mapping[str, Collection[str]],
        *,
        group: str | None = None,
        stable: bool = True,
        unknown: Iterable[str] = (),
    ) -> None:
        """Check the rights on topics, and Read on a consumer group, before any work is done.

        ``stable`` is that of :meth:`committed_with_metadata`. ``unknown`` are further required rights that no
        request can check. The error names them only if other rights are missing.

        Raises:
            NotAuthorized: at least one right is missing. The error names all missing rights.
        """
        missing, visible = missing_rights(self._calls, wanted, deadline=self._deadline())
        acls, unknown = [acl(operation, topic) for topic, operation in missing], list(unknown)
        first = missing[:1]
        if group is not None:
            of_group = acl("Read", group, "group")
            try:
                # The request asks for the group's offsets in a visible topic. Without a topic the brokers do
                # not check the group's rights.
                asked = [(topic, 0) for topic in visible[:1]]
                self.committed_with_metadata(group, asked, stable=stable)
                unknown += [] if visible else [of_group]
            except NotAuthorized as denied:
                acls.append(of_group)
                first = first or [(denied.resource, denied.operation)]
        for name, operation in first:
            raise NotAuthorized(name, operation, tuple(acls), tuple(unknown))

    def create(self, topics: Mapping[str, tuple[int, Mapping[str, object]]]) -> None:
        """Create ``{name: (partitions, settings)}`` with up to three replicas and wait for the leaders.

        A topic that exists, or that another client creates at the same time, is left unchanged.
        """
        deadline = self._deadline()
        create_topics(self._calls, topics, deadline=deadline)
        await_leaders(self._calls, list(topics), deadline=deadline)

    def create_new(
        self, topic: str, partitions: int, settings: Mapping[str, object], *, replication: int | None
    ) -> bool:
        """Create one topic and wait for its leaders. Return False if the topic already existed.

        With ``replication=None`` the topic has three replicas and ``min.insync.replicas`` of two, or fewer if
        the cluster has fewer brokers.
        """
        deadline = self._deadline()
        was_there = bool(self.existing([topic]))
        new = {topic: (partitions, settings)}
        asked = create_topics(self._calls, new, replication=replication, deadline=deadline).get(topic, 0)
        if asked == 1 or (asked and was_there):
            return False
        await_leaders(self._calls, [topic], deadline=deadline)
        return True

    def delete(self, topic: str) -> bool:
        """Delete a topic and wait until it is no longer shown. Return False if it did not exist."""
        deadline = self._deadline()
        before = self.existing([topic]).get(topic)
        asked = delete_topics(self._calls, [topic], deadline=deadline).get(topic, 0)
        if before is not None:
            await_deletion(self._calls, topic, before.topic_id, deadline=deadline)
        return not asked or (asked > 1 and before is not None)

    def delete_records(self, positions: Mapping[Partition, int]) -> None:
        """Delete the records below these offsets. Topics that do not exist are skipped."""
        delete_records(self._calls, positions, deadline=self._deadline())

    def settings(self, topic: str) -> dict[str, str | None]:
        """Return the effective configuration of a topic."""
        return topic_settings(self._calls, [topic], deadline=self._deadline())[topic]

    def broker_settings(self) -> dict[int, dict[str, str | None]]:
        """Return the effective configuration of each live broker."""
        brokers = [one.id for one in self.brokers()]
        return broker_settings(self._calls, brokers, deadline=self._deadline())

    def matching(self, pattern: str) -> list[str]:
        """Return the topics whose whole name matches a Java regular expression, without internal topics."""
        return matching_topics(pattern, list(self._cluster().topics))

    def brokers(self) -> tuple[Broker, ...]:
        """Return the live brokers, sorted by id."""
        found = sorted(self._cluster().brokers.values(), key=lambda one: one.id)
        return tuple(Broker(id=broker.id, host=broker.host, port=broker.port) for broker in found)

    def cluster_id(self) -> str:
        """Return the id of the cluster, which no other cluster has."""
        return str(self._cluster().cluster_id)

    def end_offsets(self, partitions: Iterable[Partition], *, committed: bool) -> dict[Partition, int]:
        """Return the high watermark of each partition, or the last stable offset if ``committed``."""
        return {
            partition: end.offset for partition, end in self.log_ends(partitions, committed=committed).items()
        }

    def log_ends(self, partitions: Iterable[Partition], *, committed: bool) -> dict[Partition, LogEnd]:
        """Return the end offsets as :meth:`end_offsets` does, with the leader epoch at that end."""
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        found = self._list_offsets(partitions, _LATEST, isolation)
        return {partition: LogEnd(info.offset, info.leader_epoch) for partition, info in found.items()}

    def settled_ends(
        self, partitions: Collection[Partition], until: Deadline
    ) -> tuple[dict[Partition, int], bool]:
        """Return the last stable offset of each partition after the transactions that are open now.

        The flag is False if one of them is still open at the deadline.
        """
        appended = self.end_offsets(partitions, committed=False)
        readable: dict[Partition, int] = {}
        while True:
            try:
                readable = self.end_offsets(partitions, committed=True)
            except KafkaUnavailable:
                if not readable or self._until is None or self._until.left_s() > _ROUNDING_S:
                    raise
                return readable, False  # the rest of the time of a view was too short for another request
            settled = all(readable[partition] >= end for partition, end in appended.items())
            if settled or until.over:
                return readable, settled
            until.pause(_OPEN_TRANSACTION_S)

    def existing_ends(self, partitions: Collection[Partition], *, committed: bool) -> dict[Partition, int]:
        """Return the end offsets of the partitions that exist, as :meth:`end_offsets` does."""
        infos = self.existing(topic for topic, _ in partitions)
        there = [tp for tp in partitions if tp[0] in infos and tp[1] < infos[tp[0]].partitions]
        try:
            return self.end_offsets(there, committed=committed)
        except (TopicNotFound, TopicGone):  # a topic was deleted after the check above
            return self.existing_ends(there, committed=committed)

    def known_ends(
        self, partitions: Collection[Partition], *, committed: bool
    ) -> tuple[dict[Partition, int], dict[Partition, str]]:
        """Return the end offsets of the partitions that exist, and why other ends cannot be read for now.

        A partition without a leader, a broker that does not answer or a missing right holds up no other
        partition.
        """
        return self._known(partitions, lambda topics, some: topics.end_offsets(some, committed=committed))

    def known_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the id of each topic that exists and may be described."""
        return known_ids(self._calls, sorted(set(topics)), deadline=self._deadline())

    def known_beginnings(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the offset of the first remaining record of each partition that :meth:`known_ends` knows."""
        return self._known(partitions, ClusterAdmin.beginning_offsets)[0]

    def _known(
        self, partitions: Collection[Partition], ask: _Ask[AnswerT]
    ) -> tuple[dict[Partition, AnswerT], dict[Partition, str]]:
        """Return the answers about the partitions that exist, and why other answers are missing for now."""
        by_leader, unknown = self._by_leader(partitions)
        together = [partition for group in by_leader.values() for partition in group]
        try:
            try:
                return ask(self._soon(_ONE_LEADER_S), together), unknown
            except KafkaUnavailable as why:
                if len(by_leader) == 1:
                    return {}, unknown | dict.fromkeys(together, str(why))
            # The request waits for the slowest leader, so each is asked alone. By now, the brokers know more.
            by_leader, unknown = self._by_leader(partitions)
            answers: dict[Partition, AnswerT] = {}
            for group in by_leader.values():
                try:
                    answers |= ask(self._soon(_FIRST_LOOK_S), group)
                except KafkaUnavailable as why:
                    unknown |= dict.fromkeys(group, str(why))
        except (TopicNotFound, TopicGone, NotAuthorized):  # it is so since the look above
            return self._known(partitions, ask)
        return answers, unknown

    def _by_leader(
        self, partitions: Collection[Partition]
    ) -> tuple[dict[int, list[Partition]], dict[Partition, str]]:
        """Return the existing partitions by the id of their leader, and why other leaders are unknown."""
        names = sorted({topic for topic, _ in partitions})
        leaders, denied = leaders_of(self._calls, names, deadline=self._deadline())
        unknown: dict[Partition, str] = {}
        by_leader: dict[int, list[Partition]] = {}
        for topic, number in partitions:
            leader = leaders.get((topic, number))
            if topic in denied:
                unknown[topic, number] = str(denied[topic])
            elif leader is not None:
                by_leader.setdefault(leader, []).append((topic, number))
            elif (topic, number) in leaders:
                unknown[topic, number] = f"partition {number} of topic '{topic}' has no leader"
        return by_leader, unknown

    def _soon(self, most_s: float) -> ClusterAdmin:
        """Return an admin client whose calls end after so many seconds."""
        return self.within(Deadline.after_ms(int(self._deadline().left_s(most=most_s) * 1000)))

    def without_leader(self, partitions: Collection[Partition]) -> set[Partition]:
        """Return those of the partitions that exist and have no leader."""
        found, _ = describe_topics(
            self._calls, sorted({topic for topic, _ in partitions}), deadline=self._deadline()
        )
        leaderless = {
            (name, part.id)
            for name, described in found.items()
            for part in described.partitions
            if leader_of(part) is None
        }
        return leaderless.intersection(partitions)

    def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the offset of the first remaining record of each partition."""
        found = self._list_offsets(partitions, _EARLIEST)
        return {partition: info.offset for partition, info in found.items()}

    def bounds(self, partitions: Collection[Partition]) -> dict[Partition, tuple[int, int]]:
        """Return the offset of the first remaining record and the last stable offset of each partition."""
        begins = self.beginning_offsets(partitions)
        ends = self.end_offsets(partitions, committed=True)
        return {partition: (begin, ends[partition]) for partition, begin in begins.items()}

    def offsets_for_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """Return the offset of the first record at or after this timestamp, else the end offset."""
        partitions = list(partitions)
        # Read the end offsets first. A record that is appended between the two requests is then not skipped.
        ends = self.end_offsets(partitions, committed=False)
        known_ms = min(max(0, timestamp_ms), _LATEST_MS)
        found = self._list_offsets(partitions, ADMIN_TYPES.OffsetSpec.for_timestamp(known_ms))
        return {
            partition: info.offset if info.offset >= 0 else ends[partition]
            for partition, info in found.items()
        }

    def last_appends(self, partitions: Iterable[Partition]) -> dict[Partition, Append]:
        """Return the record with the latest timestamp of each partition. Empty partitions are absent."""
        return {
            partition: Append(info.offset, info.timestamp, info.leader_epoch)
            for partition, info in self._list_offsets(partitions, _MAX_TIMESTAMP).items()
            if info.offset >= 0 and info.timestamp >= 0
        }

    def newest_ms(self, partitions: Collection[Partition], *, known_only: bool = False) -> dict[str, int]:
        """Return the latest timestamp (ms) in these partitions, by topic. Topics without one are absent.

        ``known_only`` leaves out the partitions that :meth:`known_ends` does not know.
        """
        ask = ClusterAdmin.last_appends
        found = self._known(partitions, ask)[0] if known_only else ask(self, partitions)
        newest: dict[str, int] = {}
        for (topic, _), last in found.items():
            newest[topic] = max(newest.get(topic, 0), last.at_ms)
        return newest

    def committed(self, group: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Return the group's committed offset of each partition that has one."""
        found = self.committed_with_metadata(group, partitions)
        return {partition: committed.position for partition, committed in found.items()}

    def committed_with_metadata(
        self, group: str, partitions: Iterable[Partition], *, stable: bool = True
    ) -> dict[Partition, CommittedOffset]:
        """Return committed offsets with metadata.

        If ``stable``, wait for open transactions that set offsets.

        Raises:
            TransactionStaysOpen: such a transaction is still open at the deadline.
            KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        return self._groups.committed(group, partitions, self._deadline(), stable=stable)

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets of a group without members. Standard lag tools show these offsets.

        Raises:
            GroupInUse: the group has members.
            TopicNotFound: a topic no longer exists.
        """
        self._groups.of(group, stable=True).commit(offsets, self._deadline())

    def group_members(self, group: str) -> tuple[GroupMemberInfo, ...]:
        """Return the members of a consumer group."""
        return group_members(self._calls, group, deadline=self._deadline())

    def members_by_group(self, groups: Collection[str]) -> dict[str, tuple[GroupMemberInfo, ...]]:
        """Return the members of many consumer groups in a few requests."""
        return members_by_group(self._calls, groups, deadline=self._deadline())

    def delete_group(self, group: str) -> bool:
        """Delete a consumer group with its offsets. Return False if the group did not exist.

        Raises:
            GroupInUse: the group has members.
        """
        return delete_group(self._calls, self._config, group, deadline=self._deadline())

    def _cluster(self) -> Any:
        deadline = self._deadline()
        while True:
            try:
                timeout_s = deadline.left_s(most=_ONE_REQUEST_S, least=0.05)
                return self._calls.client.list_topics(timeout=timeout_s)
            except KafkaException as raised:
                error = error_of(raised)
                if error.code() not in RETRIABLE:
                    raise refusal(error, operation="list", resource="topics") from raised
                if deadline.over:
                    raise self._calls.unavailable("list topics", deadline, error) from raised
                self._calls.look_anew(deadline)
                deadline.pause(0.1)

    def _list_offsets(
        self,
        partitions: Iterable[Partition],
        spec: Any,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[Partition, Any]:
        rounds = count()

        def request(items: Sequence[Partition], timeout_s: float) -> Mapping[Any, Future[Any]]:
            number = next(rounds)
            # A request waits for a leader that is gone until its timeout. So the first ones are short.
            timeout_s = min(timeout_s, _FIRST_LOOK_S * (number + 1))
            if number:
                # An AdminClient sends the leader epochs in its metadata cache and does not refresh them by
                # itself. After a broker restart it would receive FENCED_LEADER_EPOCH forever.
                for topic in {topic for topic, _ in items}:
                    self._calls.client.list_topics(topic, timeout=min(timeout_s, _REFRESH_S))
            specs = {TopicPartition(topic, number): spec for topic, number in items}
            asked = self._calls.client.list_offsets(
                specs, isolation_level=isolation, request_timeout=timeout_s
            )
            by_partition = {(key.topic, key.partition): future for key, future in asked.items()}
            return {item: by_partition[item] for item in items}

        wanted = list(dict.fromkeys(partitions))
        if not wanted:
            return {}
        found: dict[Partition, Any] = {}
        missing, deadline = wanted, self._deadline()
        try:
            while missing:
                answers, _ = self._calls.ask(
                    "list offsets", missing, request, deadline=deadline, denied=self._why_denied
                )
                found |= answers
                # If a broker disconnects, the partitions it did not report have this offset and no error.
                missing = [partition for partition in missing if found[partition].offset == OFFSET_INVALID]
                if missing:
                    if deadline.over:
                        raise self._calls.unavailable("list offsets", deadline, None)
                    deadline.pause(_PAUSE_S)
        except KafkaUnavailable as why:
            leaderless = self._leaderless(missing)
            if leaderless is None:
                raise
            last = "partition {1} of topic '{0}' has no leader".format(*leaderless)
            raise KafkaUnavailable(why.operation, why.waited_ms, last) from why
        return {partition: found[partition] for partition in wanted}

    def _leaderless(self, partitions: Iterable[Partition]) -> Partition | None:
        """Return the first of these partitions that has no leader.

        The client reports only the connections that it has lost.
        """
        try:
            found = self._calls.client.list_topics(timeout=_LAST_LOOK_S).topics
        except KafkaException:
            return None
        for topic, number in partitions:
            part = found[topic].partitions.get(number) if topic in found else None
            if part is not None and part.leader < 0:
                return topic, number
        return None

    def _why_denied(self, partition: Partition) -> CursorqError | None:
        topic, number = partition
        try:
            found = self.existing([topic]).get(topic)
        except NotAuthorized as why:
            return why
        if found is None:
            return TopicNotFound((topic,))
        return TopicGone(topic, number) if number >= found.partitions else None

    def _deadline(self) -> Deadline:
        left_ms = None if self._until is None else int(self._until.left_s() * 1000)
        return Deadline.after_ms(self._timeout_ms if left_ms is None else min(left_ms, self._timeout_ms))


def meet_brokers(kafka: Mapping[str, str]) -> None:
    """Run :meth:`ClusterAdmin.meet` for these options once in a process. Later calls return immediately."""
    config = client_config(kafka, "admin")
    key = frozenset(config.items())
    if key not in _met:
        ClusterAdmin(config).meet()
        _met.add(key)


_met: set[frozenset[tuple[str, str]]] = set()


#: Kafka's internal topics, which Java's consumer also excludes from patterns
INTERNAL_TOPICS = frozenset(
    {"__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state"}
)


def matching_topics(pattern: str, topics: list[str]) -> list[str]:
    """Return the matching topics, sorted, without Kafka's internal topics."""
    compiled = compile_topic_pattern(pattern)
    return sorted(name for name in topics if name not in INTERNAL_TOPICS and compiled.fullmatch(name))
