from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MessageId(_message.Message):
    __slots__ = ("partition", "offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Marker(_message.Message):
    __slots__ = ("version", "type", "message_id", "redeliver_after_ms", "key", "value", "subscription", "topic", "offsets", "delivery_count", "delay_ms", "reason", "run_id", "position", "due_ms", "topic_id", "alone", "no_message", "lost_run_id", "name", "move", "next_marker", "rate_limit", "outstanding_limit", "behind", "error", "last_delivery_ms", "trouble", "tries")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    REDELIVER_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    ALONE_FIELD_NUMBER: _ClassVar[int]
    NO_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOST_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    NEXT_MARKER_FIELD_NUMBER: _ClassVar[int]
    RATE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    OUTSTANDING_LIMIT_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LAST_DELIVERY_MS_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    version: int
    type: int
    message_id: MessageId
    redeliver_after_ms: int
    key: bytes
    value: bytes
    subscription: str
    topic: str
    offsets: bytes
    delivery_count: int
    delay_ms: int
    reason: str
    run_id: str
    position: int
    due_ms: int
    topic_id: str
    alone: bool
    no_message: bool
    lost_run_id: str
    name: str
    move: str
    next_marker: int
    rate_limit: float
    outstanding_limit: int
    behind: _containers.RepeatedScalarFieldContainer[int]
    error: str
    last_delivery_ms: int
    trouble: str
    tries: int
    def __init__(self, version: _Optional[int] = ..., type: _Optional[int] = ..., message_id: _Optional[_Union[MessageId, _Mapping]] = ..., redeliver_after_ms: _Optional[int] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., subscription: _Optional[str] = ..., topic: _Optional[str] = ..., offsets: _Optional[bytes] = ..., delivery_count: _Optional[int] = ..., delay_ms: _Optional[int] = ..., reason: _Optional[str] = ..., run_id: _Optional[str] = ..., position: _Optional[int] = ..., due_ms: _Optional[int] = ..., topic_id: _Optional[str] = ..., alone: _Optional[bool] = ..., no_message: _Optional[bool] = ..., lost_run_id: _Optional[str] = ..., name: _Optional[str] = ..., move: _Optional[str] = ..., next_marker: _Optional[int] = ..., rate_limit: _Optional[float] = ..., outstanding_limit: _Optional[int] = ..., behind: _Optional[_Iterable[int]] = ..., error: _Optional[str] = ..., last_delivery_ms: _Optional[int] = ..., trouble: _Optional[str] = ..., tries: _Optional[int] = ...) -> None: ...
