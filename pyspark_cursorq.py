"""The module where Spark looks by itself for the format ``cursorq``: no ``register`` is needed then."""

from spark_cursor_source.spark.source import CursorqDataSource as DefaultSource

__all__ = ["DefaultSource"]
