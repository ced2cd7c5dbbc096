"""Metrics of a process for Prometheus, its traces for OpenTelemetry, and its log lines as JSON.

``table`` declares every metric. ``counts`` keeps the counts of a process, ``snapshot`` reads metrics from
statistics, and ``server`` shows both. This package imports ``core`` and ``errors``; ``tracker``, ``client``,
``admin`` and ``spark`` import it. Only ``server`` needs prometheus-client, and only ``traces``
opentelemetry-api, at the first use.
"""

from spark_cursor_source.metrics.json_log import JsonFormatter
from spark_cursor_source.metrics.server import MetricsServer, openmetrics, serve_metrics
from spark_cursor_source.metrics.table import METRICS, Metric, MetricType, Sample
from spark_cursor_source.metrics.traces import message_span, trace_headers

__all__ = [
    "METRICS",
    "JsonFormatter",
    "Metric",
    "MetricType",
    "MetricsServer",
    "Sample",
    "message_span",
    "openmetrics",
    "serve_metrics",
    "trace_headers",
]
