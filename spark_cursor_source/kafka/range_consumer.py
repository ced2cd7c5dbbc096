"""Reader of an offset range of one partition. It handles gaps, partition ends and broker restarts."""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from spark_cursor_source.errors import ReadRefused, ReadStalled, RecordsGone, TopicGone
from spark_cursor_source.kafka.deadline import PATIENCE_MS
from spark_cursor_source.kafka.error_codes import UNAUTHORIZED

log = logging.getLogger(__name__)

STALL_TIMEOUT_MS = PATIENCE_MS

_BATCH_MESSAGES = 1_000  # about the size of a CPU cache
_BATCH_BYTES = 16 << 20
_WAIT_S = 0.25
_ASK_TIMEOUT_S = 10.0
# retry time for unknown topics and offsets: a broker that restarts or has stale metadata may be wrong
_DENIAL_MS = 10_000
_TOPIC, _OFFSET, _PERMISSION = "topic", "offset", "permission"
_LOOK_MS = 2_000

_UNKNOWN_TOPIC = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
_OUT_OF_RANGE = frozenset(
    {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}
)
# Errors about groups, which do not concern a reader with an assigned partition.
_NOT_OURS = frozenset(
    {
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
_HOPELESS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._AUTHENTICATION,
        KafkaError._FATAL,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
    }
)

Messages = Sequence[Message]
Removed = Callable[[int, int], None]


def read_range(
    consumer: Consumer,
    topic: str,
    partition: int,
    start: int,
    stop: int,
    *,
    on_removed: Removed | None = None,
    stall_timeout_ms: int = STALL_TIMEOUT_MS,
) -> Generator[list[Message]]:
    """Yield all records with ``start <= offset < stop`` of the partition, in order, in lists of up to 1,000.

    Offsets without a record (transaction markers, aborted or compacted records) are skipped, also at the end.
    The consumer needs ``enable.partition.eof`` and ``auto.offset.reset=error`` (``reader_config`` of
    ``kafka.consumers`` has both). It must have no subscription, and has no assignment afterwards.

    If retention has deleted records before they were read, ``on_removed(first, next)`` is called with the
    range. Without ``on_removed`` that is an error. The reader waits for unavailable brokers.

    Raises:
        RecordsGone: records were deleted and ``on_removed`` is not given, or the partition ends before
            ``start``.
        TopicGone: the topic or the partition was deleted.
        ReadStalled: no progress for ``stall_timeout_ms``.
        ReadRefused: a permission is missing, the login fails, or records are unreadable.
    """
    if start >= stop:
        return
    reading = _Reading(consumer, topic, partition, start, stop, on_removed, stall_timeout_ms)
    try:
        reading.assign()
        while reading.position < stop:
            messages = reading.next_messages()
            if messages:
                yield messages
    except KafkaException as cause:
        raise ReadRefused(topic, partition, reading.position, str(cause)) from cause
    finally:
        consumer.unassign()  # stops the fetcher of the client


