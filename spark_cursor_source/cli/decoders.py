"""Options of the verbs that show payloads: the schema of the values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spark_cursor_source.core.payload_decoder import PayloadDecoder

_AVRO, _DESCRIPTOR, _MESSAGE = (
    "CURSORQ_AVRO_SCHEMA",
    "CURSORQ_PROTOBUF_DESCRIPTOR",
    "CURSORQ_PROTOBUF_MESSAGE",
)

AvroSchema = Annotated[
    Path | None,
    typer.Option(
        "--avro-schema",
        metavar="FILE",
        envvar=_AVRO,
        show_envvar=False,
        help=f"show values of this Avro schema as JSON; or in {_AVRO}; needs the extra [avro]",
    ),
]
ProtobufDescriptor = Annotated[
    Path | None,
    typer.Option(
        "--protobuf-descriptor",
        metavar="FILE",
        envvar=_DESCRIPTOR,
        show_envvar=False,
        help="show Protobuf values as JSON; the file is made by protoc --include_imports "
        f"--descriptor_set_out; or in {_DESCRIPTOR}",
    ),
]
ProtobufMessage = Annotated[
    str | None,
    typer.Option(
        "--protobuf-message",
        metavar="NAME",
        envvar=_MESSAGE,
        show_envvar=False,
        help=f"message type of the values; or in {_MESSAGE}",
    ),
]


def decoder_of(avro: Path | None, descriptor: Path | None, message: str | None) -> PayloadDecoder | None:
    """Returns the decoder of the options of a verb; None: values are shown as they are.

    Raises:
        ExtraNotInstalled: fastavro is not installed.
        InvalidArgument: a file cannot be used.
    """
    if (descriptor is None) != (message is None):
        raise typer.BadParameter("give --protobuf-descriptor and --protobuf-message together")
    if avro is not None and descriptor is not None:
        raise typer.BadParameter("give a schema of Avro or of Protobuf")
    if avro is not None:
        from spark_cursor_source.wire.payload_avro import avro_decoder

        return avro_decoder(avro)
    if descriptor is not None and message is not None:
        from spark_cursor_source.wire.payload_protobuf import protobuf_decoder

        return protobuf_decoder(descriptor, message)
    return None
