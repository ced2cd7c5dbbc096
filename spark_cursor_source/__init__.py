"""Individual-ack queues on Kafka for Spark Structured Streaming."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from spark_cursor_source import _aliases
from spark_cursor_source._features import require_spark

if TYPE_CHECKING:
    from spark_cursor_source.core.outcome import Leave, Reject, Release
    from spark_cursor_source.spark.ack_sink import AckSink
    from spark_cursor_source.spark.actions import ack, extend, reject, release
    from spark_cursor_source.spark.delta_sink import DeltaSink
    from spark_cursor_source.spark.kafka_sink import KafkaSink
    from spark_cursor_source.spark.query_metrics import QueryMetrics, QueueProgress
    from spark_cursor_source.spark.source import outstanding, register
    from spark_cursor_source.spark.tracker import start_tracker

__all__ = [
    "AckSink",
    "DeltaSink",
    "KafkaSink",
    "Leave",
    "QueryMetrics",
    "QueueProgress",
    "Reject",
    "Release",
    "ack",
    "extend",
    "outstanding",
    "register",
    "reject",
    "release",
    "start_tracker",
]

# Imported on first use: the broker's command line and plain clients do not need pyspark.
_OWNERS = {
    "AckSink": "spark.ack_sink",
    "DeltaSink": "spark.delta_sink",
    "KafkaSink": "spark.kafka_sink",
    "Leave": "core.outcome",
    "QueryMetrics": "spark.query_metrics",
    "QueueProgress": "spark.query_metrics",
    "Reject": "core.outcome",
    "Release": "core.outcome",
    "ack": "spark.actions",
    "extend": "spark.actions",
    "outstanding": "spark.source",
    "register": "spark.source",
    "reject": "spark.actions",
    "release": "spark.actions",
    "start_tracker": "spark.tracker",
}


def __getattr__(name: str) -> Any:
    owner = _OWNERS.get(name)
    if owner is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if owner.startswith("spark."):
        require_spark()
    return getattr(import_module(f"{__name__}.{owner}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_OWNERS})


_aliases.install()
