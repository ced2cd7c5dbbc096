from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Redelivery(_message.Message):
    __slots__ = ("version", "subscription", "topic", "partition", "offsets", "delivery_count", "run_id", "alone")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ALONE_FIELD_NUMBER: _ClassVar[int]
    version: int
    subscription: str
    topic: str
    partition: int
    offsets: bytes
    delivery_count: int
    run_id: str
    alone: bool
    def __init__(self, version: _Optional[int] = ..., subscription: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., offsets: _Optional[bytes] = ..., delivery_count: _Optional[int] = ..., run_id: _Optional[str] = ..., alone: bool = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("offsets", "delivery_count", "at_ms", "run", "died", "lapsed")
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    DIED_FIELD_NUMBER: _ClassVar[int]
    LAPSED_FIELD_NUMBER: _ClassVar[int]
    offsets: bytes
    delivery_count: int
    at_ms: int
    run: int
    died: bool
    lapsed: bool
    def __init__(self, offsets: _Optional[bytes] = ..., delivery_count: _Optional[int] = ..., at_ms: _Optional[int] = ..., run: _Optional[int] = ..., died: bool = ..., lapsed: bool = ...) -> None: ...

class Totals(_message.Message):
    __slots__ = ("delivered", "acked", "redelivered", "dead_lettered", "unknown_ends")
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_ENDS_FIELD_NUMBER: _ClassVar[int]
    delivered: int
    acked: int
    redelivered: int
    dead_lettered: int
    unknown_ends: int
    def __init__(self, delivered: _Optional[int] = ..., acked: _Optional[int] = ..., redelivered: _Optional[int] = ..., dead_lettered: _Optional[int] = ..., unknown_ends: _Optional[int] = ...) -> None: ...

class Cursor(_message.Message):
    __slots__ = ("stream", "partition", "cursor_id", "offset", "version", "read_position", "next_marker", "owner", "max_deliveries", "leases", "delayed", "available", "totals", "runs", "markers_partition", "topic_id")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CURSOR_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    READ_POSITION_FIELD_NUMBER: _ClassVar[int]
    NEXT_MARKER_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    MAX_DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    MARKERS_PARTITION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    stream: str
    partition: int
    cursor_id: str
    offset: int
    version: int
    read_position: int
    next_marker: int
    owner: int
    max_deliveries: int
    leases: _containers.RepeatedCompositeFieldContainer[Group]
    delayed: _containers.RepeatedCompositeFieldContainer[Group]
    available: _containers.RepeatedCompositeFieldContainer[Group]
    totals: Totals
    runs: _containers.RepeatedScalarFieldContainer[str]
    markers_partition: int
    topic_id: str
    def __init__(self, stream: _Optional[str] = ..., partition: _Optional[int] = ..., cursor_id: _Optional[str] = ..., offset: _Optional[int] = ..., version: _Optional[int] = ..., read_position: _Optional[int] = ..., next_marker: _Optional[int] = ..., owner: _Optional[int] = ..., max_deliveries: _Optional[int] = ..., leases: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., delayed: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., available: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., totals: _Optional[_Union[Totals, _Mapping]] = ..., runs: _Optional[_Iterable[str]] = ..., markers_partition: _Optional[int] = ..., topic_id: _Optional[str] = ...) -> None: ...

class CursorPart(_message.Message):
    __slots__ = ("index", "parts", "crc32", "data")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    index: int
    parts: int
    crc32: int
    data: bytes
    def __init__(self, index: _Optional[int] = ..., parts: _Optional[int] = ..., crc32: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...