class _Reading:
    """State of one read, with the handling of errors and partition ends."""

    def __init__(
        self,
        consumer: Consumer,
        topic: str,
        partition: int,
        start: int,
        stop: int,
        on_removed: Removed | None,
        stall_timeout_ms: int,
    ) -> None:
        self._consumer = consumer
        self._topic, self._partition, self._stop = topic, partition, stop
        self._on_removed = on_removed
        self._stall_timeout_ms = stall_timeout_ms
        self._batch = _BATCH_MESSAGES // 10  # small until the message size is known
        self._progress_ms = _now_ms()
        self._looked_ms = self._progress_ms
        self._denied_since_ms: dict[str, int] = {}
        self._last = "nothing"
        self.position = start

    def assign(self) -> None:
        self._consumer.assign([TopicPartition(self._topic, self._partition, self.position)])

    def next_messages(self) -> list[Message]:
        """Return the next records.

        Empty after a partition end, a handled error or a short wait without records.
        """
        # Take the available records without waiting for a full batch. With gaps it may never fill.
        messages = self._consumer.consume(self._batch, 0) or self._consumer.consume(1, _WAIT_S)
        if not messages:
            self._check_stall()
            self._look_for_topic_now_and_then()
            return messages
        if any(map(Message.error, messages)):
            return self._sift(messages)
        return self._accept(messages)

    def _accept(self, messages: list[Message]) -> list[Message]:
        last = offset_of(messages[-1])
        if last >= self._stop:
            del messages[bisect_left(messages, self._stop, key=offset_of) :]
        self._advance(last + 1)
        if messages:
            largest = max(map(len, messages[:: max(1, len(messages) // 16)]))
            self._batch = max(1, min(_BATCH_MESSAGES, _BATCH_BYTES // (largest + 1)))
        return messages

    def _advance(self, position: int) -> None:
        if position > self.position:
            self.position = min(position, self._stop)
            self._progress_ms = _now_ms()
            self._denied_since_ms.clear()

    def _sift(self, messages: list[Message]) -> list[Message]:
        """Return the records and handle the events between them.

        No record is repeated if an event resets the position.
        """
        records: list[Message] = []
        for message in messages:
            error = message.error()
            if error is None:
                if self.position <= offset_of(message) < self._stop:
                    records.append(message)
                self._advance(offset_of(message) + 1)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._last = f"the partition ended at offset {message.offset()}"
                self._advance(offset_of(message))
            elif self._deal_with(error):
                break  # the partition was reassigned, so the rest of this list is fetched again
        if not records:
            self._check_stall()
        return records

    def _deal_with(self, error: KafkaError) -> bool:
        """Handle an error. Return True if the partition was reassigned."""
        code = error.code()
        if code in _NOT_OURS:
            return False
        self._last = f"{error.name()}: {error.str()}"
        if code in _HOPELESS or error.fatal():
            raise ReadRefused(self._topic, self._partition, self.position, self._last)
        log.info(
            "A fetch failed and is retried. event=fetch_retrying topic=%s partition=%s offset=%s error=%s",
            self._topic,
            self._partition,
            self.position,
            self._last,
        )
        if code in _OUT_OF_RANGE:
            self._leave_what_is_gone()
        elif code in _UNKNOWN_TOPIC:
            self._look_for_topic()
        else:
            return False
        if self.position < self._stop:
            self.assign()
        return True

    def _leave_what_is_gone(self) -> None:
        try:
            low, high = self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, self._partition), timeout=self._ask_timeout_s()
            )
        except KafkaException as unanswered:
            self._last = str(unanswered)
            self._check_stall()
            return
        wanted = (self.position, self._stop)
        if low > self.position:
            removed_up_to = min(low, self._stop)
            if self._on_removed is None:
                raise RecordsGone(self._topic, self._partition, wanted, (low, high))
            log.warning(
                "Records were removed before they were read. event=records_removed topic=%s "
                "partition=%s first=%s next=%s",
                self._topic,
                self._partition,
                self.position,
                removed_up_to,
            )
            self._on_removed(self.position, removed_up_to)
            self._advance(removed_up_to)
        elif self._denied_too_long(_OFFSET) and high < self.position:
            raise RecordsGone(self._topic, self._partition, wanted, (low, high))

    def _look_for_topic_now_and_then(self) -> None:
        # librdkafka does not always report the deletion of a topic. It may only return no more records.
        was_denied = _TOPIC in self._denied_since_ms
        if not was_denied and _now_ms() - max(self._looked_ms, self._progress_ms) < _LOOK_MS:
            return
        if self._look_for_topic() and was_denied:
            self.assign()

    def _look_for_topic(self) -> bool:
        """Return True if the topic seems to exist. Raise TopicGone if it has been missing for too long."""
        exists = self._exists()
        self._looked_ms = _now_ms()
        if exists:
            self._denied_since_ms.pop(_TOPIC, None)
        else:
            self._last = "the topic, or this partition of it, is not there"
            if self._denied_too_long(_TOPIC):
                raise TopicGone(self._topic, self._partition)
        return exists

    def _denied_too_long(self, what: str) -> bool:
        """Return True if the brokers have denied ``what`` for too long, else wait before the next request."""
        if _now_ms() - self._denied_since_ms.setdefault(what, _now_ms()) >= min(
            _DENIAL_MS, self._stall_timeout_ms // 2
        ):
            return True
        time.sleep(_WAIT_S)
        return False

    def _exists(self) -> bool:
        try:
            found = self._consumer.list_topics(self._topic, timeout=self._ask_timeout_s()).topics.get(
                self._topic
            )
        except KafkaException as unanswered:
            self._last = str(unanswered)
            self._check_stall()
            return True
        if found is None:
            return False
        if found.error is not None:
            self._deal_with_denied_permission(found.error)
            return found.error.code() not in _UNKNOWN_TOPIC
        return self._partition in found.partitions

    def _deal_with_denied_permission(self, error: KafkaError) -> None:
        # A consumer with an assigned topic that it may not see receives no error and waits.
        if error.code() in UNAUTHORIZED:
            self._last = f"{error.name()}: {error.str()}"
            if self._denied_too_long(_PERMISSION):
                raise ReadRefused(self._topic, self._partition, self.position, self._last)

    def _ask_timeout_s(self) -> float:
        left_ms = self._progress_ms + self._stall_timeout_ms - _now_ms()
        return min(_ASK_TIMEOUT_S, max(left_ms, 100) / 1000)

    def _check_stall(self) -> None:
        waited_ms = _now_ms() - self._progress_ms
        if waited_ms >= self._stall_timeout_ms:
            raise ReadStalled(self._topic, self._partition, self.position, self._stop, waited_ms, self._last)


def offset_of(message: Message) -> int:
    return message.offset()  # type: ignore[return-value]  # None only of a message made by hand


def place_of(message: Message) -> tuple[int, int]:
    """Return partition and offset of a record."""
    return message.partition(), offset_of(message)  # type: ignore[return-value]  # as above


def columns_of(
    messages: Sequence[Message],
) -> tuple[list[int], list[int], list[bytes | None], list[bytes | None]]:
    """Return offsets, timestamps in ms, keys and values of records."""
    times_ms = [timestamp_ms for _, timestamp_ms in map(Message.timestamp, messages)]
    offsets: list[int] = list(map(Message.offset, messages))  # type: ignore[arg-type]
    keys, values = list(map(Message.key, messages)), list(map(Message.value, messages))
    return offsets, times_ms, keys, values


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
