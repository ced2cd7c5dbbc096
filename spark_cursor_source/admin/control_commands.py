"""Commands that create the control topics, for clusters where programs may not create topics."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from spark_cursor_source.core.durability import COPIES, settings_for
from spark_cursor_source.core.names import (
    DEFAULT_CURSORS_TOPIC,
    DEFAULT_MARKERS_TOPIC,
    DEFAULT_REDELIVERIES_TOPIC,
    DEFAULT_STREAMS_TOPIC,
)
from spark_cursor_source.errors import InvalidArgument
from spark_cursor_source.kafka.control_topics import (
    CURSORS,
    DEFAULT_PARTITIONS,
    MARKERS,
    REDELIVERIES,
    STREAMS,
)
from spark_cursor_source.options.arguments import check_topic

FORMS = ("kafka", "rpk", "confluent")  #: Apache Kafka, Redpanda, Confluent Cloud

# Managed clusters refuse some of the other settings; without these, a guarantee would break.
_NEEDED = ("cleanup.policy", "message.timestamp.type", "retention.ms")


def control_topic_commands(
    bootstrap_servers: str,
    *,
    form: str = "kafka",
    partitions: int = DEFAULT_PARTITIONS,
    replication: int = COPIES,
    markers_topic: str = DEFAULT_MARKERS_TOPIC,
    redeliveries_topic: str = DEFAULT_REDELIVERIES_TOPIC,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
    streams_topic: str = DEFAULT_STREAMS_TOPIC,
) -> tuple[str, ...]:
    """Returns a shell command for each control topic, with the settings that a tracker would choose.

    ``form`` is ``kafka`` (kafka-topics.sh), ``rpk`` (Redpanda) or ``confluent`` (Confluent Cloud). The last
    two have only the settings that a guarantee depends on. The streams topic has one partition.

    Example::

        from spark_cursor_source.admin import control_topic_commands

        print("\\n".join(control_topic_commands("broker:9092", replication=3)))

    Raises:
        InvalidArgument: ``form`` is unknown, or Kafka would refuse the name of a topic.
    """
    if form not in FORMS:
        raise InvalidArgument("form", form, f"known are {', '.join(FORMS)}")
    names = {
        "markers_topic": markers_topic,
        "redeliveries_topic": redeliveries_topic,
        "cursors_topic": cursors_topic,
        "streams_topic": streams_topic,
    }
    for argument, name in names.items():
        check_topic(argument, name)
    kinds = {
        markers_topic: MARKERS,
        redeliveries_topic: REDELIVERIES,
        cursors_topic: CURSORS,
        streams_topic: STREAMS,
    }
    return tuple(
        _command(
            form,
            bootstrap_servers,
            name,
            1 if name == streams_topic else partitions,
            replication,
            {**settings_for(replication), **kind.settings},
        )
        for name, kind in kinds.items()
    )


def _command(
    form: str, servers: str, name: str, partitions: int, replication: int, settings: Mapping[str, object]
) -> str:
    topic = shlex.quote(name)
    if form == "kafka":
        words = " ".join(f"--config {key}={value}" for key, value in settings.items())
        return (
            f"kafka-topics.sh --bootstrap-server {shlex.quote(servers)} --create --if-not-exists "
            f"--topic {topic} --partitions {partitions} --replication-factor {replication} {words}"
        )
    needed = {key: value for key, value in settings.items() if key in _NEEDED}
    if form == "rpk":
        words = " ".join(f"-c {key}={value}" for key, value in needed.items())
        return (
            f"rpk topic create {topic} --brokers {shlex.quote(servers)} -p {partitions} -r {replication} "
            f"{words}"
        )
    pairs = ",".join(f"{key}={value}" for key, value in needed.items())
    return f"confluent kafka topic create {topic} --if-not-exists --partitions {partitions} --config {pairs}"
