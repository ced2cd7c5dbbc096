"""Payloads in Avro and Protobuf, as JSON for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_cursor_source import _features
from spark_cursor_source.core.payload_decoder import Decoded
from spark_cursor_source.core.payload_mask import PayloadMask
from spark_cursor_source.errors import ExtraNotInstalled, InvalidArgument
from spark_cursor_source.wire.payload_avro import avro_decoder
from spark_cursor_source.wire.payload_protobuf import protobuf_decoder
from tests.payload_schemas import (
    CONFLUENT,
    avro_order,
    avro_schema,
    protobuf_descriptor,
    protobuf_order,
)


def told(decoded: Decoded) -> Any:
    assert decoded.data is not None
    return json.loads(decoded.data)


@pytest.mark.parametrize("prefix", [b"", CONFLUENT])
def test_a_value_in_avro_becomes_json(tmp_path: Path, prefix: bytes) -> None:
    found = avro_decoder(avro_schema(tmp_path)).value(prefix + avro_order(17, raw=b"\xff"))
    assert told(found) == {"order": 17, "card": "4711", "raw": "0xff", "at": "1970-01-01T00:00:00+00:00"}
    assert found.note == "decoded from Avro"


def test_an_avro_value_that_begins_with_a_zero_byte_needs_no_prefix(tmp_path: Path) -> None:
    value = avro_order(0, card="a long text with an offset beyond")
    assert value.startswith(b"\x00")
    assert told(avro_decoder(avro_schema(tmp_path)).value(value))["order"] == 0


@pytest.mark.parametrize("place", [b"\x00", b"\x04\x02\x00"])
def test_a_value_in_protobuf_becomes_json(tmp_path: Path, place: bytes) -> None:
    for name in ("Order", "shop.Order"):
        decoder = protobuf_decoder(protobuf_descriptor(tmp_path), name)
        for prefix in (b"", CONFLUENT + place):
            found = decoder.value(prefix + protobuf_order(17))
            assert told(found) == {"order_id": 17, "card": "4711"}
            assert found.note == "decoded from Protobuf"


@pytest.mark.parametrize("data", [b"plain text", b"\xff" * 9, CONFLUENT, CONFLUENT + b"\xff", b"\x22"])
def test_a_value_that_cannot_be_decoded_stays_as_it_is(tmp_path: Path, data: bytes) -> None:
    decoders = [
        avro_decoder(avro_schema(tmp_path)),
        protobuf_decoder(protobuf_descriptor(tmp_path), "Order"),
    ]
    for decoder in decoders:
        found = decoder.value(data)
        assert found.data == data
        assert found.note is not None
        assert found.note.startswith(f"not decoded from {decoder.form}: it ")
        assert "plain" not in found.note, "a note quotes no payload, which may be masked"
        assert PayloadMask(fields=frozenset({"card"})).value(found.data) == b"***"
        assert decoder.value(None) == Decoded(None, None)
        assert decoder.value(b"") == Decoded(b"", None)


def test_fields_of_a_decoded_value_are_masked(tmp_path: Path) -> None:
    found = avro_decoder(avro_schema(tmp_path)).value(avro_order(17))
    masked = PayloadMask(fields=frozenset({"card"})).value(found.data)
    assert b'"card": "***"' in (masked or b"")
    assert b"4711" not in (masked or b"")


@pytest.mark.parametrize("text", ["no JSON", "{}", '"Unknown"', '{"type": "record"}', "17"])
def test_a_file_without_an_avro_schema_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.avsc").write_text(text)
    with pytest.raises(InvalidArgument, match=r"avro_schema=.*a\.avsc.* is invalid: it "):
        avro_decoder(tmp_path / "a.avsc")
    with pytest.raises(InvalidArgument, match="No such file"):
        avro_decoder(tmp_path / "b.avsc")


def test_a_file_without_descriptors_or_without_the_type_is_refused(tmp_path: Path) -> None:
    path = protobuf_descriptor(tmp_path)
    with pytest.raises(
        InvalidArgument, match=r"the file has the types: shop\.Basket, shop\.Basket\.Line, shop\.Order"
    ):
        protobuf_decoder(path, "Orders")
    with pytest.raises(InvalidArgument, match="several types have this name"):
        protobuf_decoder(path, "Line")
    assert protobuf_decoder(path, "Order.Line").form == "Protobuf"
    (tmp_path / "text").write_text("message Order {}")
    with pytest.raises(InvalidArgument, match=r"no set of descriptors of `protoc --include_imports"):
        protobuf_decoder(tmp_path / "text", "Order")
    with pytest.raises(InvalidArgument, match="No such file"):
        protobuf_decoder(tmp_path / "nowhere", "Order")


def test_avro_without_its_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_features, "find_spec", lambda name: None)
    with pytest.raises(ExtraNotInstalled, match=r"spark-cursor-source\[avro\]"):
        avro_decoder(avro_schema(tmp_path))
