"""An AdminClient that finds its controller and its brokers again after it has lost them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException, admin

from spark_cursor_source.kafka.config import open_client

LOOK_ANEW_S = 1.5  #: a call that waits for so long makes the client look for its controller again
_ONE_LOOK_S = 1.0


class LivingAdmin:
    """An AdminClient, replaced by another one when it has no broker left to ask. Threads may share it.

    librdkafka sends most administrative requests to one broker, which it calls the controller. It looks for
    another one only with its next metadata request, and a client that knows no topics makes none by itself
    for five minutes: the calls wait that long for a broker that is gone. So a call that waits asks for
    metadata.

    A lone broker that was fenced for a moment answers that there are no brokers. librdkafka then lets go of
    the only one it knows, and in some cases never adds it again. Nothing but another client helps then. The
    client is replaced only by one that does reach the brokers, so an outage replaces none.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = dict(config)
        self._looking = threading.Lock()
        self._spare: admin.AdminClient | None = None
        self.client = self._open()

    def look_anew(self, timeout_s: float) -> None:
        """Ask for metadata, for at most ``timeout_s``; no effect while another thread does."""
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
