"""Payloads in Protobuf, as plain values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from spark_cursor_source.core.payload_decoder import PayloadDecoder
from spark_cursor_source.errors import InvalidArgument

_MOST_NAMES = 10  # message types that an error lists


def protobuf_decoder(descriptor_file: str | Path, message: str) -> PayloadDecoder:
    """Returns the decoder of values of one Protobuf message type.

    The file is made by ``protoc --include_imports --descriptor_set_out=FILE``. ``message`` is the name of the
    type with or without its package.

    Raises:
        InvalidArgument: the file cannot be read or is no descriptor set, or it has no such type.
    """
    pool, types = _types(descriptor_file)
    found = [one for name, one in types.items() if name == message or name.endswith(f".{message}")]
    if len(found) != 1:
        names = ", ".join(sorted(types)[:_MOST_NAMES]) or "none"
        told = "several types have this name" if found else f"the file has the types: {names}"
        raise InvalidArgument("protobuf_message", message, told)
    type_of = message_factory.GetMessageClass(found[0])

    def read(data: bytes) -> object:
        value = type_of()
        try:
            value.ParseFromString(data)
            if not value.ListFields():
                raise ValueError(f"it has no field of {found[0].full_name}")
            return json_format.MessageToDict(value, preserving_proto_field_name=True, descriptor_pool=pool)
        except (
            DecodeError,
            TypeError,
            json_format.SerializeToJsonError,
        ):  # their texts may quote the payload
            raise ValueError(f"it is no {found[0].full_name}") from None

    return PayloadDecoder(form="Protobuf", read=read, read_confluent=lambda data: read(without_indexes(data)))


def without_indexes(data: bytes) -> bytes:
    r"""Returns what follows the place of a message type in its file, as Confluent's serializer writes it.

    The place is a count and as many indexes, zigzag varints; one zero byte stands for the first type.

    >>> without_indexes(b"\x00rest"), without_indexes(b"\x04\x02\x00rest")
    (b'rest', b'rest')
    """
    count, at = _varint(data, 0)
    for _ in range(count >> 1):
        _, at = _varint(data, at)
    return data[at:]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number, and the place after it."""
    number, shift = 0, 0
    while at < len(data) and shift < 64:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
    raise ValueError("it ends within the place of its type")


def _types(path: str | Path) -> tuple[Any, dict[str, Descriptor]]:
    files = descriptor_pb2.FileDescriptorSet()
    pool = descriptor_pool.DescriptorPool()
    try:
        files.ParseFromString(Path(path).read_bytes())
        for file in files.file:
            pool.Add(file)
        found = [pool.FindFileByName(file.name) for file in files.file]
    except OSError as why:
        raise InvalidArgument("protobuf_descriptor", str(path), why.strerror or str(why)) from None
    except (DecodeError, KeyError, TypeError, ValueError) as why:
        told = f"it is no set of descriptors of `protoc --include_imports --descriptor_set_out` ({why})"
        raise InvalidArgument("protobuf_descriptor", str(path), told) from None
    types: dict[str, Descriptor] = {}
    waiting = [top for described in found for top in described.message_types_by_name.values()]
    while waiting:
        one = waiting.pop()
        types[one.full_name] = one
        waiting += one.nested_types
    return pool, types
