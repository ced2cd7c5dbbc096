"""Everything that is asked of the brokers about topics, positions and consumer groups."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaException, TopicPartition

from spark_cursor_source.core.durability import WeakTopic
from spark_cursor_source.core.stream_metadata import Broker
from spark_cursor_source.errors import (
    CursorqError,
    NotAuthorized,
    TopicGone,
    TopicNotFound,
)
from spark_cursor_source.kafka.admin_requests import ADMIN_TYPES, DENIAL_MS, FIRST_CONTACT_MS, AdminRequests
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.control_topics import (
    DEFAULT_PARTITIONS,
    ControlTopics,
    await_leaders,
    create_topics,
    delete_records,
    delete_topics,
    describe_topics,
    ensure_control_topics,
    ensure_cursors_topic,
    ensure_markers_topic,
    ensure_streams_topic,
    topic_settings,
)
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import RETRIABLE, acl, error_of, refusal
from spark_cursor_source.kafka.group_admin import GroupMemberInfo, delete_group, group_members
from spark_cursor_source.kafka.group_offsets import CommittedOffset, GroupOffsets
from spark_cursor_source.kafka.replication import warn_of_weak_topics, weak_topics
from spark_cursor_source.kafka.rights import missing_rights
from spark_cursor_source.kafka.topic_pattern import matching_topics

Partition = tuple[str, int]  #: (topic, partition)

_LATEST = ADMIN_TYPES.OffsetSpec.latest()
_EARLIEST = ADMIN_TYPES.OffsetSpec.earliest()
_MAX_TIMESTAMP = ADMIN_TYPES.OffsetSpec.max_timestamp()
_ONE_REQUEST_S = 10.0
_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """What a topic is: one made again under the same name has another id."""

    name: str
    topic_id: str
    partitions: int


class Append(NamedTuple):
    """Where and when a record was appended, and in which epoch of the partition's leader."""

    offset: int
    at_ms: int
    leader_epoch: int | None


