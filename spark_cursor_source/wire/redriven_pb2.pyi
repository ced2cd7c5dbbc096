from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class RedrivenOffsets(_message.Message):
    __slots__ = ("stream", "partition", "cursor_id", "offset", "redriven_version", "topic_id", "offsets", "deleted")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CURSOR_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    REDRIVEN_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    stream: str
    partition: int
    cursor_id: str
    offset: int
    redriven_version: int
    topic_id: str
    offsets: bytes
    deleted: bytes
    def __init__(self, stream: _Optional[str] = ..., partition: _Optional[int] = ..., cursor_id: _Optional[str] = ..., offset: _Optional[int] = ..., redriven_version: _Optional[int] = ..., topic_id: _Optional[str] = ..., offsets: _Optional[bytes] = ..., deleted: _Optional[bytes] = ...) -> None: ...
