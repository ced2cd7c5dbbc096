"""Entry point in which Spark finds the format ``cursorq`` without a call of ``register``.

Spark imports every module with a name like this before it looks for any Python format. An error at the import
would fail all of them.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

from spark_cursor_source._features import require_spark
from spark_cursor_source.errors import UnsupportedSpark

__all__ = ["DefaultSource"]


class _Refusal(DataSource):
    """The format on a Spark that lacks features: says so when it is used."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        require_spark()

    @classmethod
    def name(cls) -> str:
        return "cursorq"


def _default_source() -> type[Any]:
    try:
        require_spark()
    except UnsupportedSpark:
        return _Refusal
    from spark_cursor_source.spark.source import CursorqDataSource

    return CursorqDataSource


DefaultSource = _default_source()
