"""The options of the plain client."""

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
    """Where the brokers are, and how long a call may take.

    The options of a source can be handed over as they are; what means nothing here is not used.

    >>> options = ClientOptions.parse({"kafka.bootstrap.servers": "b:9092", "clientTimeout": "5s"})
    >>> options.cursors_topic, options.timeout_ms
    ('__cursors', 5000)
    """

    #: options of the Kafka clients, without the prefix (options kafka.*, kafka.config.file as config.file)
    kafka: KafkaOptions = field(repr=False)
    #: topic of the cursors (option cursorsTopic)
    cursors_topic: str = DEFAULT_CURSORS_TOPIC
    #: topic of what streams are beyond their topics: pauses, subjects and so on (option streamsTopic)
    streams_topic: str = DEFAULT_STREAMS_TOPIC
    #: how long a call waits for brokers that are away (option clientTimeout)
    timeout_ms: int = DEFAULT_CLIENT_TIMEOUT_MS

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ClientOptions:
        """The options of a client; source options are taken too."""
        reader = OptionReader(options, known=CLIENT_OPTIONS)
        return cls(
            kafka=reader.brokers(),
            cursors_topic=reader.topic("cursorsTopic", default=DEFAULT_CURSORS_TOPIC),
            streams_topic=reader.topic("streamsTopic", default=DEFAULT_STREAMS_TOPIC),
            timeout_ms=reader.duration_ms(
                "clientTimeout", default_ms=DEFAULT_CLIENT_TIMEOUT_MS, least_ms=1_000
            ),
        )
