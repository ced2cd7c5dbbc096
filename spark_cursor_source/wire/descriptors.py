"""Message classes of protobuf, built from the descriptor of a ``.proto`` file."""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

#: errors of bytes that are not a message; protobuf in pure Python raises the second for a string
UNREADABLE = (DecodeError, UnicodeDecodeError)


def message_classes(serialized: bytes) -> dict[str, type[Message]]:
    """Returns the class of each message of a serialized ``FileDescriptorProto``, by the name of the message.

    The modules that ``protoc`` writes refuse a protobuf library that is older than ``protoc``. A platform
    such as Databricks pins an older library. These classes work with protobuf 4.25 and later.
    """
    file = Default().AddSerializedFile(serialized)
    return {name: _class_of(message) for name, message in file.message_types_by_name.items()}


def _class_of(message: Descriptor) -> type[Message]:
    made = GetMessageClass(message)
    for nested in message.nested_types:
        # protobuf in pure Python does not make nested classes attributes.
        setattr(made, nested.name, _class_of(nested))
    return made
