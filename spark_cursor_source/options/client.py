"""Options of the plain client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_cursor_source.options import kinds
from spark_cursor_source.options.declare import KAFKA_CLIENTS, keys_of, option, read_options, same_option
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.options.reader import OptionReader
from spark_cursor_source.options.source import SOURCE_OPTIONS, SourceOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Broker connection, topics and timeout of a client.

    Source options are accepted. Options without a meaning here are ignored.

    >>> options = ClientOptions.parse({"kafka.bootstrap.servers": "b:9092", "clientTimeout": "5s"})
    >>> options.cursors_topic, options.timeout_ms
    ('__cursors', 5000)
    """

    #: Kafka client settings without the prefix ``kafka.``.
    kafka: KafkaOptions = field(repr=False, metadata=KAFKA_CLIENTS)
    cursors_topic: str = same_option(SourceOptions, "cursors_topic")
    #: Stream metadata: pauses, subjects and so on.
    streams_topic: str = same_option(SourceOptions, "streams_topic")
    timeout_ms: int = option(
        "clientTimeout",
        kinds.duration(least_ms=1_000),
        default="30s",
        doc="how long a call waits for brokers that are away; 1s or more",
    )

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ClientOptions:
        """Parse the options of a client. Source options are accepted too."""
        return read_options(cls, OptionReader(options, known=CLIENT_OPTIONS))


CLIENT_OPTIONS = keys_of(ClientOptions, also=SOURCE_OPTIONS)
