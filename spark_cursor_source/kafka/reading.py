"""Policy for errors and ends of readers with assigned partitions, the same for every reader."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from enum import Enum, auto

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from spark_cursor_source.errors import CursorqError, TopicGone
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import (
    RETRIABLE,
    TURNED_AWAY,
    UNAUTHORIZED,
    UNKNOWN_TOPIC,
    ErrorCallback,
    error_of,
    is_truncation,
    refusal,
    shown,
    truncated_at,
    unavailable,
)

log = logging.getLogger(__name__)

_AGAIN_S = 0.25
# A broker that restarts or has stale metadata may deny logins, topics, offsets and rights for this long. The
# login of a client whose token has expired is denied until the client has another token.
_DENIAL_MS = 10_000
_LEAST_OF_TOPIC_MS = 1_000  # with a short stall timeout; the metadata of a broker may be this old
_LOGIN, _TOPIC, _RIGHT, _OFFSET = "login", "topic", "right", "offset"


class Event(Enum):
    """Meaning of an error that a consumer returns in place of a record."""

    END = auto()  #: end of the partition, or of its readable part
    OF_GROUPS = auto()  #: about groups, which do not concern a reader with assigned partitions
    REFUSED = auto()  #: a retry does not help: a missing right or unreadable records
    TURNED_AWAY = auto()  #: the broker denies the login
    OUT_OF_RANGE = auto()  #: the broker does not have the offset
    MISSING = auto()  #: the broker does not know the topic or the partition
    RETRIED = auto()  #: librdkafka retries it
    UNLISTED = auto()  #: an error without a rule


_CODES: dict[Event, frozenset[int]] = {
    Event.END: frozenset({KafkaError._PARTITION_EOF}),
    Event.OF_GROUPS: frozenset(
        {
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError.COORDINATOR_NOT_AVAILABLE,
            KafkaError.NOT_COORDINATOR,
        }
    ),
    Event.REFUSED: UNAUTHORIZED
    | {
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._FATAL,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError._BAD_MSG,
        KafkaError._BAD_COMPRESSION,
    },
    Event.TURNED_AWAY: TURNED_AWAY | {KafkaError.SASL_AUTHENTICATION_FAILED},
    Event.OUT_OF_RANGE: frozenset(
        {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}
    ),
    Event.MISSING: UNKNOWN_TOPIC,
    Event.RETRIED: RETRIABLE,
}


def event_of(error: KafkaError) -> Event:
    """Return the meaning of an error in a list of messages."""
    code = error.code()
    event = next((event for event, codes in _CODES.items() if code in codes), Event.UNLISTED)
    return Event.REFUSED if error.fatal() and event is not Event.OF_GROUPS else event


def offset_of(message: Message) -> int:
    return message.offset()  # type: ignore[return-value]  # None only of a message made by hand


def warn_removed(topic: str, number: int, first: int, up_to: int) -> None:
    """Log that a reader skips offsets."""
    log.warning(
        "Records were removed before they were read. event=records_removed topic=%s "
        "partition=%s first=%s next=%s",
        topic,
        number,
        first,
        up_to,
    )


class PartitionReads(ABC):
    """Read positions of assigned partitions of a topic, with the handling of errors and ends.

    A subclass says what follows from removed records, and may name other errors. An offset, a topic, a right
    or a login that the brokers deny may be valid, so the denial must last for 10 s, or for half of the stall
    timeout, to be final. A topic must be denied for at least 1 s.

    ``stops`` are the ends of ranges, which the partitions had when the ranges were chosen. Without
    ``stall_timeout_ms`` the reader waits for brokers forever.
    """

    #: False if an error without a rule ends the read at once
    retries_unlisted = False
    #: seconds without a record after which the reader looks whether the topic still exists, or a quarter of
    #: the stall timeout, if that is less
    look_every_s = 2.0
    #: timeout of one request to the brokers in seconds
    request_s = 10.0

    def __init__(
        self,
        consumer: Consumer,
        topic: str,
        positions: Mapping[int, int],
        stops: Mapping[int, int] | None = None,
        *,
        stall_timeout_ms: int | None = None,
        complaints: ErrorCallback | None = None,
    ) -> None:
        self._consumer, self.topic = consumer, topic
        self.positions = dict(positions)
        self.stops = dict(stops or {})
        self.held: frozenset[int] = frozenset()  #: partitions that are not fetched
        self._heard: KafkaError | None = None
        self._complaints = complaints
        self.last = "nothing"  #: the last event, for an error text
        self._ended: set[int] = set()  # partitions that gave their end after their last record
        self._denials: dict[tuple[str, int], Deadline] = {}
        self._stall_timeout_ms = stall_timeout_ms
        self._denial_ms, self._look_every_s = _DENIAL_MS, self.look_every_s
        if stall_timeout_ms is not None:
            self._denial_ms = min(_DENIAL_MS, stall_timeout_ms // 2)
            self._look_every_s = min(self.look_every_s, stall_timeout_ms / 4_000)
        self._progress_s = self._looked_s = time.monotonic()

    # ---- errors of the reader

    @abstractmethod
    def removed(self, number: int, up_to: int, available: tuple[int, int]) -> None:
        """Report that records from the position up to ``up_to`` are gone, or raise an error."""

    def ends_early(self, number: int, available: tuple[int, int]) -> None:
        """Report that a partition stays shorter than its range or position, or raise an error."""
        stop = self.stops[number]
        self.removed(number, stop, available)
        self.advance(number, stop)

    def truncated(self, number: int, end: int | None) -> None:
        """Report that records before the position were lost, or raise an error.

        ``end`` is the end of the remaining records, if the brokers told it. By now the log may have other
        records at these offsets.
        """
        self.last = f"the log was truncated at offset {end}"

    def refused(self, error: KafkaError) -> CursorqError:
        """Return the error for what a retry does not resolve."""
        return refusal(error, operation="read", resource=self.topic)

    def gone(self, number: int) -> CursorqError:
        """Return the error for a deleted topic or partition."""
        return TopicGone(self.topic, number)

    def stalled(self, stall: Deadline) -> CursorqError:
        """Return the error for an expired stall timeout."""
        return unavailable(f"read topic '{self.topic}'", stall, self._heard, self._complaints)

    # ---- positions

    @property
    def unfinished(self) -> list[int]:
        """The partitions that are not read to their stop."""
        return sorted(
            number
            for number, position in self.positions.items()
            if number not in self.stops or position < self.stops[number]
        )

    def assign(self) -> None:
        """Fetch the unfinished partitions from their positions."""
        self._consumer.assign(
            [
                TopicPartition(self.topic, number, self.positions[number])
                for number in self.unfinished
                if number not in self.held
            ]
        )

    def advance(self, number: int, position: int) -> None:
        """Move a position forward, at most to its stop. Progress ends the denials of the partition."""
        if position <= self.positions[number]:
            return
        self.positions[number] = min(position, self.stops.get(number, position))
        self._progress_s = time.monotonic()
        self._ended.discard(number)
        if self._denials:
            self._forget_denials(number)

    def end_reached(self, number: int, end: int) -> None:
        """Move a position to the end of the partition, behind the gaps before it."""
        self.advance(number, end)
        if number in self.stops:
            self._ended.add(number)
        else:
            self._forget_denials(number)
        self.last = f"the partition ended at offset {end}"

    def leave(self, numbers: Iterable[int]) -> bool:
        """Forget partitions. Return False if none of them was read."""
        gone = [number for number in numbers if number in self.positions]
        for number in gone:
            del self.positions[number]
            self._ended.discard(number)
            self._forget_denials(number)
        return bool(gone)

    def sift(self, messages: Iterable[Message]) -> list[Message]:
        """Return the records of a list and handle the events between them. Positions move past both.

        No record is repeated if an event resets a position.
        """
        records: list[Message] = []
        for message in messages:
            number, error = message.partition(), message.error()
            if error is not None:
                if self.take_event(error, number, offset_of(message)):
                    break  # the rest of the list is fetched again
            elif number in self.positions:
                offset = offset_of(message)
                if self.positions[number] <= offset < self.stops.get(number, offset + 1):
                    records.append(message)
                self.advance(number, offset + 1)
        return records

    # ---- errors and ends

    def take_event(self, error: KafkaError, number: int | None, offset: int) -> bool:
        """Handle what a consumer returns in place of a record.

        Return True if the partitions were assigned again.
        """
        if event_of(error) is Event.END:
            if number is not None and number in self.positions:
                self.end_reached(number, offset)
            return False
        if not self.deal_with(error, number):
            return False
        self.assign()
        return True

    def deal_with(self, error: KafkaError, number: int | None) -> bool:
        """Handle an error. Return True if the partitions must be assigned again."""
        event = event_of(error)
        if event is Event.OF_GROUPS or (number is not None and number not in self.positions):
            return False  # also a late error of a partition that is not read any more
        self._hear(error)
        if event is Event.REFUSED or (event is Event.UNLISTED and not self.retries_unlisted):
            raise self.refused(error)
        if event is Event.TURNED_AWAY and self._denied_for_long(_LOGIN, self.unfinished) is not None:
            raise self.refused(error)
        self.log_retry(error, number)
        self.check_stall()
        if event is Event.OUT_OF_RANGE and number is not None:
            self._ended.discard(number)
            if is_truncation(error):
                self.truncated(number, truncated_at(error))
            if number in self.unfinished:
                self._compare_with_ends(number)
        elif event is Event.MISSING:
            self.look()
            if not self._denials:
                time.sleep(_AGAIN_S)
        else:
            return False
        return True

    def log_retry(self, error: KafkaError, number: int | None) -> None:
        """Log an error that is not final."""
        log.info(
            "A fetch failed and is retried. event=fetch_retrying topic=%s partition=%s offset=%s error=%s",
            self.topic,
            number,
            None if number is None else self.positions[number],
            shown(error),
        )

    def quiet(self) -> None:
        """Check the stall timeout and, now and then, the topic. Call this if no record arrives.

        A consumer receives no error for a missing right, not always one for a deleted topic, and none for a
        partition that ends before its stop.
        """
        self.check_stall()
        was_missing = any(what == _TOPIC for what, _ in self._denials)
        quiet_s = time.monotonic() - max(self._looked_s, self._progress_s)
        if not self._denials and quiet_s < self._look_every_s:
            return
        self.look()
        self._looked_s = time.monotonic()
        for number in self._ended.intersection(self.unfinished):
            self._compare_with_ends(number)
        if was_missing:
            self.assign()

    def check_stall(self) -> None:
        """Raise the error of the reader if it made no progress for the stall timeout.

        What the brokers still deny is the cause. On a slow machine the denial may be older than its limit by
        now, without a second look at it.
        """
        stall = self._stall
        if stall is not None and stall.over:
            if self._denials:
                self.look()
            raise self.stalled(stall)

    def look(self) -> None:
        """Raise an error if the topic, a partition or a right has been missing for too long."""
        numbers = self.unfinished
        try:
            found = self._consumer.list_topics(self.topic, timeout=self._timeout_s()).topics.get(self.topic)
        except KafkaException as unanswered:
            self._hear(error_of(unanswered))
            return
        error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART) if found is None else found.error
        code = None if error is None else error.code()
        if error is not None and code in UNAUTHORIZED:
            self._hear(error)
            if self._denied_for_long(_RIGHT, numbers) is not None:
                raise self.refused(error)
        elif code in UNKNOWN_TOPIC:
            self._miss(numbers)
        elif found is not None and code is None:
            self._miss([number for number in numbers if number not in found.partitions])

    def _miss(self, missing: list[int]) -> None:
        for what, number in list(self._denials):
            if what in (_LOGIN, _RIGHT) or (what == _TOPIC and number not in missing):
                del self._denials[what, number]
        if not missing:
            return
        self.last = "the topic, or this partition of it, is not there"
        denied = self._denied_for_long(_TOPIC, missing)
        if denied is not None:
            raise self.gone(denied)

    def _compare_with_ends(self, number: int) -> None:
        """Skip removed records. Handle a partition that stays shorter than its range or position."""
        ends = self._ends(number)
        if ends is None:
            return
        (low, high), position = ends, self.positions[number]
        stop = self.stops.get(number, position)
        if low > position:
            up_to = min(low, self.stops.get(number, low))
            self.removed(number, up_to, ends)
            self.advance(number, up_to)
        elif high >= stop:
            self._denials.pop((_OFFSET, number), None)
            time.sleep(_AGAIN_S)
        elif self._denied_for_long(_OFFSET, [number]) is not None:
            self.ends_early(number, ends)

    def _ends(self, number: int) -> tuple[int, int] | None:
        """Return the first offset and the high watermark. None if no broker answers."""
        place = TopicPartition(self.topic, number)
        try:
            low, high = self._consumer.get_watermark_offsets(place, timeout=self._timeout_s())
        except KafkaException as unanswered:
            self._hear(error_of(unanswered))
            self.check_stall()
            return None
        if number in self._ended:
            # With read_committed the answer ends before open transactions, whose records are not gone. The
            # fetch that gave the end of the partition told the high watermark, too.
            high = max(high, self._consumer.get_watermark_offsets(place, cached=True)[1])
        return low, high

    def _denied_for_long(self, what: str, numbers: Iterable[int]) -> int | None:
        """Return a partition for which the brokers have denied ``what`` for too long.

        If none has been denied for too long, wait before the next request.
        """
        limit_ms = max(self._denial_ms, _LEAST_OF_TOPIC_MS) if what == _TOPIC else self._denial_ms
        for number in numbers:
            if self._denials.setdefault((what, number), Deadline.after_ms(limit_ms)).over:
                return number
        time.sleep(_AGAIN_S)
        return None

    def _forget_denials(self, number: int) -> None:
        for what in (_LOGIN, _TOPIC, _RIGHT, _OFFSET):
            self._denials.pop((what, number), None)

    def _hear(self, error: KafkaError) -> None:
        self._heard, self.last = error, shown(error)

    def _timeout_s(self) -> float:
        stall = self._stall
        return self.request_s if stall is None else stall.left_s(most=self.request_s, least=0.1)

    @property
    def _stall(self) -> Deadline | None:
        budget_ms = self._stall_timeout_ms
        return None if budget_ms is None else Deadline(budget_ms, self._progress_s + budget_ms / 1000)
