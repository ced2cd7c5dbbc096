"""``cursorq cursor``: reads and sets named cursors of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.frame import Json, add_verb, new_group
from spark_cursor_source.cli.output import print_json

if TYPE_CHECKING:
    from spark_cursor_source.client import Client

VERBS = new_group("Reads and sets named cursors: offsets of a stream that programs keep under a name.")

Id = Annotated[str, typer.Argument(metavar="CURSOR", help="the cursor's id")]
Stream = Annotated[str, typer.Argument(metavar="STREAM", help="the stream, which is a topic")]
Partition = Annotated[int, typer.Option("--partition", metavar="P", min=0)]


@connected
def get(cluster: Cluster, cursor: Id, stream: Stream, partition: Partition = 0, json: Json = False) -> None:
    """Prints the offset of a cursor, or -1 if nobody has set it.

    For the name of a subscription, this is its mark-delete position.
    """
    with _open(cluster) as client:
        offset = client.fetch_cursor(cursor, stream, partition)
    _say(json, cursor, stream, partition, offset)


@connected
def set_(
    cluster: Cluster,
    cursor: Id,
    stream: Stream,
    offset: Annotated[int, typer.Argument(metavar="OFFSET")],
    partition: Partition = 0,
    epoch: Annotated[
        int | None, typer.Option(metavar="N", help="refuse later calls with a lower epoch")
    ] = None,
    json: Json = False,
) -> None:
    """Sets the offset of a cursor. A cursor of a subscription moves with `cursorq subscription seek`."""
    with _open(cluster) as client:
        client.set_cursor(cursor, stream, partition, offset, epoch=epoch)
    _say(json, cursor, stream, partition, offset)


add_verb(VERBS, get, name="get")
add_verb(VERBS, set_, name="set")


def _open(cluster: Cluster) -> Client:
    from spark_cursor_source.client import Client

    kafka = {f"kafka.{name}": value for name, value in cluster.kafka.items()}
    return Client({**kafka, "cursorsTopic": cluster.cursors_topic})


def _say(json: bool, cursor: str, stream: str, partition: int, offset: int) -> None:
    if json:
        print_json({"cursor": cursor, "stream": stream, "partition": partition, "offset": offset})
    else:
        print(offset)
