"""Message classes of protobuf, built from the descriptor of a ``.proto`` file."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from spark_cursor_source.errors import InvalidControlRecord, LaterCursorVersion

_Message = TypeVar("_Message", bound=Message)

#: errors of bytes that are not a message; protobuf in pure Python raises the second for a string
UNREADABLE = (DecodeError, UnicodeDecodeError)


def message_classes(serialized: bytes) -> dict[str, type[Message]]:
    """Returns the class of each message of a serialized ``FileDescriptorProto``, by the name of the message.

    The modules that ``protoc`` writes refuse a protobuf library that is older than ``protoc``. A platform
    such as Databricks pins an older library. These classes work with protobuf 4.25 and later.
    """
    file = Default().AddSerializedFile(serialized)
    return {name: _class_of(message) for name, message in file.message_types_by_name.items()}


def parsed(kind: type[_Message], value: bytes, what: str) -> _Message:
    """Returns the message in the value of a record of the library's own topics.

    Raises:
        InvalidControlRecord: the value is not a message. ``what`` says of what.
    """
    try:
        return kind.FromString(value)
    except UNREADABLE as cause:
        raise InvalidControlRecord(f"the value is not a protobuf message of {what}") from cause


def check_version(found: int, known: int, *, otherwise: str) -> None:
    """Refuses a record of another version.

    Raises:
        LaterCursorVersion: the version is later than the known one.
        InvalidControlRecord: the record has no version. ``otherwise`` says so.
    """
    if found > known:
        raise LaterCursorVersion(found, known)
    if found != known:
        raise InvalidControlRecord(otherwise)


def _class_of(message: Descriptor) -> type[Message]:
    made = GetMessageClass(message)
    for nested in message.nested_types:
        # protobuf in pure Python does not make nested classes attributes.
        setattr(made, nested.name, _class_of(nested))
    return made
