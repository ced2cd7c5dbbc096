from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RescueHeader(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class RescuedMessage(_message.Message):
    __slots__ = ("version", "key", "value", "headers", "timestamp_ms", "timestamp_type")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_TYPE_FIELD_NUMBER: _ClassVar[int]
    version: int
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[RescueHeader]
    timestamp_ms: int
    timestamp_type: int
    def __init__(self, version: _Optional[int] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[RescueHeader, _Mapping]]] = ..., timestamp_ms: _Optional[int] = ..., timestamp_type: _Optional[int] = ...) -> None: ...

class RescuedGaps(_message.Message):
    __slots__ = ("version", "offsets")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    version: int
    offsets: bytes
    def __init__(self, version: _Optional[int] = ..., offsets: _Optional[bytes] = ...) -> None: ...
