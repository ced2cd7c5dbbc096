"""Options of the plain client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC, DEFAULT_STREAMS_TOPIC
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.options.reader import OptionReader
from spark_cursor_source.options.source import SOURCE_OPTIONS

CLIENT_OPTIONS = (*SOURCE_OPTIONS, "clientTimeout")
DEFAULT_CLIENT_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Broker connection, topics and timeout of a client.

    Source options are accepted. Options without a meaning here are ignored.

    >>> options = ClientOptions.parse({"kafka.bootstrap.servers": "b:9092", "clientTimeout": "5s"})
    >>> options.cursors_topic, options.timeout_ms
    ('__cursors', 5000)
    """

    #: Kafka client settings without the prefix (options kafka.*, kafka.config.file as config.file).
    kafka: KafkaOptions = field(repr=False)
    #: Topic of the cursors. Default: __cursors (option cursorsTopic).
    cursors_topic: str = DEFAULT_CURSORS_TOPIC
    #: Topic of stream metadata: pauses, subjects and so on. Default: __cursorq_streams (option streamsTopic).
    streams_topic: str = DEFAULT_STREAMS_TOPIC
    #: Maximum wait of a call for unavailable brokers in ms, 1 s or more. Default: 30 s
    #: (option clientTimeout).
    timeout_ms: int = DEFAULT_CLIENT_TIMEOUT_MS

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ClientOptions:
        """Parse the options of a client. Source options are accepted too."""
        reader = OptionReader(options, known=CLIENT_OPTIONS)
        return cls(
            kafka=reader.brokers(),
            cursors_topic=reader.topic("cursorsTopic", default=DEFAULT_CURSORS_TOPIC),
            streams_topic=reader.topic("streamsTopic", default=DEFAULT_STREAMS_TOPIC),
            timeout_ms=reader.duration_ms(
                "clientTimeout", default_ms=DEFAULT_CLIENT_TIMEOUT_MS, least_ms=1_000
            ),
        )
