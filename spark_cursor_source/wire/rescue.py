"""Records of the rescue topic to bytes and back."""

from __future__ import annotations

from dataclasses import dataclass

from spark_cursor_source.core.offsets import OFFSET_LIMIT, OffsetSet
from spark_cursor_source.core.rescue import RescuePlace
from spark_cursor_source.wire.descriptors import check_version, parsed
from spark_cursor_source.wire.offsets import decode_offsets, encode_offsets
from spark_cursor_source.wire.rescue_pb2 import RescuedGaps, RescuedMessage

VERSION = 1
_NO_VERSION = "the value does not name its version"
_GAPS = "gaps"  # stands for the offset in the key of a record of gaps

Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RescuedRecord:
    """Content of a message, without its place."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0
    timestamp_type: int = 0  #: as in the Kafka client: 0 none, 1 CreateTime, 2 LogAppendTime


def place_key(place: RescuePlace) -> bytes:
    """Returns the text whose checksum chooses the partition of the rescue topic.

    The id of the topic is not part of it.

    >>> place_key(RescuePlace("orders", "id", 3))
    b'orders,3'
    """
    return f"{place.topic},{place.partition}".encode()


def record_key(markers_topic: str, place: RescuePlace, offset: int | None) -> bytes:
    """Returns the record key of the copy of a message, or of the gaps of a partition if ``offset`` is None.

    Trackers of several markers topics can share a rescue topic, and each one frees only its own copies.

    >>> record_key("markers", RescuePlace("orders", "id", 3), 17)
    b'markers,id,orders,3,17'
    >>> read_key(b'markers,id,orders,3,17')
    ('markers', RescuePlace(topic='orders', topic_id='id', partition=3), 17)
    >>> read_key(b'markers,id,orders,3,-17') is None
    True
    """
    last = _GAPS if offset is None else str(offset)
    return f"{markers_topic},{place.topic_id},{place.topic},{place.partition},{last}".encode()


def read_key(key: bytes) -> tuple[str, RescuePlace, int | None] | None:
    """Returns markers topic, place and offset of a record key; None: the key is of another program."""
    try:
        markers_topic, topic_id, topic, partition, last = key.decode().split(",")
        place, offset = RescuePlace(topic, topic_id, int(partition)), None if last == _GAPS else int(last)
    except ValueError:
        return None
    is_ours = record_key(markers_topic, place, offset) == key and 0 <= (offset or 0) < OFFSET_LIMIT
    return (markers_topic, place, offset) if is_ours else None


def encode(record: RescuedRecord) -> bytes:
    """Returns the record value of a message.

    >>> one = RescuedRecord(key=b"k", value=None, headers=(("h", None),), timestamp_ms=5, timestamp_type=1)
    >>> decode(encode(one)) == one
    True
    """
    pb = RescuedMessage(
        version=VERSION, timestamp_ms=record.timestamp_ms, timestamp_type=record.timestamp_type
    )
    if record.key is not None:
        pb.key = record.key
    if record.value is not None:
        pb.value = record.value
    for name, value in record.headers:
        header = pb.headers.add(key=name)
        if value is not None:
            header.value = value
    return pb.SerializeToString(deterministic=True)


def decode(value: bytes) -> RescuedRecord:
    """Returns the message of a record value.

    Raises:
        LaterCursorVersion: the value has a later version than this library reads.
        InvalidControlRecord: the value is not a rescued message.
    """
    pb = parsed(RescuedMessage, value, "the rescue topic")
    check_version(pb.version, VERSION, otherwise=_NO_VERSION)
    return RescuedRecord(
        key=pb.key if pb.HasField("key") else None,
        value=pb.value if pb.HasField("value") else None,
        headers=tuple((one.key, one.value if one.HasField("value") else None) for one in pb.headers),
        timestamp_ms=pb.timestamp_ms,
        timestamp_type=pb.timestamp_type,
    )


def encode_gaps(offsets: OffsetSet) -> bytes:
    """Returns the record value of gaps.

    >>> decode_gaps(encode_gaps(OffsetSet.of((3, 5)))).ranges
    ((3, 5),)
    """
    return RescuedGaps(version=VERSION, offsets=encode_offsets(offsets)).SerializeToString(deterministic=True)


def decode_gaps(value: bytes) -> OffsetSet:
    """Returns the gaps of a record value.

    Raises:
        LaterCursorVersion, InvalidControlRecord: see :func:`decode`.
    """
    pb = parsed(RescuedGaps, value, "the rescue topic")
    check_version(pb.version, VERSION, otherwise=_NO_VERSION)
    return decode_offsets(pb.offsets)
