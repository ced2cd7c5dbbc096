"""State of a stream beyond its Kafka topic: settings, and paused or readonly partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from spark_cursor_source.errors import ReadonlyPartition

StreamPartition = tuple[str, int]  #: (stream, partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """Creation settings of a stream that have no equivalent topic setting."""

    subject: str | None = None  #: subject of the stream; None: its name
    optimistic_concurrency: bool = False  #: publishers may pass the offset that they expect
    retention_messages: int | None = None  #: minimum number of messages that each partition keeps; None: all

    @property
    def kept_offsets(self) -> int | None:
        """Number of offsets that hold the retained messages; None: no limit.

        With optimistic concurrency each message can be a transaction, and its transaction marker takes an
        offset too.
        """
        if self.retention_messages is None:
            return None
        return self.retention_messages * (2 if self.optimistic_concurrency else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Pause and readonly state of a partition. Times are broker times."""

    paused: bool = False
    resume_all: bool = False  #: a message to any partition of the stream resumes this one
    pause_changed_ms: int | None = None  #: time of the last pause or resume; None: never
    readonly: bool = False
    readonly_changed_ms: int | None = None  #: time of the last change of ``readonly``; None: never


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfigured:
    """Record of the streams topic: the settings of a stream; None: no settings, as for a deleted stream."""

    stream: str
    settings: StreamSettings | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """Record of the streams topic: a partition was paused or resumed; None clears the pause state."""

    place: StreamPartition
    paused: bool | None
    resume_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeReadonly:
    """Record of the streams topic: a partition was made readonly or writable; None clears the state."""

    place: StreamPartition
    readonly: bool | None


StreamRecord = StreamConfigured | Paused | MadeReadonly

_ORDINARY = StreamSettings()
_WORKING = PartitionState()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamView:
    """State of the streams according to their records; later records override earlier ones.

    >>> view = StreamView().after([(Paused(place=("orders", 1), paused=True), 5)])
    >>> view.state(("orders", 1)).paused, view.state(("orders", 0)).paused
    (True, False)
    """

    settings: Mapping[str, StreamSettings] = field(default_factory=dict)
    #: stream -> partition -> state
    states: Mapping[str, Mapping[int, PartitionState]] = field(default_factory=dict)

    def after(self, records: Iterable[tuple[StreamRecord, int]]) -> StreamView:
        """Returns the view with more records, each with the broker time of its append."""
        settings, states = dict(self.settings), dict(self.states)
        for record, at_ms in records:
            if isinstance(record, StreamConfigured):
                settings.pop(record.stream, None)
                if record.settings is not None:
                    settings[record.stream] = record.settings
            else:
                stream, number = record.place
                of_stream = states.get(stream, {})
                changed = _changed(of_stream.get(number, _WORKING), record, at_ms)
                states[stream] = {**of_stream, number: changed}
        return StreamView(settings=settings, states=states)

    def of(self, stream: str) -> StreamSettings:
        """Returns the settings of a stream, or the defaults of any topic if it has no record."""
        return self.settings.get(stream, _ORDINARY)

    def state(self, place: StreamPartition) -> PartitionState:
        """Returns the state of a partition; without a record it is neither paused nor readonly."""
        stream, number = place
        return self.states.get(stream, {}).get(number, _WORKING)

    def paused_in(self, stream: str) -> frozenset[int]:
        """Returns the paused partitions of a stream."""
        return frozenset(number for number, state in self.states.get(stream, {}).items() if state.paused)

    def resumed_by(self, place: StreamPartition) -> list[int]:
        """Returns the partitions that a message to ``place`` resumes.

        >>> places = [("orders", 0), ("orders", 1)]
        >>> pauses = [(Paused(place=place, paused=True, resume_all=True), 5) for place in places]
        >>> StreamView().after(pauses).resumed_by(("orders", 7))
        [0, 1]
        """
        stream, number = place
        return sorted(
            other
            for other, state in self.states.get(stream, {}).items()
            if state.paused and (other == number or state.resume_all)
        )

    def check_writable(self, place: StreamPartition) -> None:
        """Checks that messages may be appended to a partition.

        Raises:
            ReadonlyPartition: the partition is readonly.
        """
        if self.state(place).readonly:
            raise ReadonlyPartition(*place)

    def records_of(self, stream: str) -> list[StreamRecord]:
        """Returns the records that clear all known state of a stream."""
        undone: list[StreamRecord] = []
        if stream in self.settings:
            undone.append(StreamConfigured(stream=stream, settings=None))
        for number in sorted(self.states.get(stream, {})):
            place = (stream, number)
            undone += [Paused(place=place, paused=None), MadeReadonly(place=place, readonly=None)]
        return undone


def _changed(state: PartitionState, record: Paused | MadeReadonly, at_ms: int) -> PartitionState:
    if isinstance(record, Paused):
        forgotten = record.paused is None
        return replace(
            state,
            paused=bool(record.paused),
            resume_all=bool(record.paused) and record.resume_all,
            pause_changed_ms=None if forgotten else at_ms,
        )
    forgotten = record.readonly is None
    return replace(
        state,
        readonly=bool(record.readonly),
        readonly_changed_ms=None if forgotten else at_ms,
    )
