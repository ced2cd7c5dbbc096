"""Payloads in Avro, as plain values. Needs the extra ``[avro]``."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from struct import error as StructError
from typing import Any
from uuid import UUID

from spark_cursor_source._features import require_library
from spark_cursor_source.core.payload_decoder import PayloadDecoder
from spark_cursor_source.errors import InvalidArgument

#: raised for bytes of another schema
_OF_OTHERS = (
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    ArithmeticError,
    MemoryError,
    AssertionError,
    StructError,
)


def avro_decoder(schema_file: str | Path) -> PayloadDecoder:
    """Returns the decoder of values of one Avro schema, which a file holds as JSON.

    Raises:
        ExtraNotInstalled: fastavro is not installed.
        InvalidArgument: the file cannot be read, or it has no Avro schema.
    """
    require_library("fastavro", what="Avro")
    import fastavro

    try:
        schema = fastavro.parse_schema(json.loads(Path(schema_file).read_text(encoding="utf-8")))
    except OSError as why:
        raise InvalidArgument("avro_schema", str(schema_file), why.strerror or str(why)) from None
    except fastavro.schema.UnknownType as why:
        told = f"it does not define the type {why.name}"
        raise InvalidArgument("avro_schema", str(schema_file), told) from None
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as why:
        told = f"it has no Avro schema ({type(why).__name__}: {why})"
        raise InvalidArgument("avro_schema", str(schema_file), told) from None

    def read(data: bytes) -> object:
        stream = io.BytesIO(data)
        try:
            value = fastavro.schemaless_reader(stream, schema, None)
        except _OF_OTHERS:  # their texts may quote the payload
            raise ValueError("it has another schema, or is cut") from None
        if stream.tell() != len(data):
            raise ValueError("it has another schema: bytes are left")
        return _plain(value)

    return PayloadDecoder(form="Avro", read=read)


def _plain(value: Any) -> Any:
    """Returns a value of fastavro as values of JSON."""
    match value:
        case Mapping():
            return {str(name): _plain(one) for name, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return f"0x{value.hex()}"
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
    return value
