"""Versions that the doctor examines: of the brokers, of Spark, and of the markers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from spark_cursor_source._features import require_spark
from spark_cursor_source.admin.findings import ERROR, INFO, WARNING, Finding
from spark_cursor_source.admin.marker_log import read_quarantine
from spark_cursor_source.errors import ExtraNotInstalled, NotAuthorized, UnsupportedSpark
from spark_cursor_source.kafka.admin import ClusterAdmin

OLDEST_KAFKA = (3, 5)  #: the oldest release of Kafka that the library runs on
#: Brokers before Kafka 4.0 have this setting. Unless somebody has set it, it has the release of the broker.
PROTOCOL = "inter.broker.protocol.version"
_SEARCHED = 1_000  # markers of each partition that are searched for invalid ones


def version_findings(
    kafka: Mapping[str, str], topics: ClusterAdmin, markers_topic: str | None
) -> Iterator[Finding]:
    """Yields what is wrong with versions; ``markers_topic`` None: it does not exist.

    Raises:
        NotAuthorized: the markers may not be read.
        KafkaUnavailable, KafkaRefused
    """
    yield from _brokers(topics)
    yield from _spark()
    if markers_topic is not None:
        yield from _markers(kafka, markers_topic)


def _brokers(topics: ClusterAdmin) -> Iterator[Finding]:
    try:
        settings = topics.broker_settings()
    except NotAuthorized as denied:
        yield Finding(
            severity=INFO,
            check="versions",
            what="The versions of the brokers are not visible to this principal",
            evidence=str(denied),
            cure="kafka-acls.sh --add --operation DescribeConfigs --cluster, or ask who runs the brokers",
        )
        return
    old = too_old({number: values.get(PROTOCOL) for number, values in settings.items()})
    if old:
        yield Finding(
            severity=ERROR,
            check="versions",
            what=f"Brokers are older than Kafka {'.'.join(map(str, OLDEST_KAFKA))}",
            evidence=", ".join(f"broker {number}: {PROTOCOL}={told}" for number, told in sorted(old.items())),
            cure="upgrade the brokers, and set this protocol version to their release",
        )


def too_old(versions: Mapping[int, str | None]) -> dict[int, str]:
    """Returns the brokers whose version is too old. None: the broker is of Kafka 4.0 or later.

    >>> too_old({1: "3.4-IV0", 2: "3.5-IV2", 3: None, 4: "2.8"})
    {1: '3.4-IV0', 4: '2.8'}
    """
    found = {}
    for number, told in versions.items():
        numbers = re.match(r"(\d+)\.(\d+)", told or "")
        if told and numbers and tuple(map(int, numbers.groups())) < OLDEST_KAFKA:
            found[number] = told
    return found


def _spark() -> Iterator[Finding]:
    try:
        require_spark()
    except UnsupportedSpark as why:
        yield Finding(
            severity=WARNING,
            check="versions",
            what="The Spark of this machine cannot run queries of the library",
            evidence=str(why),
            cure="pip install --upgrade 'spark-cursor-source[spark]', where queries run on this machine",
        )
    except ExtraNotInstalled:
        return  # queries run elsewhere


def _markers(kafka: Mapping[str, str], markers_topic: str) -> Iterator[Finding]:
    found = read_quarantine(kafka, markers_topic=markers_topic, last=_SEARCHED, limit=_SEARCHED)
    if found:
        latest = found[0]
        yield Finding(
            severity=WARNING,
            check="versions",
            what=f"Records of {markers_topic} are no markers that this version knows",
            evidence=f"{len(found)} of the last {_SEARCHED} of each partition, the latest at "
            f"{latest.partition}/{latest.offset}: {latest.error}",
            cure="cursorq markers --quarantined shows all; upgrade the tracker if a later version wrote them",
        )
