"""Individual-ack queues on Kafka for Spark Structured Streaming."""

from __future__ import annotations

from spark_cursor_source.core.outcome import Leave, Reject, Release
from spark_cursor_source.spark.ack_sink import AckSink
from spark_cursor_source.spark.actions import ack, extend, reject, release
from spark_cursor_source.spark.source import register
from spark_cursor_source.spark.tracker_query import start_tracker

__all__ = [
    "AckSink",
    "Leave",
    "Reject",
    "Release",
    "ack",
    "extend",
    "register",
    "reject",
    "release",
    "start_tracker",
]
