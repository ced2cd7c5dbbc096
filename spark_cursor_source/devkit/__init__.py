"""Tools for development and tests: an embedded Kafka broker, test messages, and the demo.

Only ``cli`` imports this package. Production jobs do not need it.
"""

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.devkit.messages import ensure_topic, send_messages

__all__ = ["EmbeddedKafka", "ensure_topic", "send_messages"]
