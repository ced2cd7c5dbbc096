"""Everything that is asked of the brokers about topics, positions and consumer groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from spark_cursor_source.errors import (
    CursorqError,
    GroupInUse,
    KafkaRefused,
    NotAuthorized,
    TopicGone,
    TopicNotFound,
)
from spark_cursor_source.kafka.admin_calls import ADMIN_TYPES, AdminCalls
from spark_cursor_source.kafka.control_topics import (
    DEFAULT_PARTITIONS,
    ControlTopics,
    await_leaders,
    create_topics,
    describe_topics,
    ensure_control_topics,
    topic_settings,
)
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.failures import RETRIABLE, error_of, refusal, shown
from spark_cursor_source.kafka.topic_pattern import matching_topics

Partition = tuple[str, int]  #: (topic, partition)

_LATEST = ADMIN_TYPES.OffsetSpec.latest()
_EARLIEST = ADMIN_TYPES.OffsetSpec.earliest()
_MAX_TIMESTAMP = ADMIN_TYPES.OffsetSpec.max_timestamp()
_GROUP_HAS_MEMBERS = frozenset({KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP})
_NO_SUCH_GROUP = frozenset({KafkaError.GROUP_ID_NOT_FOUND})
_ONE_REQUEST_S = 10.0
_PAUSE_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """What a topic is: one made again under the same name has another id."""

    name: str
    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """What a consumer group has committed for a partition."""

    position: int
    metadata: str


class Topics:
    """An administrator's view of the cluster. Thread-safe, and kept for the life of its owner.

    Every call ends within ``timeout_ms``: with an answer, KafkaUnavailable, NotAuthorized or KafkaRefused.
    """

    def __init__(self, config: Mapping[str, Any], *, timeout_ms: int = 30_000) -> None:
        self._calls = AdminCalls(config)
        self._timeout_ms = timeout_ms

    def ensure_control(
        self, *, markers: str, redeliveries: str, cursors: str, partitions: int = DEFAULT_PARTITIONS
    ) -> ControlTopics:
        """Make missing control topics with ``partitions`` each, wait for their leaders, check their settings.

        Raises:
            MarkersTopicNotLogAppendTime, CursorsTopicNotCompacted: an existing topic is unfit.
        """
        return ensure_control_topics(
            self._calls,
            markers=markers,
            redeliveries=redeliveries,
            cursors=cursors,
            partitions=partitions,
            deadline=self._deadline(),
        )

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """Id and number of partitions of each topic.

        Raises:
            TopicNotFound: names all that are missing.
        """
        found, missing = describe_topics(self._calls, sorted(set(topics)), deadline=self._deadline())
        if missing:
            raise TopicNotFound(missing)
        return {
            name: TopicInfo(name=name, topic_id=str(topic.topic_id), partitions=len(topic.partitions))
            for name, topic in found.items()
        }

    def existing(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """The same for those of the topics that exist."""
        found, _ = describe_topics(self._calls, sorted(set(topics)), deadline=self._deadline())
        return {
            name: TopicInfo(name=name, topic_id=str(topic.topic_id), partitions=len(topic.partitions))
            for name, topic in found.items()
        }

    def create(self, topics: Mapping[str, tuple[int, Mapping[str, object]]]) -> None:
        """Make ``{name: (partitions, settings)}``, replicated as brokers do, and wait for their leaders.

        A topic that exists, or that somebody else makes at the same time, stays as it is.
        """
        deadline = self._deadline()
        create_topics(self._calls, topics, deadline=deadline)
        await_leaders(self._calls, list(topics), deadline=deadline)

    def settings(self, topic: str) -> dict[str, str | None]:
        """A topic's configuration as it is in effect."""
        return topic_settings(self._calls, [topic], deadline=self._deadline())[topic]

    def matching(self, pattern: str) -> list[str]:
        """The topics whose whole name a Java regular expression matches, without the brokers' own."""
        return matching_topics(pattern, self._names())

    def end_offsets(self, partitions: Iterable[Partition], *, committed: bool) -> dict[Partition, int]:
        """The position after the last record; ``committed``: before the first open transaction."""
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        found = self._list_offsets(partitions, _LATEST, isolation)
        return {partition: info.offset for partition, info in found.items()}

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
        found = self._list_offsets(((topic, number) for number in partitions), _MAX_TIMESTAMP)
        return {
            number: (info.offset, info.timestamp)
            for (_, number), info in found.items()
            if info.offset >= 0 and info.timestamp >= 0
        }

    def committed(self, group: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The group's position in those of the partitions where it has committed one."""
        wanted = set(partitions)
        found = self.committed_with_metadata(group)
        return {partition: found[partition].position for partition in sorted(wanted & found.keys())}

    def committed_with_metadata(self, group: str) -> dict[Partition, CommittedOffset]:
        """All that the group has committed; an open transaction that commits for it is waited for."""

        def request(groups: Sequence[str], timeout_s: float) -> Mapping[str, Future[Any]]:
            asked = [ConsumerGroupTopicPartitions(name) for name in groups]
            return self._calls.client.list_consumer_group_offsets(
                asked, require_stable=True, request_timeout=timeout_s
            )

        deadline = self._deadline()
        while True:
            found, _ = self._calls.ask(
                "read offsets of group", [group], request, deadline=deadline, tolerated=_NO_SUCH_GROUP
            )
            committed = found[group].topic_partitions if group in found else []
            # Each partition has an error of its own: that its offset is not stable yet, for one.
            errors = [one.error for one in committed if one.error is not None]
            if not errors:
                break
            if hopeless := next((error for error in errors if error.code() not in RETRIABLE), None):
                raise refusal(hopeless, operation="read offsets of group", resource=group)
            if deadline.over:
                raise self._calls.unavailable("read offsets of group", deadline, errors[0])
            deadline.pause(_PAUSE_S)
        return {
            (one.topic, one.partition): CommittedOffset(position=one.offset, metadata=one.metadata or "")
            for one in committed
            if one.offset >= 0
        }

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Set the positions of a group that has no members; ordinary lag tools see them.

        Raises:
            GroupInUse: it has members.
            TopicNotFound: a topic is gone.
        """
        if not offsets:
            return
        positions = [TopicPartition(topic, number, at) for (topic, number), at in sorted(offsets.items())]

        def request(groups: Sequence[str], timeout_s: float) -> Mapping[str, Future[Any]]:
            asked = [ConsumerGroupTopicPartitions(name, positions) for name in groups]
            return self._calls.client.alter_consumer_group_offsets(asked, request_timeout=timeout_s)

        found, refused = self._calls.ask(
            "commit offsets of group",
            [group],
            request,
            deadline=self._deadline(),
            tolerated=_GROUP_HAS_MEMBERS,
        )
        if refused:
            raise GroupInUse(group)
        _check_committed(group, found[group].topic_partitions)

    def _names(self) -> list[str]:
        deadline = self._deadline()
        while True:
            try:
                timeout_s = deadline.left_s(most=_ONE_REQUEST_S, least=0.05)
                return list(self._calls.client.list_topics(timeout=timeout_s).topics)
            except KafkaException as raised:
                error = error_of(raised)
                if error.code() not in RETRIABLE:
                    raise refusal(error, operation="list", resource="topics") from raised
                if deadline.over:
                    raise self._calls.unavailable("list topics", deadline, error) from raised
                deadline.pause(0.1)

    def _list_offsets(
        self,
        partitions: Iterable[Partition],
        spec: Any,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[Partition, Any]:
        def request(items: Sequence[Partition], timeout_s: float) -> Mapping[Any, Future[Any]]:
            specs = {TopicPartition(topic, number): spec for topic, number in items}
            asked = self._calls.client.list_offsets(
                specs, isolation_level=isolation, request_timeout=timeout_s
            )
            by_partition = {(key.topic, key.partition): future for key, future in asked.items()}
            return {item: by_partition[item] for item in items}

        wanted = list(dict.fromkeys(partitions))
        if not wanted:
            return {}
        found, _ = self._calls.ask(
            "list offsets", wanted, request, deadline=self._deadline(), denied=self._why_denied
        )
        return {partition: found[partition] for partition in wanted}

    def _why_denied(self, partition: Partition) -> CursorqError:
        try:
            self.describe([partition[0]])
        except (NotAuthorized, TopicNotFound) as why:
            return why
        return TopicGone(*partition)

    def _deadline(self) -> Deadline:
        return Deadline.after_ms(self._timeout_ms)


def _check_committed(group: str, partitions: Iterable[TopicPartition]) -> None:
    for one in partitions:
        if one.error is None:
            continue
        if one.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise TopicNotFound((one.topic,))
        if one.error.code() in _GROUP_HAS_MEMBERS:
            raise GroupInUse(group)
        raise KafkaRefused(
            "commit offsets of group", group, f"{one.topic}-{one.partition}: {shown(one.error)}"
        )
