"""Rights of message writes, checked before the first message is sent."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS
from spark_cursor_source.kafka.pool import ClientPool
from spark_cursor_source.kafka.rights import of_producer


class WriteRights:
    """Cache of the topics that may be written to, so that each topic is checked only once."""

    def __init__(self, config: Mapping[str, str], streams_topic: str) -> None:
        self._topics = ClusterAdmin(config, timeout_ms=PATIENCE_MS)
        self._streams_topic = streams_topic
        self._allowed: set[str] = set()

    def check(self, queues: Collection[str]) -> None:
        """Check that this principal may write to all of these queue topics.

        Raises:
            NotAuthorized: rights are missing. The error names all of them.
        """
        rights = of_producer(streams=self._streams_topic, queues=queues)
        new = {name: operations for name, operations in rights.items() if name not in self._allowed}
        if new:
            self._topics.check_rights(new)
            self._allowed |= new.keys()


def check_write_rights(kafka: Mapping[str, str], streams_topic: str, queues: Collection[str]) -> None:
    """Run :meth:`WriteRights.check` with the cache of this process."""
    config = client_config(kafka, "admin")
    key = frozenset(config.items()), streams_topic
    with _idle.lend(key, lambda: WriteRights(config, streams_topic)) as rights:
        rights.check(queues)


_idle: ClientPool[WriteRights] = ClientPool(lambda rights: None)
