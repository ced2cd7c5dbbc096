"""Records of the streams topic to bytes and back. The key names a setting, the value is its current state."""

from __future__ import annotations

from spark_cursor_source.core.stream_state import (
    MadeReadonly,
    Paused,
    StreamConfigured,
    StreamPartition,
    StreamRecord,
    StreamSettings,
)
from spark_cursor_source.errors import InvalidControlRecord
from spark_cursor_source.wire.control_pb2 import Stream as StreamPb
from spark_cursor_source.wire.descriptors import UNREADABLE

VERSION = 1
CLOCK_KEY = b","  #: key of records without content, written only to get a broker timestamp

_PAUSED = "paused"
_READONLY = "readonly"


def key_of(record: StreamRecord) -> bytes:
    """Returns the record key. Stream names contain no comma, so the key is unambiguous.

    >>> key_of(Paused(place=("orders", 3), paused=True))
    b'orders,3,paused'
    """
    match record:
        case StreamConfigured(stream=stream):
            return stream.encode()
        case Paused(place=(stream, partition)):
            return f"{stream},{partition},{_PAUSED}".encode()
        case MadeReadonly(place=(stream, partition)):
            return f"{stream},{partition},{_READONLY}".encode()


def encode(record: StreamRecord) -> bytes | None:
    """Returns the record value; None, a tombstone, for a record that clears a state.

    >>> encode(MadeReadonly(place=("orders", 3), readonly=True)).hex(" ", 1)
    '08 01 20 01'
    """
    pb = StreamPb(version=VERSION)
    match record:
        case StreamConfigured(settings=None) | Paused(paused=None) | MadeReadonly(readonly=None):
            return None
        case StreamConfigured(settings=StreamSettings() as settings):
            pb.settings.CopyFrom(
                StreamPb.Settings(
                    subject=settings.subject,
                    optimistic_concurrency=settings.optimistic_concurrency,
                    retention_messages=settings.retention_messages,
                )
            )
        case Paused(paused=bool() as paused, resume_all=resume_all):
            pb.pause.CopyFrom(StreamPb.Pause(paused=paused, resume_all=resume_all))
        case MadeReadonly(readonly=bool() as readonly):
            pb.readonly = readonly
    return pb.SerializeToString(deterministic=True)


def decode(key: bytes, value: bytes | None) -> StreamRecord:
    """Returns the record of a key and value.

    Raises:
        InvalidControlRecord: the bytes are not a record of the streams topic, or are one of a later version.
    """
    stream, place, what = _parsed(key)
    try:
        pb = None if value is None else StreamPb.FromString(value)
    except UNREADABLE as cause:
        raise InvalidControlRecord(f"the record {key!r} is no protobuf message of streams") from cause
    if pb is not None and (pb.version != VERSION or pb.WhichOneof("what") != what):
        raise InvalidControlRecord(f"the record {key!r} has version {pb.version} and is not about {what}")
    if place is None:
        return StreamConfigured(stream=stream, settings=None if pb is None else _settings(pb.settings))
    if what == "pause":
        paused = None if pb is None else pb.pause.paused
        return Paused(place=place, paused=paused, resume_all=pb is not None and pb.pause.resume_all)
    return MadeReadonly(place=place, readonly=None if pb is None else pb.readonly)


def _parsed(key: bytes) -> tuple[str, StreamPartition | None, str]:
    words = key.decode(errors="replace").split(",")
    if len(words) == 1 and words[0]:
        return words[0], None, "settings"
    if len(words) == 3 and words[1].isascii() and words[1].isdigit() and words[2] in (_PAUSED, _READONLY):
        return words[0], (words[0], int(words[1])), "pause" if words[2] == _PAUSED else "readonly"
    raise InvalidControlRecord(f"{key!r} is no key of a record of streams")


def _settings(pb: StreamPb.Settings) -> StreamSettings:
    return StreamSettings(
        subject=pb.subject if pb.HasField("subject") else None,
        optimistic_concurrency=pb.optimistic_concurrency,
        retention_messages=pb.retention_messages if pb.HasField("retention_messages") else None,
    )
