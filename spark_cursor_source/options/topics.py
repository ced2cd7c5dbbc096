"""Topic selection and positions: options that Spark's Kafka source writes as lists, patterns and JSON."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from spark_cursor_source.errors import ConflictingOptions, InvalidOption, MissingOption
from spark_cursor_source.options import kinds
from spark_cursor_source.options.declare import Option
from spark_cursor_source.options.reader import OptionReader
from spark_cursor_source.options.topic_pattern import compile_topic_pattern

EARLIEST = -2  #: in Kafka's JSON of offsets: the first remaining record
LATEST = -1  #: in Kafka's JSON of offsets: the end of the log

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """Selection of topics by name (option subscribe)."""

    topics: tuple[str, ...]

    def matches(self, topic: str) -> bool:
        return topic in self.topics

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the selected topics. Empty for a pattern."""
        return self.topics

    def __str__(self) -> str:
        return ",".join(self.topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribePattern:
    """Selection of every topic whose whole name matches (option subscribePattern).

    >>> pattern = SubscribePattern(pattern="orders-.*")
    >>> pattern.matches("orders-eu"), pattern.matches("my-orders-eu")
    (True, False)
    """

    pattern: str

    def matches(self, topic: str) -> bool:
        return compile_topic_pattern(self.pattern).fullmatch(topic) is not None

    @property
    def names(self) -> tuple[str, ...]:
        return ()

    def __str__(self) -> str:
        return self.pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """Selection of topic partitions by number, sorted (option assign)."""

    partitions: tuple[tuple[str, int], ...]

    def matches(self, topic: str) -> bool:
        return any(topic == assigned for assigned, _ in self.partitions)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({topic for topic, _ in self.partitions}))

    def __str__(self) -> str:
        return ",".join(f"{topic}-{number}" for topic, number in self.partitions)


TopicSelection = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True, slots=True, kw_only=True)
class FromCursor:
    """Start at the stored cursor, or at the earliest record without a cursor (startingOffsets=cursor)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FromEarliest:
    """Start at the first remaining record (startingOffsets=earliest)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FromLatest:
    """Start at the end of the log (startingOffsets=latest)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FromPositions:
    """Start at an offset, EARLIEST or LATEST per topic partition (startingOffsets as JSON)."""

    positions: tuple[tuple[str, int, int], ...]  #: (topic, partition, offset), sorted

    def position_of(self, topic: str, partition: int) -> int | None:
        return _find(self.positions, topic, partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class FromTimestamp:
    """Start at the first record at or after a timestamp, in every partition (startingTimestamp)."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FromTimestamps:
    """Start at the first record at or after a timestamp per topic partition (startingOffsetsByTimestamp)."""

    timestamps_ms: tuple[tuple[str, int, int], ...]  #: (topic, partition, timestamp), sorted

    def timestamp_ms_of(self, topic: str, partition: int) -> int | None:
        return _find(self.timestamps_ms, topic, partition)


StartingOffsets = FromCursor | FromEarliest | FromLatest | FromPositions | FromTimestamp | FromTimestamps


