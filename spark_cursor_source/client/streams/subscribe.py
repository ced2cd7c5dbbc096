"""Opens subscriptions of the client and resolves their start and stop positions to offsets."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing

from spark_cursor_source.client.streams.admin import Streams
from spark_cursor_source.client.streams.keeper import StreamKeeper
from spark_cursor_source.client.streams.partition_reader import PartitionReader
from spark_cursor_source.client.streams.positions import Message, StartAt, StopAt, Where
from spark_cursor_source.core.stream_state import StreamPartition
from spark_cursor_source.errors import NoSuchStream, TopicGone, TopicNotFound
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.range_reader import RangeReader
from spark_cursor_source.options.kinds import MAX_LONG
from spark_cursor_source.topics.streams import StreamStates

_LOOK_BACK = 64  # offsets: usually the newest message is at one of the last two


class StreamSubscriber:
    """Opens subscriptions, which then run independently. Threads may share an instance."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        topics: ClusterAdmin,
        streams: Streams,
        states: StreamStates,
        keeper: StreamKeeper,
        *,
        timeout_ms: int,
    ) -> None:
        self._kafka, self._topics, self._timeout_ms = kafka, topics, timeout_ms
        self._streams, self._states, self._keeper = streams, states, keeper

    def subscribe(
        self,
        stream: str,
        partition: int,
        start: StartAt,
        stop: StopAt,
        *,
        resume: bool,
        is_closed: Callable[[], bool],
    ) -> Generator[Message]:
        """Returns the messages from ``start``. This call, not the first read, resolves the start position."""
        self._keeper.start(Deadline.after_ms(self._timeout_ms))
        topic = self._streams.info(stream)
        if not 0 <= partition < topic.partitions:
            raise NoSuchStream(stream, partition)
        place = (stream, partition)
        if resume:
            self._states.resume(place)
        try:
            first, behind = self._first(place, start), self._behind(place, stop)
        except (TopicNotFound, TopicGone) as gone:
            raise NoSuchStream(stream) from gone
        return PartitionReader(
            self._kafka,
            self._topics,
            topic,
            partition,
            start=first,
            stop=behind,
            awaits_stop=stop.where is Where.OFFSET,
            state=lambda: self._states.view.state(place),
            is_closed=is_closed,
        ).messages()

    def _first(self, place: StreamPartition, start: StartAt) -> int:
        match start.where:
            case Where.EARLIEST:
                return self._topics.beginning_offsets([place])[place]
            case Where.OFFSET:
                return start.value
            case Where.TIME:
                return self._topics.offsets_for_time([place], start.value)[place]
            case Where.AGO:
                return self._topics.offsets_for_time([place], self._states.now_ms() - start.value)[place]
            case Where.LATEST:
                return self._newest(place)
            case _:
                return self._end(place)

    def _behind(self, place: StreamPartition, stop: StopAt) -> int | None:
        match stop.where:
            case Where.OFFSET:
                return stop.value + 1
            case Where.LATEST:
                return self._end(place)
            case Where.TIME:
                # The end is read first: a message appended between both requests is newer than this call.
                end = self._end(place)
                after_ms = min(stop.value + 1, MAX_LONG)
                return min(end, self._topics.offsets_for_time([place], after_ms)[place])
            case _:
                return None

    def _end(self, place: StreamPartition) -> int:
        # The last stable offset: messages committed from now on are new.
        return self._topics.end_offsets([place], committed=True)[place]

    def _newest(self, place: StreamPartition) -> int:
        """Returns the offset of the newest message, or the end if the partition is empty.

        The newest message may be followed by transaction markers and aborted messages.
        """
        topic, number = place
        end, oldest = self._end(place), self._topics.beginning_offsets([place])[place]
        config = client_config(self._kafka, "consumer")
        with closing(RangeReader(config, committed=True, stall_timeout_ms=self._timeout_ms)) as reader:
            back, stop = _LOOK_BACK, end
            while stop > oldest:
                begin = max(oldest, stop - back)
                found = [message.offset() for message in reader.read(topic, {number: (begin, stop)})]
                if found:
                    return found[-1] or 0
                back, stop = back * 2, begin
        return end
