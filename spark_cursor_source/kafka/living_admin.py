"""AdminClient that recovers after it has lost its controller and its brokers."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException, admin

from spark_cursor_source.kafka.config import open_client

LOOK_ANEW_S = 1.5  #: a call that waits for this long triggers a metadata refresh
_ONE_LOOK_S = 1.0


class LivingAdmin:
    """AdminClient that is replaced when it has no broker left. Threads may share it.

    librdkafka sends most admin requests to one broker, the controller. It only looks for a new controller
    with its next metadata request. A client without topics makes that request every five minutes, so calls
    would wait that long for a dead broker. A call that waits therefore requests metadata.

    A single broker that was fenced for a moment returns an empty broker list. librdkafka then drops its only
    known broker and in some cases never adds it again. Only a new client helps then. The client is replaced
    only by one that reaches the brokers, so an outage alone does not replace it.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = dict(config)
        self._looking = threading.Lock()
        self._spare: admin.AdminClient | None = None
        self.client = self._open()

    def look_anew(self, timeout_s: float) -> None:
        """Request metadata for at most ``timeout_s``. No effect while another thread does so."""
        if not self._looking.acquire(blocking=False):
            return
        try:
            if _answers(self.client, timeout_s / 2):
                self._spare = None
                return
            self._spare = self._spare or self._open()
            if _answers(self._spare, timeout_s / 2):
                self.client, self._spare = self._spare, None
        finally:
            self._looking.release()

    def _open(self) -> admin.AdminClient:
        return open_client(admin.AdminClient, self._config)


def _answers(client: admin.AdminClient, timeout_s: float) -> bool:
    try:
        client.list_topics(timeout=min(timeout_s, _ONE_LOOK_S))
    except KafkaException:
        return False
    return True
