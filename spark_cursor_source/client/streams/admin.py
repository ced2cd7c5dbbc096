"""Administration of streams: create, delete, pause and describe topics."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_cursor_source.client.streams.subjects import attached
from spark_cursor_source.core.stream_metadata import ClusterMetadata, PartitionMetadata, StreamInfo
from spark_cursor_source.core.stream_state import StreamPartition, StreamSettings
from spark_cursor_source.errors import (
    CursorqError,
    NoSuchStream,
    StreamExists,
    TopicGone,
    TopicNotFound,
)
from spark_cursor_source.kafka.admin import ClusterAdmin, TopicInfo
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.topics.streams import StreamStates


class Streams:
    """Admin operations on streams. Threads may share an instance."""

    def __init__(self, topics: ClusterAdmin, states: StreamStates) -> None:
        self._topics, self._states = topics, states

    def create(
        self,
        stream: str,
        partitions: int,
        topic_settings: Mapping[str, object],
        settings: StreamSettings,
        *,
        replication: int | None,
    ) -> None:
        """Creates a topic and waits for its leaders. Raises StreamExists if the topic exists."""
        if not self._topics.create_new(stream, partitions, topic_settings, replication=replication):
            raise StreamExists(stream)
        try:
            self._states.define(stream, settings)
        except CursorqError as failed:
            # A topic without its stored settings would look like a stream with default settings.
            try:
                self._topics.delete(stream)
            except CursorqError as why:
                failed.add_note(f"Topic '{stream}' was created and could not be deleted: {why}")
            raise

    def delete(self, stream: str) -> None:
        """Deletes a topic and its stream settings. Raises NoSuchStream if the topic does not exist."""
        if not self._topics.delete(stream):
            raise NoSuchStream(stream)
        self._states.define(stream, StreamSettings())

    def pause(self, stream: str, partitions: Collection[int] | None, *, resume_all: bool) -> None:
        """Pauses the given partitions, or all if None.

        If a partition does not exist, pauses none and raises NoSuchStream.
        """
        self._states.pause(stream, self._numbers(stream, partitions), resume_all=resume_all)

    def set_readonly(self, stream: str, partitions: Collection[int] | None, *, readonly: bool) -> None:
        """Makes the given partitions, or all if None, readonly or writable. Fails like :meth:`pause`."""
        self._states.set_readonly(stream, self._numbers(stream, partitions), readonly=readonly)

    def info(self, stream: str, deadline: Deadline | None = None) -> TopicInfo:
        """Returns topic id and partition count. Raises NoSuchStream if the topic does not exist."""
        try:
            return self._topics.within(deadline).describe([stream])[stream]
        except TopicNotFound as missing:
            raise NoSuchStream(stream) from missing

    def metadata(self) -> ClusterMetadata:
        """Returns current metadata of the brokers and all streams."""
        found = self._topics.existing(self._topics.matching(".*"))
        view = self._states.refresh()
        return ClusterMetadata(
            brokers=self._topics.brokers(),
            streams={
                name: StreamInfo(subject=view.of(name).subject or name, partitions=info.partitions)
                for name, info in found.items()
            },
        )

    def attached(self, subject: str, deadline: Deadline) -> list[StreamPartition]:
        """Returns the partitions that receive a message to ``subject``.

        The subject of a stream defaults to the stream name.
        """
        view = self._states.view
        named = {subject, subject.rpartition(".")[0]} - {""}
        candidates = {stream for stream, found in view.settings.items() if found.subject is not None} | named
        infos = self._topics.within(deadline).existing(sorted(candidates))
        return [
            (name, number)
            for name, info in sorted(infos.items())
            for number in attached(view.of(name).subject or name, info.partitions, subject)
        ]

    def partition_metadata(self, stream: str, partition: int) -> PartitionMetadata:
        """Returns current metadata of a partition. Raises NoSuchStream if the partition does not exist."""
        placements = self._topics.placements(stream)
        if partition not in placements:
            raise NoSuchStream(stream, partition if placements else None)
        leader, replicas, in_sync = placements[partition]
        place = (stream, partition)
        state = self._states.refresh().state(place)
        try:
            end = self._topics.end_offsets([place], committed=False)[place]
            last = self._topics.last_appends([place]).get(place)
            return PartitionMetadata(
                stream=stream,
                partition=partition,
                leader=leader,
                replicas=replicas,
                in_sync=in_sync,
                oldest_offset=self._topics.beginning_offsets([place])[place],
                high_watermark=end,
                paused=state.paused,
                readonly=state.readonly,
                last_message_ms=None if last is None else last.at_ms,
                last_pause_change_ms=state.pause_changed_ms,
                last_readonly_change_ms=state.readonly_changed_ms,
            )
        except (TopicNotFound, TopicGone) as gone:
            raise NoSuchStream(stream) from gone

    def _numbers(self, stream: str, partitions: Collection[int] | None) -> list[int]:
        there = range(self.info(stream).partitions)
        for number in partitions or ():
            if number not in there:
                raise NoSuchStream(stream, number)
        return sorted(there if partitions is None else set(partitions))
