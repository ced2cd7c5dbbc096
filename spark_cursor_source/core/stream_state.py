"""What a stream is beyond its Kafka topic: what it listens to, and which of its partitions rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from spark_cursor_source.errors import ReadonlyPartition

StreamPartition = tuple[str, int]  #: (stream, partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """What a stream was created with that a topic has no setting for."""

    subject: str | None = None  #: that it listens to; None: its name
    optimistic_concurrency: bool = False  #: whether a publisher may say which offset it expects
    retention_messages: int | None = None  #: how many messages each partition keeps at least; None: all

    @property
    def kept_offsets(self) -> int | None:
        """How many offsets hold so many messages: where each can be a transaction, its mark takes one too."""
        if self.retention_messages is None:
            return None
        return self.retention_messages * (2 if self.optimistic_concurrency else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Whether a partition is delivered and takes messages; the times are the broker's."""

    paused: bool = False
    resume_all: bool = False  #: a message to any partition of the stream ends the pause of this one
    pause_changed_ms: int | None = None  #: when it was last paused or resumed; None: never
    readonly: bool = False
    readonly_changed_ms: int | None = None  #: when it was last made readonly or writable; None: never


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfigured:
    """A record of the streams topic: a stream has these settings; None: it has none, as one that is gone."""

    stream: str
    settings: StreamSettings | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """A record of the streams topic: a partition was paused or resumed. None: as if it never was."""

    place: StreamPartition
    paused: bool | None
    resume_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeReadonly:
    """A record of the streams topic: a partition was made readonly, or writable. None: as if it never was."""

    place: StreamPartition
    readonly: bool | None


StreamRecord = StreamConfigured | Paused | MadeReadonly

_ORDINARY = StreamSettings()
_WORKING = PartitionState()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamView:
    """What the records say, the later ones before the earlier ones.

    >>> view = StreamView().after([(Paused(place=("orders", 1), paused=True), 5)])
    >>> view.state(("orders", 1)).paused, view.state(("orders", 0)).paused
    (True, False)
    """

    settings: Mapping[str, StreamSettings] = field(default_factory=dict)
    states: Mapping[str, Mapping[int, PartitionState]] = field(default_factory=dict)  #: stream -> partition

    def after(self, records: Iterable[tuple[StreamRecord, int]]) -> StreamView:
        """The view with more records, each with the broker's time when it was written."""
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
        """The settings of a stream; those of any topic where nobody has said more."""
        return self.settings.get(stream, _ORDINARY)

    def state(self, place: StreamPartition) -> PartitionState:
        """The state of a partition: neither paused nor readonly where nobody has said so."""
        stream, number = place
        return self.states.get(stream, {}).get(number, _WORKING)

    def paused_in(self, stream: str) -> frozenset[int]:
        """The partitions of a stream that are paused."""
        return frozenset(number for number, state in self.states.get(stream, {}).items() if state.paused)

    def resumed_by(self, place: StreamPartition) -> list[int]:
        """The partitions whose pause ends with a message to ``place``.

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
        """That messages may be added to a partition.

        Raises:
            ReadonlyPartition: they may not.
        """
        if self.state(place).readonly:
            raise ReadonlyPartition(*place)

    def records_of(self, stream: str) -> list[StreamRecord]:
        """The records that undo all that is known of a stream."""
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
