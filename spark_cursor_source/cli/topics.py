"""``cursorq topics``: prints the commands that create the control topics."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_cursor_source.cli.cluster import Cluster, connected
from spark_cursor_source.cli.frame import Json
from spark_cursor_source.cli.output import print_json
from spark_cursor_source.core.names import DEFAULT_STREAMS_TOPIC


@connected
def topics(
    cluster: Cluster,
    print_: Annotated[bool, typer.Option("--print", help="print the commands; there is no other way")] = True,
    form: Annotated[
        str, typer.Option(metavar="FORM", help="kafka, rpk (Redpanda) or confluent (Confluent Cloud)")
    ] = "kafka",
    partitions: Annotated[int, typer.Option(metavar="N", min=1)] = 8,
    replication: Annotated[int, typer.Option(metavar="N", min=1)] = 3,
    streams_topic: Annotated[str, typer.Option(metavar="TOPIC")] = DEFAULT_STREAMS_TOPIC,
    json: Json = False,
) -> None:
    """Prints the commands that create the control topics by hand. Connects to no broker.

    Use it where programs may not create topics. The form rpk and confluent have only the settings that a
    guarantee depends on.
    """
    from spark_cursor_source.admin.control_commands import control_topic_commands
    from spark_cursor_source.kafka.config import client_config

    commands = control_topic_commands(
        client_config(cluster.kafka, "admin")["bootstrap.servers"],
        form=form,
        partitions=partitions,
        replication=replication,
        markers_topic=cluster.markers_topic,
        redeliveries_topic=cluster.redeliveries_topic,
        cursors_topic=cluster.cursors_topic,
        streams_topic=streams_topic,
    )
    if json:
        print_json(list(commands))
    else:
        print("\n".join(commands))
