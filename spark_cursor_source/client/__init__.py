"""The plain client: cursors for services that are not Spark."""

from spark_cursor_source.client.client import Client

__all__ = ["Client"]
