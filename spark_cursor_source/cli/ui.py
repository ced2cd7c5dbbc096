"""``cursorq ui``: serves the operator's page."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from spark_cursor_source._features import require_library
from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.decoders import (
    AvroSchema,
    ProtobufDescriptor,
    ProtobufMessage,
    decoder_of,
)
from spark_cursor_source.cli.frame import not_empty
from spark_cursor_source.cli.masks import Mask, MaskField, mask_of
from spark_cursor_source.cli.output import print_line

DEFAULT_PORT = 8177
TOKEN = "CURSORQ_UI_TOKEN"  #: variable with the token of the page


@connected
def ui(
    cluster: Cluster,
    host: Annotated[
        str,
        typer.Option(
            parser=not_empty,
            metavar="ADDRESS",
            help="address to listen on; other than loopback needs a token",
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any free port")] = DEFAULT_PORT,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"file with the token that each request needs (or the variable {TOKEN}); "
            "where one is needed and none is given, a new one is made and printed",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="name under which browsers call this page, repeated"),
    ] = None,
    allow_actions: Annotated[
        bool,
        typer.Option(
            "--allow-actions",
            help="let the page move, pause, save, restore and clone subscriptions, and redrive and delete "
            "dead letters; it then needs a token",
        ),
    ] = False,
    avro_schema: AvroSchema = None,
    protobuf_descriptor: ProtobufDescriptor = None,
    protobuf_message: ProtobufMessage = None,
    mask_field: MaskField = None,
    mask: Mask = False,
    json: Annotated[bool, typer.Option("--json", help="print the address as a line of JSON")] = False,
) -> None:
    """Serves the operator's page until Ctrl-C.

    Subscriptions by the age of their oldest message, the state of each message of a partition, consumers and
    curves of the last hour, live. Without --allow-actions it changes nothing.
    """
    for library in ("starlette", "uvicorn", "jinja2"):
        require_library(library, what="cursorq ui")
    from spark_cursor_source.ui import UiSettings, serve
    from spark_cursor_source.ui.access import is_loopback

    token = _token(token_file)
    if token is None and (allow_actions or not is_loopback(host)):
        token = secrets.token_urlsafe(24)
    settings = UiSettings(
        kafka=cluster.kafka,
        **cluster.names,
        token=token,
        allow_actions=allow_actions,
        allow_hosts=frozenset(allow_host or ()),
        mask=mask_of(mask_field, mask),
        decoder=decoder_of(avro_schema, protobuf_descriptor, protobuf_message),
    )
    try:
        serve(settings, host=host, port=port, ready=_print_json if json else _print)
    except OSError as why:
        told = f"cannot listen on {host} port {port}: {why.strerror or why}"
        raise typer.BadParameter(told, param_hint="'--port'") from None


def _print(address: str) -> None:
    print(f"open {address}", flush=True)


def _print_json(address: str) -> None:
    print_line({"address": address})


def _token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get(TOKEN) or None
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as why:
        raise typer.BadParameter(f"it cannot be read: {why}", param_hint="'--token-file'") from None
    if not token:
        raise typer.BadParameter("it is empty", param_hint="'--token-file'")
    return token