@dataclass(frozen=True, slots=True, kw_only=True)
class ToLatest:
    """End at the high watermark as of the start of the read (endingOffsets=latest)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToPositions:
    """End before an offset, or at LATEST, per topic partition (endingOffsets as JSON)."""

    positions: tuple[tuple[str, int, int], ...]  #: (topic, partition, offset), sorted

    def position_of(self, topic: str, partition: int) -> int | None:
        return _find(self.positions, topic, partition)


EndingOffsets = ToLatest | ToPositions

FROM_CURSOR = FromCursor()
FROM_EARLIEST = FromEarliest()
TO_LATEST = ToLatest()

SELECTION = (
    Option("subscribe", "the queue topics, separated by commas"),
    Option("subscribePattern", "a Java regular expression; every topic whose whole name matches is read"),
    Option("assign", 'topic partitions as JSON: `{"orders":[0,1]}`'),
)
SELECTIONS = tuple(option.name for option in SELECTION)

_INSTANT = "a new subscription starts at this instant, in milliseconds since 1970"
_INSTANTS = 'the same for each partition, as JSON: `{"orders":{"0":1700000000000}}`'
START_OF_SOURCE = (
    Option(
        "startingOffsets",
        "where a new subscription starts: `cursor`, `earliest`, `latest`, or Kafka's JSON",
        default="cursor",
    ),
    Option("startingTimestamp", _INSTANT),
    Option("startingOffsetsByTimestamp", _INSTANTS),
)
STARTS = tuple(option.name for option in START_OF_SOURCE)


def read_selection(reader: OptionReader) -> TopicSelection | None:
    """Read the topic selection.

    At most one of subscribe, subscribePattern and assign may be given. None if none of them is given.

    >>> read_selection(OptionReader({"subscribe": "orders, returns"}, known=SELECTIONS))
    Subscribe(topics=('orders', 'returns'))
    """
    given = tuple(option for option in SELECTIONS if reader.given(option))
    if len(given) > 1:
        raise ConflictingOptions(given, "each of them selects the topics that are read", "give exactly one")
    if (topics := reader.text("subscribe")) is not None:
        names = (kinds.topic("subscribe", name.strip()) for name in topics.split(","))
        return Subscribe(topics=tuple(dict.fromkeys(names)))
    if (pattern := reader.text("subscribePattern")) is not None:
        compile_topic_pattern(pattern)
        return SubscribePattern(pattern=pattern)
    if (assigned := reader.text("assign")) is not None:
        return Assign(partitions=_parse_assign(assigned))
    return None


def require_selection(reader: OptionReader) -> TopicSelection:
    selection = read_selection(reader)
    if selection is None:
        raise MissingOption("subscribe", "name topics in subscribe, subscribePattern or assign")
    return selection


def read_starting_offsets(reader: OptionReader, *, default: StartingOffsets = FROM_CURSOR) -> StartingOffsets:
    """Read the start position.

    As in Spark, the first given option of startingTimestamp, startingOffsetsByTimestamp and startingOffsets
    takes precedence.

    >>> reader = OptionReader({"startingOffsets": '{"orders":{"0":-2,"1":17}}'}, known=STARTS)
    >>> read_starting_offsets(reader)
    FromPositions(positions=(('orders', 0, -2), ('orders', 1, 17)))
    """
    instant_ms = reader.value("startingTimestamp", kinds.integer(least=0), default=None)
    by_timestamp = reader.text("startingOffsetsByTimestamp")
    offsets = reader.text("startingOffsets")
    if instant_ms is not None:
        return FromTimestamp(timestamp_ms=instant_ms)
    if by_timestamp is not None:
        return FromTimestamps(
            timestamps_ms=_parse_positions("startingOffsetsByTimestamp", by_timestamp, least=0)
        )
    if offsets is None:
        return default
    named: dict[str, StartingOffsets] = {
        "cursor": FromCursor(),
        "earliest": FromEarliest(),
        "latest": FromLatest(),
    }
    word = offsets.strip().lower()
    if word in named:
        return named[word]
    _refuse_misspelled("startingOffsets", word, named)
    return FromPositions(
        positions=_parse_positions(
            "startingOffsets", offsets, least=EARLIEST, words="cursor, earliest, latest, "
        )
    )


def read_ending_offsets(reader: OptionReader) -> EndingOffsets:
    """Read the end position of a batch read. The default is the end of the log."""
    offsets = reader.text("endingOffsets")
    if offsets is None or offsets.strip().lower() == "latest":
        return ToLatest()
    _refuse_misspelled("endingOffsets", offsets.strip().lower(), ("latest",))
    return ToPositions(positions=_parse_positions("endingOffsets", offsets, least=LATEST, words="latest, "))


def _refuse_misspelled(option: str, word: str, words: Iterable[str]) -> None:
    nearest = difflib.get_close_matches(word, list(words), n=1)
    if nearest:
        raise InvalidOption(option, word, "it is not an allowed value", f"did you mean {nearest[0]}?")


def _parse_assign(text: str) -> tuple[tuple[str, int], ...]:
    next_move = 'write it like {"orders":[0,1]}'
    by_topic = _parse_object("assign", text, next_move)
    partitions: set[tuple[str, int]] = set()
    for topic, numbers in by_topic.items():
        kinds.topic("assign", topic)
        if not isinstance(numbers, list) or not all(_is_number(n, 0, 2**31 - 1) for n in numbers):
            raise InvalidOption(
                "assign", text, f"the partitions of '{topic}' are not a list of numbers", next_move
            )
        partitions.update((topic, number) for number in numbers)
    if not partitions:
        raise InvalidOption("assign", text, "it names no partition", next_move)
    return tuple(sorted(partitions))


def _parse_positions(
    option: str, text: str, *, least: int, words: str = ""
) -> tuple[tuple[str, int, int], ...]:
    next_move = (
        f'give {words}or JSON like {{"orders":{{"0":23}}}}' if words else 'write it like {"orders":{"0":23}}'
    )
    positions: dict[tuple[str, int], int] = {}
    for topic, by_partition in _parse_object(option, text, next_move).items():
        kinds.topic(option, topic)
        if not isinstance(by_partition, dict):
            raise InvalidOption(option, text, f"'{topic}' has no object of partitions", next_move)
        for partition, position in by_partition.items():
            number = kinds.parse_integer(option, partition, least=0, most=2**31 - 1)
            if (topic, number) in positions:  # as "0" and "00"
                raise InvalidOption(
                    option, text, f"'{topic}' names its partition {number} twice", "give it once"
                )
            if not _is_number(position, least, kinds.MAX_LONG):
                why = f"'{topic}' partition {number} does not have a whole number of at least {least}"
                raise InvalidOption(option, text, why, next_move)
            positions[topic, number] = position
    if not positions:
        raise InvalidOption(option, text, "it names no partition", next_move)
    return tuple(sorted((*place, position) for place, position in positions.items()))


def _parse_object(option: str, text: str, next_move: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as cause:
        raise InvalidOption(option, text, "it is not valid JSON", next_move) from cause
    if not isinstance(parsed, dict):
        raise InvalidOption(option, text, "it is not a JSON object", next_move)
    return parsed


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a name stands twice")
    return dict(pairs)


def _is_number(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _find(entries: tuple[tuple[str, int, int], ...], topic: str, partition: int) -> int | None:
    return next((value for name, number, value in entries if (name, number) == (topic, partition)), None)
