"""Copies of the unacked messages of one topic in the rescue topic, and tombstones for those that ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import KafkaError, Message

from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.core.rescue import (
    DueMessages,
    LogState,
    Need,
    RescuePlace,
    UnneededCopies,
    freed_after_ms,
    needed_in,
    young_from_ms,
)
from spark_cursor_source.errors import CopiesNotDurable, TopicNotFound
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import shown
from spark_cursor_source.kafka.range_consumer import place_of
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.kafka.record_headers import headers_of
from spark_cursor_source.metrics import table
from spark_cursor_source.metrics.counts import Counts
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.topics.copies import OF_ONE_MESSAGE, MessageCopier, reading_rounds
from spark_cursor_source.topics.rescue import RescueIndex
from spark_cursor_source.tracker.marker_clocks import monotonic_ms
from spark_cursor_source.wire import rescue as wire

log = logging.getLogger(__name__)

_SETTINGS_MS = 60_000  # interval of the check for changed settings of a topic
_FLUSH_BYTES = 16 << 20
_FLUSH_RECORDS = 10_000
_MOST_AT_ONCE = 256 << 20  # bytes of one topic and check, so that other topics have their turn


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCheck:
    """Facts for the check of one topic."""

    topic: str
    needs: Mapping[int, Sequence[Need]]  #: by partition
    now_ms: int  #: time of the brokers; 0 if no subscription exists
    frees: bool  #: False if a cursor of the topic cannot be read, so that more may be needed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Retention:
    """Settings of a topic that delete messages."""

    by_time_ms: int | None
    by_size: bool

    @property
    def deletes(self) -> bool:
        return self.by_time_ms is not None or self.by_size


class _Copy(NamedTuple):
    """A record of the rescue topic that is not confirmed yet."""

    place: RescuePlace
    offset: int  #: of the message; -1: the record names gaps
    key: bytes
    value: bytes | None


class RescueCopier:
    """Reader of queue topics and writer of the rescue topic. One thread uses it."""

    def __init__(
        self,
        options: TrackerOptions,
        topics: ClusterAdmin,
        counts: Counts,
        *,
        timeout_ms: int,
        before_free: Callable[[], None],
    ) -> None:
        """``before_free`` is called before copies are freed. It may call :meth:`wait_again`."""
        assert options.rescue_before_ms is not None
        self._before_ms, self._most_bytes = options.rescue_before_ms, options.rescue_max_bytes
        self._rescue_topic, self._markers_topic = options.rescue_topic, options.markers_topic
        self._topics, self._counts, self._before_free = topics, counts, before_free
        consumer = client_config(options.kafka, "consumer")
        self._index = RescueIndex(
            consumer, options.rescue_topic, markers_topic=options.markers_topic, timeout_ms=timeout_ms
        )
        self._reader = RangeReader(consumer, committed=True, stall_timeout_ms=timeout_ms)
        self._copies = MessageCopier(client_config(options.kafka, "producer"), patience_ms=timeout_ms)
        self._owns: Callable[[int], bool] = lambda _: False
        self._own: frozenset[int] = frozenset()
        self._share = 1.0  # part of the rescue topic that belongs to this tracker
        self._due = DueMessages()
        self._unneeded = UnneededCopies(grace_ms=freed_after_ms(self._before_ms))
        self._retention: dict[str, tuple[_Retention, Deadline]] = {}
        self._too_large: dict[RescuePlace, OffsetSet] = {}  # messages that the rescue topic refuses
        self._missed: dict[RescuePlace, int] = {}  # first offset that is not missed
        self._waiting = 0  # bytes and records that are not flushed
        self._records = 0
        self._failed: list[tuple[_Copy, KafkaError]] = []
        self._used = 0  # bytes of the copies, with those since the index was read
        self.has_more = False  #: True if due messages of the topic of the last check are left to the next one
        self._is_full: set[str] = set()  # topics with messages beyond the limit

    def margin_ms(self, topic: str) -> int:
        """Returns how long before the deletion of a message of this topic its copy is due."""
        known = self._retention.get(topic)
        by_time_ms = None if known is None else known[0].by_time_ms
        return self._before_ms if by_time_ms is None else min(self._before_ms, by_time_ms)

    def begin(self, owns: Callable[[int], bool]) -> dict[str, list[RescuePlace]]:
        """Reads the index of the partitions of the rescue topic that ``owns`` selects.

        Returns the places with copies, by topic. Creates the rescue topic if it does not exist.

        Raises:
            RescueTopicNotCompacted, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        count = self._index.partitions
        if count is None:
            count = self._topics.ensure_rescue(self._rescue_topic)
        self._owns = owns
        own = frozenset(number for number in range(count) if owns(number))
        if own != self._own:
            self._index.forget()  # copies of partitions that another tracker has now would count as bytes
            self._own = own
        self._share = len(own) / count
        if not self._index.refresh(own):
            raise TopicNotFound((self._rescue_topic,))
        found: dict[str, list[RescuePlace]] = {}
        for place in self._index.places():
            if owns(self._index.partition_of(place)):
                found.setdefault(place.topic, []).append(place)
        self._used = self._index.bytes
        self._counts.set(table.RESCUE_BYTES, to=self._used)
        return found

    def check(self, check: TopicCheck, copies: Collection[RescuePlace]) -> bool:
        """Copies the due messages of a topic, and frees copies that nobody needs.

        Returns True if each due message has a copy. When it returns, the brokers have confirmed the copies.

        Raises:
            KafkaFailure: the topic or the rescue topic failed. The check is repeated later.
        """
        self.has_more = False
        try:
            return self._check(check, copies)
        except CopiesNotDurable:
            self._copies.discard()
            raise
        finally:
            self._waiting = self._records = 0
            self._failed.clear()
            self._counts.set(table.RESCUE_BYTES, to=self._used)

    def wait_again(self) -> None:
        """Begins again to wait before copies are freed, because the known needs may be old."""
        self._unneeded.wait_again()

    def close(self) -> None:
        """Closes the clients."""
        self._index.close()
        self._reader.close()
        self._copies.discard()

    def _check(self, check: TopicCheck, copies: Collection[RescuePlace]) -> bool:
        info = self._topics.existing([check.topic]).get(check.topic)
        present: set[RescuePlace] = set()
        complete = True
        if info is not None and check.needs:
            places = {
                number: RescuePlace(check.topic, info.topic_id, number) for number in range(info.partitions)
            }
            present = {place for place in places.values() if self._owns(self._index.partition_of(place))}
            complete = self._copy_due(check, present)
        if check.frees:
            # The broker may not know a new topic yet. A topic that is gone has its copies as long as cursors.
            gone = info is not None or not any(check.needs.values())
            for place in copies:
                if place in present:
                    self._free(place, self._of_place(check, place))
                elif gone:
                    self._free(place, ())
        self._flush()
        return complete

    # -- copies ----------------------------------------------------------------------------------------

    def _copy_due(self, check: TopicCheck, places: Collection[RescuePlace]) -> bool:
        retention = self._retention_of(check.topic)
        self._due.forget(
            place for place in self._due.places() if place.topic == check.topic and place not in places
        )
        needed = {place.partition: place for place in places if self._of_place(check, place)}
        if not retention.deletes or not needed:
            return True
        leaders = self._topics.placements(check.topic)
        led = {number: needed[number] for number in needed if leaders.get(number, (None,))[0] is not None}
        logs = self._logs(check, list(led), retention)
        wanted = {number: self._wanted(check, place, logs[number]) for number, place in led.items()}
        wanted = {number: offsets for number, offsets in wanted.items() if offsets}
        beyond = self._copy(check.topic, led, wanted)
        unsaved = beyond + sum(self._count_too_large(check, led[number], logs[number]) for number in led)
        self._counts.set(table.RESCUE_UNSAVED, check.topic, to=unsaved)
        return len(led) == len(needed) and not unsaved and not self.has_more

    def _count_too_large(self, check: TopicCheck, place: RescuePlace, log_state: LogState) -> int:
        large = self._too_large.get(place)
        if large is None:
            return 0
        large &= needed_in(self._of_place(check, place), log_state.start, log_state.end)
        self._too_large[place] = large
        return len(large)

    def _logs(self, check: TopicCheck, numbers: Sequence[int], retention: _Retention) -> dict[int, LogState]:
        tps = [(check.topic, number) for number in numbers]
        starts = self._topics.beginning_offsets(tps)
        ends = self._topics.end_offsets(tps, committed=True)
        young: Mapping[tuple[str, int], int] = {}
        if retention.by_time_ms is not None:
            from_ms = young_from_ms(check.now_ms, retention.by_time_ms, self._before_ms)
            young = self._topics.offsets_for_time(tps, from_ms)
        return {
            tp[1]: LogState(start=starts[tp], end=ends[tp], young=young.get(tp), by_size=retention.by_size)
            for tp in tps
        }

    def _wanted(self, check: TopicCheck, place: RescuePlace, log_state: LogState) -> OffsetSet:
        """Returns the offsets of a partition to copy now."""
        needs = self._of_place(check, place)
        known = self._index.rescued(place) | self._index.gaps(place)
        self._tell_of_missed(place, needed_in(needs, 0, log_state.start) - known, log_state.start)
        due = self._due.below(place, log_state)
        wanted = needed_in(needs, log_state.start, min(due, log_state.end)) - known
        return wanted - self._too_large.get(place, EMPTY)

    def _copy(self, topic: str, places: Mapping[int, RescuePlace], wanted: Mapping[int, OffsetSet]) -> int:
        """Copies the messages. Returns the number of those that are beyond the limit of bytes."""
        found: dict[int, list[int]] = {number: [] for number in wanted}
        most = self._most_bytes * self._share
        begun = self._used
        is_full = is_long = False
        with closing(self._messages(topic, wanted)) as messages:
            for message in messages:
                number, offset = place_of(message)
                key = wire.record_key(self._markers_topic, places[number], offset)
                value = wire.encode(_record_of(message))
                size = len(key) + len(value)
                is_full, is_long = self._used + size > most, self._used > begun + _MOST_AT_ONCE
                if is_full or is_long:
                    break
                self._used += size
                found[number].append(offset)
                self._add(places[number], offset, key, value)
        self._flush()
        # Read again: retention may have deleted messages while they were copied. They are no gaps.
        starts = self._topics.beginning_offsets([(topic, number) for number in wanted])
        left = 0
        for number, offsets in wanted.items():
            rest = offsets - OffsetSet.from_offsets(found[number])
            if is_full or is_long:
                left += len(rest)
            else:
                self._keep_gaps(places[number], rest.starting_at(starts[topic, number]))
            self._tell_of_copies(topic, number, len(found[number]))
        self._flush()
        self._tell_of_limit(topic, left if is_full else 0)
        self.has_more = is_long
        return left if is_full else 0

    def _messages(self, topic: str, wanted: Mapping[int, OffsetSet]) -> Generator[Message]:
        for ranges in reading_rounds(wanted):
            with closing(self._reader.read(topic, ranges)) as reading:
                for message in reading:
                    number, offset = place_of(message)
                    if offset in wanted[number]:
                        yield message

    def _keep_gaps(self, place: RescuePlace, gaps: OffsetSet) -> None:
        if gaps:
            key = wire.record_key(self._markers_topic, place, None)
            self._add(place, -1, key, wire.encode_gaps(self._index.gaps(place) | gaps))

    # -- freed copies ----------------------------------------------------------------------------------

    def _free(self, place: RescuePlace, needs: Collection[Need]) -> None:
        self._before_free()
        copies = self._index.rescued(place)
        freed = self._unneeded.free(place, copies, needs, now_ms=monotonic_ms())
        for offset in freed:
            self._add(place, offset, wire.record_key(self._markers_topic, place, offset), None)
        gaps = self._index.gaps(place)
        last = gaps.last
        if last is not None and not (gaps & needed_in(needs, gaps.first or 0, last + 1)):
            self._add(place, -1, wire.record_key(self._markers_topic, place, None), None)
        if freed:
            log.info(
                "Copies that no subscription needs were deleted from the rescue topic. "
                "event=rescued_messages_freed topic=%s partition=%d messages=%d",
                place.topic,
                place.partition,
                len(freed),
            )

    # -- helpers ---------------------------------------------------------------------------------------

    def _of_place(self, check: TopicCheck, place: RescuePlace) -> list[Need]:
        """Returns the needs of a place, without those of an earlier topic of the same name."""
        return [
            need
            for need in check.needs.get(place.partition, ())
            if need.topic_id in (None, "", place.topic_id)
        ]

    def _retention_of(self, topic: str) -> _Retention:
        known = self._retention.get(topic)
        if known is not None and not known[1].over:
            return known[0]
        settings = self._topics.settings(topic)
        deletes = "delete" in (settings.get("cleanup.policy") or "delete")
        by_time_ms = int(settings.get("retention.ms") or -1)
        retention = _Retention(
            by_time_ms=by_time_ms if deletes and by_time_ms >= 0 else None,
            by_size=deletes and int(settings.get("retention.bytes") or -1) >= 0,
        )
        self._retention[topic] = retention, Deadline.after_ms(_SETTINGS_MS)
        return retention

    def _add(self, place: RescuePlace, offset: int, key: bytes, value: bytes | None) -> None:
        self._send(_Copy(place, offset, key, value))
        self._waiting += len(value or b"")
        self._records += 1
        if self._waiting >= _FLUSH_BYTES or self._records >= _FLUSH_RECORDS:
            self._flush()

    def _send(self, copy: _Copy) -> None:
        def told(error: KafkaError | None) -> None:
            if error is not None:
                self._failed.append((copy, error))

        partition = self._index.partition_of(copy.place)
        self._copies.add(self._rescue_topic, partition, key=copy.key, value=copy.value, headers=[], told=told)

    def _flush(self) -> None:
        """Waits until the brokers have confirmed all copies, without those that are too large.

        Raises:
            CopiesNotDurable
        """
        # A broker refuses a whole produce batch because of one record. So each refused one is sent alone.
        for copy in self._refused():
            self._send(copy)
            for alone in self._refused():
                self._tell_of_large(alone)
        self._waiting = self._records = 0

    def _refused(self) -> list[_Copy]:
        """Waits for the brokers and returns the copies that they refuse for their size."""
        self._copies.flush()
        failed, self._failed = self._failed, []
        for _, error in failed:
            if error.code() not in OF_ONE_MESSAGE:
                raise CopiesNotDurable(self._rescue_topic, len(failed), shown(error))
        return [copy for copy, _ in failed]

    def _tell_of_large(self, copy: _Copy) -> None:
        log.error(
            "A message is too large for the rescue topic and is not rescued. Raise max.message.bytes of the "
            "rescue topic and start the tracker again. event=message_too_large_to_rescue topic=%s "
            "partition=%d offset=%d",
            copy.place.topic,
            copy.place.partition,
            copy.offset,
        )
        large = OffsetSet.of((copy.offset, copy.offset + 1)) if copy.offset >= 0 else EMPTY
        self._too_large[copy.place] = self._too_large.get(copy.place, EMPTY) | large

    def _tell_of_copies(self, topic: str, number: int, copied: int) -> None:
        if not copied:
            return
        self._counts.add(table.RESCUED, topic, by=copied)
        log.info(
            "Unacked messages were copied to the rescue topic. event=messages_rescued topic=%s partition=%d "
            "messages=%d",
            topic,
            number,
            copied,
        )

    def _tell_of_limit(self, topic: str, beyond: int) -> None:
        if not beyond:
            self._is_full.discard(topic)
            return
        if topic not in self._is_full:
            log.error(
                "The rescue topic is full, and messages beyond its limit are not rescued. Retention deletes "
                "them soon. Raise rescueMaxBytes of the tracker, or retention.ms of the topic. "
                "event=rescue_full topic=%s messages=%d bytes=%d limit=%d",
                topic,
                beyond,
                self._index.bytes,
                self._most_bytes,
            )
        self._is_full.add(topic)

    def _tell_of_missed(self, place: RescuePlace, missed: OffsetSet, start: int) -> None:
        new = missed.starting_at(self._missed.get(place, 0))
        self._missed[place] = start
        if new:
            log.warning(
                "Offsets were removed before they could be rescued. Some of them may hold no message. "
                "event=not_rescued_in_time topic=%s partition=%d offsets=%d first=%s last=%s",
                place.topic,
                place.partition,
                len(new),
                new.first,
                new.last,
            )


def _record_of(message: Message) -> wire.RescuedRecord:
    kind, timestamp_ms = message.timestamp()
    return wire.RescuedRecord(
        key=message.key(),
        value=message.value(),
        headers=tuple(headers_of(message)),
        timestamp_ms=max(timestamp_ms, 0),
        timestamp_type=kind,
    )
