"""Detection of topics with weaker replication than the cluster allows, with a warning in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from spark_cursor_source.core.durability import WeakTopic, weakness_of
from spark_cursor_source.errors import NotAuthorized
from spark_cursor_source.kafka.admin_requests import AdminRequests
from spark_cursor_source.kafka.control_topics import describe_topics, topic_settings
from spark_cursor_source.kafka.deadline import Deadline

log = logging.getLogger(__name__)


def weak_topics(calls: AdminRequests, topics: Iterable[str], *, deadline: Deadline) -> tuple[WeakTopic, ...]:
    """Return the existing topics that could have more replicas or a higher ``min.insync.replicas``.

    Settings that this principal may not read count as unknown.
    """
    found, _ = describe_topics(calls, sorted(set(topics)), deadline=deadline)
    replicas = {
        name: {part.id: [node.id for node in part.replicas] for part in described.partitions}
        for name, described in found.items()
    }
    brokers = _brokers(calls, deadline)
    known = (
        weakness_of(
            name,
            placed,
            min_insync=_min_insync(calls, name, deadline),
            brokers=brokers,
            servers=calls.servers,
        )
        for name, placed in replicas.items()
    )
    return tuple(weak for weak in known if weak is not None)


def warn_of_weak_topics(calls: AdminRequests, topics: Iterable[str], *, deadline: Deadline) -> None:
    """Log a warning for each such topic."""
    for weak in weak_topics(calls, topics, deadline=deadline):
        log.warning("%s event=weak_topic topic=%s", weak, weak.topic)


def _brokers(calls: AdminRequests, deadline: Deadline) -> list[int]:
    def request(items: Sequence[str], timeout_s: float) -> Mapping[str, Future[Any]]:
        return dict.fromkeys(items, calls.client.describe_cluster(request_timeout=timeout_s))

    found, _ = calls.ask("describe cluster", ["cluster"], request, deadline=deadline)
    return [node.id for node in found["cluster"].nodes]


def _min_insync(calls: AdminRequests, topic: str, deadline: Deadline) -> int | None:
    try:
        said = topic_settings(calls, [topic], deadline=deadline)[topic].get("min.insync.replicas")
    except NotAuthorized:
        return None
    return None if said is None else int(said)
