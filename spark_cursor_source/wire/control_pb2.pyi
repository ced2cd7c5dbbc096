from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Redelivery(_message.Message):
    __slots__ = ("version", "subscription", "topic", "partition", "offsets", "delivery_count", "run_id", "alone", "read_task")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ALONE_FIELD_NUMBER: _ClassVar[int]
    READ_TASK_FIELD_NUMBER: _ClassVar[int]
    version: int
    subscription: str
    topic: str
    partition: int
    offsets: bytes
    delivery_count: int
    run_id: str
    alone: bool
    read_task: int
    def __init__(self, version: _Optional[int] = ..., subscription: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., offsets: _Optional[bytes] = ..., delivery_count: _Optional[int] = ..., run_id: _Optional[str] = ..., alone: _Optional[bool] = ..., read_task: _Optional[int] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("offsets", "delivery_count", "at_ms", "run", "died", "lapsed", "lasts_ms", "grouped", "left")
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    DIED_FIELD_NUMBER: _ClassVar[int]
    LAPSED_FIELD_NUMBER: _ClassVar[int]
    LASTS_MS_FIELD_NUMBER: _ClassVar[int]
    GROUPED_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    offsets: bytes
    delivery_count: int
    at_ms: int
    run: int
    died: bool
    lapsed: bool
    lasts_ms: int
    grouped: bool
    left: bool
    def __init__(self, offsets: _Optional[bytes] = ..., delivery_count: _Optional[int] = ..., at_ms: _Optional[int] = ..., run: _Optional[int] = ..., died: _Optional[bool] = ..., lapsed: _Optional[bool] = ..., lasts_ms: _Optional[int] = ..., grouped: _Optional[bool] = ..., left: _Optional[bool] = ...) -> None: ...

class FirstDeliveries(_message.Message):
    __slots__ = ("offsets", "at_ms")
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    at_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, offsets: _Optional[_Iterable[int]] = ..., at_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class Totals(_message.Message):
    __slots__ = ("delivered", "acked", "redelivered", "dead_lettered", "unknown_ends", "expired", "overlapped", "unknown_settlements", "gaps", "lease_timeouts", "released", "rejected")
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_ENDS_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    OVERLAPPED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_SETTLEMENTS_FIELD_NUMBER: _ClassVar[int]
    GAPS_FIELD_NUMBER: _ClassVar[int]
    LEASE_TIMEOUTS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    delivered: int
    acked: int
    redelivered: int
    dead_lettered: int
    unknown_ends: int
    expired: int
    overlapped: int
    unknown_settlements: int
    gaps: int
    lease_timeouts: int
    released: int
    rejected: int
    def __init__(self, delivered: _Optional[int] = ..., acked: _Optional[int] = ..., redelivered: _Optional[int] = ..., dead_lettered: _Optional[int] = ..., unknown_ends: _Optional[int] = ..., expired: _Optional[int] = ..., overlapped: _Optional[int] = ..., unknown_settlements: _Optional[int] = ..., gaps: _Optional[int] = ..., lease_timeouts: _Optional[int] = ..., released: _Optional[int] = ..., rejected: _Optional[int] = ...) -> None: ...

class Held(_message.Message):
    __slots__ = ("offsets", "delivery_count", "reason", "error", "last_delivery_ms", "trouble", "retry_ms", "tries")
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LAST_DELIVERY_MS_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_MS_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    offsets: bytes
    delivery_count: int
    reason: str
    error: str
    last_delivery_ms: int
    trouble: str
    retry_ms: int
    tries: int
    def __init__(self, offsets: _Optional[bytes] = ..., delivery_count: _Optional[int] = ..., reason: _Optional[str] = ..., error: _Optional[str] = ..., last_delivery_ms: _Optional[int] = ..., trouble: _Optional[str] = ..., retry_ms: _Optional[int] = ..., tries: _Optional[int] = ...) -> None: ...

class Breaker(_message.Message):
    __slots__ = ("trip", "opened_ms", "closes_ms", "recent")
    class Letters(_message.Message):
        __slots__ = ("at_ms", "count")
        AT_MS_FIELD_NUMBER: _ClassVar[int]
        COUNT_FIELD_NUMBER: _ClassVar[int]
        at_ms: int
        count: int
        def __init__(self, at_ms: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...
    TRIP_FIELD_NUMBER: _ClassVar[int]
    OPENED_MS_FIELD_NUMBER: _ClassVar[int]
    CLOSES_MS_FIELD_NUMBER: _ClassVar[int]
    RECENT_FIELD_NUMBER: _ClassVar[int]
    trip: str
    opened_ms: int
    closes_ms: int
    recent: _containers.RepeatedCompositeFieldContainer[Breaker.Letters]
    def __init__(self, trip: _Optional[str] = ..., opened_ms: _Optional[int] = ..., closes_ms: _Optional[int] = ..., recent: _Optional[_Iterable[_Union[Breaker.Letters, _Mapping]]] = ...) -> None: ...

class EndSeen(_message.Message):
    __slots__ = ("at_ms", "position")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    position: int
    def __init__(self, at_ms: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class Blocked(_message.Message):
    __slots__ = ("offsets", "behind", "delivery_counts")
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNTS_FIELD_NUMBER: _ClassVar[int]
    offsets: bytes
    behind: _containers.RepeatedScalarFieldContainer[int]
    delivery_counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, offsets: _Optional[bytes] = ..., behind: _Optional[_Iterable[int]] = ..., delivery_counts: _Optional[_Iterable[int]] = ...) -> None: ...

class Saved(_message.Message):
    __slots__ = ("name", "at_ms", "read_position", "next_marker", "outstanding", "move")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    READ_POSITION_FIELD_NUMBER: _ClassVar[int]
    NEXT_MARKER_FIELD_NUMBER: _ClassVar[int]
    OUTSTANDING_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    name: str
    at_ms: int
    read_position: int
    next_marker: int
    outstanding: _containers.RepeatedCompositeFieldContainer[Group]
    move: str
    def __init__(self, name: _Optional[str] = ..., at_ms: _Optional[int] = ..., read_position: _Optional[int] = ..., next_marker: _Optional[int] = ..., outstanding: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., move: _Optional[str] = ...) -> None: ...

class Cursor(_message.Message):
    __slots__ = ("stream", "partition", "cursor_id", "offset", "version", "read_position", "next_marker", "owner", "max_deliveries", "leases", "delayed", "available", "totals", "runs", "markers_partition", "message_ttl_ms", "ends_seen", "expired_below", "held", "breaker", "first_deliveries", "topic_id", "sought", "owner_seen_ms", "markers_topic", "markers_topic_id", "paused_ms", "saved", "rate_limit", "outstanding_limit", "blocked", "undo_of_next", "generation_ms", "epoch")
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
    MESSAGE_TTL_MS_FIELD_NUMBER: _ClassVar[int]
    ENDS_SEEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_BELOW_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    BREAKER_FIELD_NUMBER: _ClassVar[int]
    FIRST_DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SOUGHT_FIELD_NUMBER: _ClassVar[int]
    OWNER_SEEN_MS_FIELD_NUMBER: _ClassVar[int]
    MARKERS_TOPIC_FIELD_NUMBER: _ClassVar[int]
    MARKERS_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PAUSED_MS_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    RATE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    OUTSTANDING_LIMIT_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    UNDO_OF_NEXT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
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
    message_ttl_ms: int
    ends_seen: _containers.RepeatedCompositeFieldContainer[EndSeen]
    expired_below: int
    held: _containers.RepeatedCompositeFieldContainer[Held]
    breaker: Breaker
    first_deliveries: FirstDeliveries
    topic_id: str
    sought: bool
    owner_seen_ms: int
    markers_topic: str
    markers_topic_id: str
    paused_ms: int
    saved: _containers.RepeatedCompositeFieldContainer[Saved]
    rate_limit: float
    outstanding_limit: int
    blocked: Blocked
    undo_of_next: Saved
    generation_ms: int
    epoch: int
    def __init__(self, stream: _Optional[str] = ..., partition: _Optional[int] = ..., cursor_id: _Optional[str] = ..., offset: _Optional[int] = ..., version: _Optional[int] = ..., read_position: _Optional[int] = ..., next_marker: _Optional[int] = ..., owner: _Optional[int] = ..., max_deliveries: _Optional[int] = ..., leases: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., delayed: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., available: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., totals: _Optional[_Union[Totals, _Mapping]] = ..., runs: _Optional[_Iterable[str]] = ..., markers_partition: _Optional[int] = ..., message_ttl_ms: _Optional[int] = ..., ends_seen: _Optional[_Iterable[_Union[EndSeen, _Mapping]]] = ..., expired_below: _Optional[int] = ..., held: _Optional[_Iterable[_Union[Held, _Mapping]]] = ..., breaker: _Optional[_Union[Breaker, _Mapping]] = ..., first_deliveries: _Optional[_Union[FirstDeliveries, _Mapping]] = ..., topic_id: _Optional[str] = ..., sought: _Optional[bool] = ..., owner_seen_ms: _Optional[int] = ..., markers_topic: _Optional[str] = ..., markers_topic_id: _Optional[str] = ..., paused_ms: _Optional[int] = ..., saved: _Optional[_Iterable[_Union[Saved, _Mapping]]] = ..., rate_limit: _Optional[float] = ..., outstanding_limit: _Optional[int] = ..., blocked: _Optional[_Union[Blocked, _Mapping]] = ..., undo_of_next: _Optional[_Union[Saved, _Mapping]] = ..., generation_ms: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

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

class LeaseTable(_message.Message):
    __slots__ = ("stream", "partition", "cursor_id", "offset", "table_version", "next_marker", "partitions", "offsets", "deadlines_ms", "starts", "trouble", "troubled")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CURSOR_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TABLE_VERSION_FIELD_NUMBER: _ClassVar[int]
    NEXT_MARKER_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DEADLINES_MS_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    TROUBLED_FIELD_NUMBER: _ClassVar[int]
    stream: str
    partition: int
    cursor_id: str
    offset: int
    table_version: int
    next_marker: int
    partitions: bytes
    offsets: bytes
    deadlines_ms: bytes
    starts: bytes
    trouble: str
    troubled: int
    def __init__(self, stream: _Optional[str] = ..., partition: _Optional[int] = ..., cursor_id: _Optional[str] = ..., offset: _Optional[int] = ..., table_version: _Optional[int] = ..., next_marker: _Optional[int] = ..., partitions: _Optional[bytes] = ..., offsets: _Optional[bytes] = ..., deadlines_ms: _Optional[bytes] = ..., starts: _Optional[bytes] = ..., trouble: _Optional[str] = ..., troubled: _Optional[int] = ...) -> None: ...

class Stream(_message.Message):
    __slots__ = ("version", "settings", "pause", "readonly")
    class Settings(_message.Message):
        __slots__ = ("subject", "optimistic_concurrency", "retention_messages")
        SUBJECT_FIELD_NUMBER: _ClassVar[int]
        OPTIMISTIC_CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
        RETENTION_MESSAGES_FIELD_NUMBER: _ClassVar[int]
        subject: str
        optimistic_concurrency: bool
        retention_messages: int
        def __init__(self, subject: _Optional[str] = ..., optimistic_concurrency: _Optional[bool] = ..., retention_messages: _Optional[int] = ...) -> None: ...
    class Pause(_message.Message):
        __slots__ = ("paused", "resume_all")
        PAUSED_FIELD_NUMBER: _ClassVar[int]
        RESUME_ALL_FIELD_NUMBER: _ClassVar[int]
        paused: bool
        resume_all: bool
        def __init__(self, paused: _Optional[bool] = ..., resume_all: _Optional[bool] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    READONLY_FIELD_NUMBER: _ClassVar[int]
    version: int
    settings: Stream.Settings
    pause: Stream.Pause
    readonly: bool
    def __init__(self, version: _Optional[int] = ..., settings: _Optional[_Union[Stream.Settings, _Mapping]] = ..., pause: _Optional[_Union[Stream.Pause, _Mapping]] = ..., readonly: _Optional[bool] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("subscription", "topic", "partition", "offsets", "delivery_count", "reason", "error", "last_delivery_ms", "first_deliveries", "tries", "generation_ms")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LAST_DELIVERY_MS_FIELD_NUMBER: _ClassVar[int]
    FIRST_DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    GENERATION_MS_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    topic: str
    partition: int
    offsets: bytes
    delivery_count: int
    reason: str
    error: str
    last_delivery_ms: int
    first_deliveries: FirstDeliveries
    tries: int
    generation_ms: int
    def __init__(self, subscription: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., offsets: _Optional[bytes] = ..., delivery_count: _Optional[int] = ..., reason: _Optional[str] = ..., error: _Optional[str] = ..., last_delivery_ms: _Optional[int] = ..., first_deliveries: _Optional[_Union[FirstDeliveries, _Mapping]] = ..., tries: _Optional[int] = ..., generation_ms: _Optional[int] = ...) -> None: ...
