"""Replication of topics: the settings of new topics, and a check of existing topics."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

COPIES = 3  #: replicas of a topic that this library creates, if the cluster has enough brokers
IN_SYNC = 2  #: replicas that must have a record before it is acknowledged


def settings_for(copies: int) -> dict[str, object]:
    """Returns the topic settings for that number of replicas.

    >>> settings_for(3), settings_for(1)
    ({'min.insync.replicas': 2}, {})
    """
    return {"min.insync.replicas": IN_SYNC} if copies >= IN_SYNC else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class WeakTopic:
    """Topic that one broken disk or one failover may cause to lose acknowledged records."""

    topic: str
    replication: int  #: replicas of the partition that has the fewest
    min_insync: int | None  #: None: the brokers do not report it
    brokers: int
    cure: str  #: shell command that fixes the topic

    def __str__(self) -> str:
        known = "" if self.min_insync is None else f" and min.insync.replicas {self.min_insync}"
        return (
            f"topic {self.topic} has replication {self.replication}{known} on {self.brokers} brokers, "
            f"so it can lose acknowledged records with one broker; run: {self.cure}"
        )


def weakness_of(
    topic: str,
    replicas: Mapping[int, Sequence[int]],
    *,
    min_insync: int | None,
    brokers: Collection[int],
    servers: str,
) -> WeakTopic | None:
    """Returns the weakness of a topic compared to the cluster's capacity, or None if it has none.

    ``replicas`` has the broker ids of each partition's replicas; the first one leads.

    >>> weakness_of("m", {0: [1, 2, 3]}, min_insync=2, brokers=[1, 2, 3], servers="k:9092")
    >>> weakness_of("m", {0: [1, 2, 3]}, min_insync=1, brokers=[1, 2, 3], servers="k:9092").cure
    'kafka-configs.sh --bootstrap-server k:9092 --alter --entity-type topics --entity-name m --add-config \
min.insync.replicas=2'
    """
    everyone = sorted({*brokers, *(broker for of in replicas.values() for broker in of)})
    wanted = min(COPIES, len(everyone))
    fewest = min((len(of) for of in replicas.values()), default=0)
    too_few = {number: of for number, of in replicas.items() if len(of) < wanted}
    lax = min_insync is not None and min_insync < min(IN_SYNC, wanted)
    if not replicas or not (too_few or lax):
        return None
    commands = []
    if too_few:
        plan = [
            {"topic": topic, "partition": number, "replicas": _grown(of, everyone, wanted, number)}
            for number, of in sorted(too_few.items())
        ]
        text = shlex.quote(json.dumps({"version": 1, "partitions": plan}, separators=(",", ":")))
        commands.append(
            f"echo {text} > replicas.json && kafka-reassign-partitions.sh --bootstrap-server {servers} "
            "--reassignment-json-file replicas.json --execute"
        )
    if lax:
        commands.append(
            f"kafka-configs.sh --bootstrap-server {servers} --alter --entity-type topics "
            f"--entity-name {topic} --add-config min.insync.replicas={IN_SYNC}"
        )
    return WeakTopic(
        topic=topic,
        replication=fewest,
        min_insync=min_insync,
        brokers=len(everyone),
        cure=" && ".join(commands),
    )


def _grown(replicas: Sequence[int], brokers: Sequence[int], wanted: int, number: int) -> list[int]:
    """Returns the replicas followed by further brokers, up to ``wanted``.

    The first replica stays the leader. Each partition starts with another broker, to spread the load.
    """
    turn = number % len(brokers)
    others = [broker for broker in [*brokers[turn:], *brokers[:turn]] if broker not in replicas]
    return [*replicas, *others][: max(wanted, len(replicas))]
