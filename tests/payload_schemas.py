"""Schemas of payloads in tests, and values of them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

CONFLUENT = b"\x00\x00\x00\x00\x07"  #: prefix with the schema id 7
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order", "type": "long"},
        {"name": "card", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes", "default": ""},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
    ],
}


def avro_schema(directory: Path) -> Path:
    path = directory / "order.avsc"
    path.write_text(json.dumps(ORDER))
    return path


def avro_order(order: int, card: str | None = "4711", raw: bytes = b"") -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(
        stream, fastavro.parse_schema(ORDER), {"order": order, "card": card, "raw": raw, "at": 0}
    )
    return stream.getvalue()


def protobuf_descriptor(directory: Path) -> Path:
    """The file of a package with a type `shop.Order`, a type in it, and one more of the same name."""
    path = directory / "shop.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[_shop()]).SerializeToString())
    return path


def _shop() -> descriptor_pb2.FileDescriptorProto:
    field = descriptor_pb2.FieldDescriptorProto
    shop = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    order = shop.message_type.add(name="Order")
    order.field.add(name="order_id", number=1, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    order.field.add(name="card", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    order.nested_type.add(name="Line")
    shop.message_type.add(name="Basket").nested_type.add(name="Line")
    return shop


def protobuf_order(order_id: int, card: str = "4711") -> bytes:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_shop())
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    return order(order_id=order_id, card=card).SerializeToString()
