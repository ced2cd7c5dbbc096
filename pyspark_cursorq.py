"""Entry point in which Spark finds the format ``cursorq`` without a call of ``register``."""

from spark_cursor_source.spark.source import CursorqDataSource as DefaultSource

__all__ = ["DefaultSource"]
