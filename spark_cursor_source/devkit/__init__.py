"""Tools for development and tests: an embedded Kafka broker, test messages, and the demo.

No other room but ``cli`` imports this one. A production job needs nothing of it.
"""

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.devkit.messages import ensure_topic, send_messages

__all__ = ["EmbeddedKafka", "ensure_topic", "send_messages"]
