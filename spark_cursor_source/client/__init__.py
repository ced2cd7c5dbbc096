"""The plain client: cursors, streams and publishing, for services that are not Spark."""

from spark_cursor_source.client.client import Client
from spark_cursor_source.core.publish import Ack, AckPolicy, Partitioner, RoundRobin, by_key

__all__ = ["Ack", "AckPolicy", "Client", "Partitioner", "RoundRobin", "by_key"]