class ClusterAdmin:
    """An administrator's view of the cluster. Thread-safe, and kept for the life of its owner.

    Every call ends within ``timeout_ms``: with an answer, KafkaUnavailable, NotAuthorized or KafkaRefused.
    """

    def __init__(self, config: Mapping[str, Any], *, timeout_ms: int = 30_000) -> None:
        self._config = dict(config)
        self._calls = AdminRequests(config)
        self._timeout_ms = timeout_ms
        self._servers = str(config.get("bootstrap.servers", ""))
        self._judged: set[str] = set()  # topics whose replication was looked at
        self._until: Deadline | None = None
        self._groups_lock = threading.Lock()
        self._groups: dict[tuple[str, bool], GroupOffsets] = {}

    def meet(self) -> ClusterAdmin:
        """These topics, once the brokers have answered; at the start of a query, a client or a command.

        Raises:
            KafkaUnavailable: the brokers cannot be connected to. It takes seconds, not ``timeout_ms``.
        """
        self._calls.meet(within_ms=min(self._timeout_ms, FIRST_CONTACT_MS))
        return self

    def within(self, deadline: Deadline | None) -> ClusterAdmin:
        """The same view, whose calls end by a deadline, too."""
        view = copy(self)
        view._until = deadline
        return view

    def ensure_control(
        self, *, markers: str, redeliveries: str, cursors: str, partitions: int = DEFAULT_PARTITIONS
    ) -> ControlTopics:
        """Make missing control topics with ``partitions`` each, wait for their leaders, check their settings.

        Raises:
            MarkersTopicNotLogAppendTime, CursorsTopicNotCompacted: an existing topic is unfit.
        """
        found = ensure_control_topics(
            self._calls,
            markers=markers,
            redeliveries=redeliveries,
            cursors=cursors,
            partitions=partitions,
            deadline=self._deadline(),
        )
        self._warn_once(markers, redeliveries, cursors)
        return found

    def ensure_markers(self, markers: str, *, partitions: int = DEFAULT_PARTITIONS) -> int:
        """The same for a markers topic alone; how many partitions it has."""
        count = ensure_markers_topic(self._calls, markers, partitions=partitions, deadline=self._deadline())
        self._warn_once(markers)
        return count

    def ensure_cursors(self, cursors: str, *, partitions: int = DEFAULT_PARTITIONS) -> int:
        """The same for a cursors topic alone; how many partitions it has."""
        count = ensure_cursors_topic(self._calls, cursors, partitions=partitions, deadline=self._deadline())
        self._warn_once(cursors)
        return count

    def ensure_streams(self, streams: str) -> int:
        """The same for a streams topic, which is made with one partition.

        Raises:
            StreamsTopicUnfit: it is there with other settings.
        """
        count = ensure_streams_topic(self._calls, streams, deadline=self._deadline())
        self._warn_once(streams)
        return count

    def weak(self, topics: Iterable[str]) -> tuple[WeakTopic, ...]:
        """Those of the topics that are there and replicated less than the cluster allows."""
        return weak_topics(self._calls, topics, servers=self._servers, deadline=self._deadline())

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """Id and number of partitions of each topic.

        Raises:
            TopicNotFound: names all that are missing.
        """
        wanted = sorted(set(topics))
        denial = Deadline.after_ms(DENIAL_MS)
        while True:
            found = self.existing(wanted)
            missing = tuple(name for name in wanted if name not in found)
            if not missing:
                return found
            if denial.over or (self._until is not None and self._until.over):
                raise TopicNotFound(missing)
            denial.pause(_PAUSE_S)

    def existing(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """The same for those of the topics that exist; one that was just made may not be among them yet."""
        found, _ = describe_topics(self._calls, sorted(set(topics)), deadline=self._deadline())
        return {
            name: TopicInfo(name=name, topic_id=str(topic.topic_id), partitions=len(topic.partitions))
            for name, topic in found.items()
        }

    def placements(self, topic: str) -> dict[int, tuple[int | None, tuple[int, ...], tuple[int, ...]]]:
        """(leader, replicas, in-sync replicas) of each partition, by broker id; empty without a topic."""
        found, _ = describe_topics(self._calls, [topic], deadline=self._deadline())
        return {
            part.id: (
                part.leader.id if part.leader is not None and part.leader.id >= 0 else None,
                tuple(node.id for node in part.replicas),
                tuple(node.id for node in part.isr),
            )
            for described in found.values()
            for part in described.partitions
        }

    def missing_rights(self, wanted: Mapping[str, Collection[str]]) -> list[str]:
        """The rights among ``{topic: operations}`` that this principal lacks, in words of ``kafka-acls.sh``.

        Operations are those of :mod:`spark_cursor_source.kafka.rights`. What a broker does not tell is found
        out when it is done.
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
        """Refuse a principal that lacks rights on topics, or Read on a consumer group; before any work.

        ``stable`` is that of :meth:`committed_with_metadata`. ``unknown`` are rights that it needs too and
        that nobody can be asked about; they are named only beside others that are missing.

        Raises:
            NotAuthorized: names all that are missing.
        """
        missing, visible = missing_rights(self._calls, wanted, deadline=self._deadline())
        acls, unknown = [acl(operation, topic) for topic, operation in missing], list(unknown)
        first = missing[:1]
        if group is not None:
            of_group = acl("Read", group, "group")
            try:
                # The group's positions in any topic that may be seen: without one the brokers do not tell.
                asked = [(topic, 0) for topic in visible[:1]]
                self.committed_with_metadata(group, asked, stable=stable)
                unknown += [] if visible else [of_group]
            except NotAuthorized as denied:
                acls.append(of_group)
                first = first or [(denied.resource, denied.operation)]
        for name, operation in first:
            raise NotAuthorized(name, operation, tuple(acls), tuple(unknown))

    def create(self, topics: Mapping[str, tuple[int, Mapping[str, object]]]) -> None:
        """Make ``{name: (partitions, settings)}`` with up to three replicas, and wait for their leaders.

        A topic that exists, or that somebody else makes at the same time, stays as it is.
        """
        deadline = self._deadline()
        create_topics(self._calls, topics, deadline=deadline)
        await_leaders(self._calls, list(topics), deadline=deadline)

    def create_new(
        self, topic: str, partitions: int, settings: Mapping[str, object], *, replication: int | None
    ) -> bool:
        """Make one topic that is not there yet, and wait for its leaders; whether it was made.

        ``replication`` of None is three replicas, two of which acknowledge, or as many as there are brokers.
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
        """Delete a topic; whether there was one."""
        was_there = bool(self.existing([topic]))
        asked = delete_topics(self._calls, [topic], deadline=self._deadline()).get(topic, 0)
        return not asked or (asked > 1 and was_there)

    def delete_records(self, positions: Mapping[Partition, int]) -> None:
        """Delete the records below these positions; of a topic that is gone there are none."""
        delete_records(self._calls, positions, deadline=self._deadline())

    def settings(self, topic: str) -> dict[str, str | None]:
        """A topic's configuration as it is in effect."""
        return topic_settings(self._calls, [topic], deadline=self._deadline())[topic]

    def matching(self, pattern: str) -> list[str]:
        """The topics whose whole name a Java regular expression matches, without the brokers' own."""
        return matching_topics(pattern, list(self._cluster().topics))

    def brokers(self) -> tuple[Broker, ...]:
        """The brokers that are there, by their ids."""
        found = sorted(self._cluster().brokers.values(), key=lambda one: one.id)
        return tuple(Broker(id=one.id, host=one.host, port=one.port) for one in found)

    def end_offsets(self, partitions: Iterable[Partition], *, committed: bool) -> dict[Partition, int]:
        """The position after the last record; ``committed``: before the first open transaction."""
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        found = self._list_offsets(partitions, _LATEST, isolation)
        return {partition: info.offset for partition, info in found.items()}

    def existing_ends(self, partitions: Collection[Partition], *, committed: bool) -> dict[Partition, int]:
        """The same for those of the partitions that are there."""
        infos = self.existing(topic for topic, _ in partitions)
        there = [tp for tp in partitions if tp[0] in infos and tp[1] < infos[tp[0]].partitions]
        try:
            return self.end_offsets(there, committed=committed)
        except (TopicNotFound, TopicGone):  # deleted since
            return self.existing_ends(there, committed=committed)

    def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The position of the first record that is left."""
        found = self._list_offsets(partitions, _EARLIEST)
        return {partition: info.offset for partition, info in found.items()}

    def offsets_for_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """The position of the first record with this timestamp or a later one; the end if there is none."""
        partitions = list(partitions)
        # The ends first: a record that comes in between is then after them, and is not passed over.
        ends = self.end_offsets(partitions, committed=False)
        found = self._list_offsets(partitions, ADMIN_TYPES.OffsetSpec.for_timestamp(max(0, timestamp_ms)))
        return {
            partition: info.offset if info.offset >= 0 else ends[partition]
            for partition, info in found.items()
        }

    def last_append_times(self, topic: str, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Offset and timestamp (ms) of the record with the latest timestamp; empty partitions are absent."""
        found = self.last_appends(topic, partitions)
        return {number: (last.offset, last.at_ms) for number, last in found.items()}

    def last_appends(self, topic: str, partitions: Iterable[int]) -> dict[int, Append]:
        """The record with the latest timestamp of each partition; empty ones are absent."""
        found = self._list_offsets(((topic, number) for number in partitions), _MAX_TIMESTAMP)
        return {
            number: Append(info.offset, info.timestamp, info.leader_epoch)
            for (_, number), info in found.items()
            if info.offset >= 0 and info.timestamp >= 0
        }

    def committed(self, group: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The group's position in those of the partitions where it has committed one."""
        found = self.committed_with_metadata(group, partitions)
        return {partition: committed.position for partition, committed in found.items()}

    def committed_with_metadata(
        self, group: str, partitions: Iterable[Partition], *, stable: bool = True
    ) -> dict[Partition, CommittedOffset]:
        """The same with the text beside each; ``stable``: a transaction that sets them is waited for."""
        return self._group(group, stable=stable).committed(partitions, self._deadline())

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Set the positions of a group that has no members; ordinary lag tools see them.

        Raises:
            GroupInUse: it has members.
            TopicNotFound: a topic is gone.
        """
        self._group(group).commit(offsets, self._deadline())

    def group_members(self, group: str) -> tuple[GroupMemberInfo, ...]:
        """Who is in a consumer group."""
        return group_members(self._calls, group, deadline=self._deadline())

    def delete_group(self, group: str) -> bool:
        """Delete a consumer group with its offsets; whether there was one.

        Raises:
            GroupInUse: it has members.
        """
        return delete_group(self._calls, self._config, group, deadline=self._deadline())

    def _warn_once(self, *topics: str) -> None:
        new = [topic for topic in topics if topic not in self._judged]
        if new:
            warn_of_weak_topics(self._calls, new, servers=self._servers, deadline=self._deadline())
            self._judged.update(new)

    def _group(self, group: str, *, stable: bool = True) -> GroupOffsets:
        with self._groups_lock:
            if (group, stable) not in self._groups:
                self._groups[group, stable] = GroupOffsets(self._config, group, stable=stable)
            return self._groups[group, stable]

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
            if next(rounds):
                # An AdminClient asks with the leader epochs it knows, and never learns by itself that they
                # are old: after a broker's restart it would be told FENCED_LEADER_EPOCH for ever.
                for topic in {topic for topic, _ in items}:
                    self._calls.client.list_topics(topic, timeout=min(timeout_s, _ONE_REQUEST_S))
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
        while missing:
            answers, _ = self._calls.ask(
                "list offsets", missing, request, deadline=deadline, denied=self._why_denied
            )
            found |= answers
            # What a broker that went away has left unsaid comes as such an offset, and as no error.
            missing = [partition for partition in missing if found[partition].offset == OFFSET_INVALID]
            if missing:
                if deadline.over:
                    raise self._calls.unavailable("list offsets", deadline, None)
                deadline.pause(_PAUSE_S)
        return {partition: found[partition] for partition in wanted}

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
    """:meth:`Topics.meet` of these options, once for a process: its first contact is over then."""
    config = client_config(kafka, "admin")
    key = frozenset(config.items())
    if key not in _met:
        ClusterAdmin(config).meet()
        _met.add(key)


_met: set[frozenset[tuple[str, str]]] = set()
