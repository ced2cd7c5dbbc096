"""Reader of a queue topic's tail as a consumer group member, next to kafka-mq-go's own consumers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spark_cursor_source.errors import CursorqError
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import (
    COMMIT,
    NOT_NOW,
    READ_COMMITTED,
    error_of,
    group_unavailable,
    refusal_of_offsets,
)
from spark_cursor_source.kafka.tail_consumer import Fetched, Removed, TailConsumer, Truncated

_ASK_MS = 10_000
_MOVED = frozenset(
    {
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._STATE,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.UNKNOWN_MEMBER_ID,
    }
)
# The assignors of kafka-mq-go's consumers. Both are eager: they revoke all partitions before a rebalance.
_EAGER = "range,roundrobin"


class GroupReader(TailConsumer):
    """Consumer with group-assigned partitions that starts at the committed offsets. Not thread-safe.

    ``name`` is the client id of the member and the metadata of its offsets. ``on_revoked`` is called inside
    :meth:`read` after the partitions were assigned to other members.
    """

    def __init__(
        self,
        config: Mapping[str, str],
        topic: str,
        group: str,
        *,
        name: str,
        isolation: str,
        session_ms: int,
        on_removed: Removed,
        on_truncated: Truncated | None = None,
        on_revoked: Callable[[], None],
    ) -> None:
        settings = {
            "group.id": group,
            "client.id": name,
            "partition.assignment.strategy": _EAGER,
            "session.timeout.ms": str(session_ms),
            "heartbeat.interval.ms": str(max(session_ms // 6, 1)),
        }
        super().__init__(
            config,
            topic,
            isolation=isolation,
            on_removed=on_removed,
            on_truncated=on_truncated,
            settings=settings,
        )
        self._group, self._name, self._on_revoked = group, name, on_revoked
        self._new: list[int] = []  # assigned partitions that are not read yet
        self._consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    @property
    def partitions(self) -> frozenset[tuple[str, int]]:
        """Assigned partitions, also those that are not read yet."""
        return frozenset((self._reads.topic, number) for number in (*self._new, *self._reads.positions))

    def read(self, most: int, wait_s: float) -> list[Fetched]:
        """Returns the next records, like :meth:`TailConsumer.read`. Calls keep the member in the group."""
        if self._new:
            self._begin()
        return self._read(most, wait_s)

    def stay(self) -> None:
        """Keeps the group membership. No partition is read until the next :meth:`pause`."""
        # Records that arrived here would be lost. Held partitions are not assigned, so they have none.
        self.pause(frozenset(self._reads.positions))
        self._read(1, 0)

    def commit(self, deadline: Deadline) -> bool:
        """Commits the read positions. Returns False if the partitions belong to other members now.

        Raises:
            KafkaUnavailable: the commit was not confirmed in time; it may have succeeded.
            NotAuthorized, KafkaRefused
        """
        offsets = [
            TopicPartition(self._reads.topic, number, at, self._name)
            for number, at in self._reads.positions.items()
        ]
        while offsets:
            try:
                answers = self._consumer.commit(offsets=offsets, asynchronous=False)
                error = next((place.error for place in answers or [] if place.error is not None), None)
            except KafkaException as raised:
                error = error_of(raised)
            if error is None:
                break
            if error.code() in _MOVED:
                return False
            if error.code() not in NOT_NOW:  # the feed itself looks whether its topic was deleted
                raise self._refusal(error, COMMIT)
            if deadline.over:
                raise group_unavailable(COMMIT, self._group, deadline, error, self._complaints)
            deadline.pause(0.1)
        return True

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Start positions are read outside this callback: an exception here would leave the partitions unread.
        self._new = [place.partition for place in partitions]
        consumer.assign([])

    def _begin(self) -> None:
        """Starts reading new partitions at the group's committed offset, or else at the beginning."""
        deadline = Deadline.after_ms(_ASK_MS)
        places = [TopicPartition(self._reads.topic, number) for number in self._new]
        try:
            for committed in self._consumer.committed(places, timeout=deadline.left_s()):
                if committed.error is not None:
                    raise KafkaException(committed.error)
                place = TopicPartition(self._reads.topic, committed.partition)
                low, _ = self._consumer.get_watermark_offsets(place, timeout=deadline.left_s(least=0.1))
                self._reads.positions[place.partition] = committed.offset if committed.offset >= 0 else low
        except KafkaException as raised:
            self._reads.leave(self._reads.positions)
            error = error_of(raised)
            if error.code() in NOT_NOW:
                raise group_unavailable(
                    READ_COMMITTED, self._group, deadline, error, self._complaints
                ) from raised
            raise self._refusal(error, READ_COMMITTED) from raised
        self._new = []
        self._reads.assign()

    def _refusal(self, error: KafkaError, operation: str) -> CursorqError:
        return refusal_of_offsets(error, operation=operation, topic=self._reads.topic, group=self._group)

    def _revoked(self, consumer: Consumer, _: list[TopicPartition]) -> None:
        self._reads.leave(self._reads.positions)
        self._new = []
        consumer.unassign()
        self._on_revoked()
