"""Metrics of this process over HTTP, as OpenMetrics or in the older text format of Prometheus."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, Self, assert_never

from spark_cursor_source._features import require_library
from spark_cursor_source.core.closing import ClosedAtExit
from spark_cursor_source.errors import MetricsPortTaken
from spark_cursor_source.metrics.table import BUCKETS, BUILD_INFO, Histogram, Metric, MetricType, Sample

if TYPE_CHECKING:
    from prometheus_client import Metric as Family
    from prometheus_client.registry import Collector

log = logging.getLogger(__name__)
DEFAULT_HOST = "127.0.0.1"

Read = Callable[[], Iterable[Sample]]  #: reads the current metrics; threads may call it at once


class HasMetrics(Protocol):
    """Anything with metrics, such as a ``Service`` or a ``Tracker``."""

    def metrics(self) -> Iterable[Sample]:
        """Returns the current values."""


def serve_metrics(*sources: HasMetrics, port: int, host: str = DEFAULT_HOST) -> MetricsServer:
    """Shows the metrics of these sources over HTTP until the returned server is closed.

    ``port`` 0 chooses a free port, see :attr:`MetricsServer.port`. Only programs on this machine reach the
    default ``host``; give ``0.0.0.0`` for a Prometheus elsewhere. The metrics contain names of topics and
    subscriptions, and no payload, key or secret. As in Prometheus clients, any path is answered.

    Example::

        from spark_cursor_source.client import Service, ServiceConfig
        from spark_cursor_source.metrics import serve_metrics

        service = Service(ServiceConfig(bootstrap_servers="broker:9092", message_topic="jobs"))
        with serve_metrics(service, port=0) as server:
            print("http://127.0.0.1:%d/metrics" % server.port)

    Raises:
        ExtraNotInstalled: prometheus-client is missing.
        MetricsPortTaken: the address cannot be listened on.
    """
    return MetricsServer([source.metrics for source in sources], port=port, host=host)


class MetricsServer(ClosedAtExit):
    """HTTP server of metrics. It answers from threads of its own.

    Raises:
        ExtraNotInstalled: prometheus-client is missing.
        MetricsPortTaken: the address cannot be listened on.
    """

    def __init__(self, reads: Iterable[Read], *, port: int, host: str = DEFAULT_HOST) -> None:
        require_library("prometheus_client", what="An endpoint of metrics")
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_collector(list(reads)))
        try:
            self._http, self._thread = start_http_server(port, host, registry)
        except (OSError, OverflowError) as why:
            raise MetricsPortTaken(host, port, str(why)) from why
        self.port: int = self._http.server_port  #: the port that the server listens on
        log.info("Metrics are shown. event=metrics_served host=%s port=%d", host, self.port)

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        """Stops the server. Another close has no effect."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


def openmetrics(samples: Iterable[Sample]) -> str:
    """Returns samples in the text format of OpenMetrics.

    >>> from spark_cursor_source.metrics.table import BACKLOG
    >>> print(openmetrics([Sample(BACKLOG, ("orders", "billing"), 12)]).partition("# HELP cursorq_build")[0])
    # HELP cursorq_backlog_messages Messages that are not acked: outstanding and never read
    # TYPE cursorq_backlog_messages gauge
    cursorq_backlog_messages{subscription="billing",topic="orders"} 12.0
    <BLANKLINE>

    Raises:
        ExtraNotInstalled: prometheus-client is missing.
    """
    require_library("prometheus_client", what="OpenMetrics")
    from prometheus_client import CollectorRegistry
    from prometheus_client.openmetrics.exposition import generate_latest

    kept = list(samples)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_collector([lambda: kept]))
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]  # it has no annotations
    return text.decode()


def _collector(reads: Iterable[Read]) -> Collector:
    from prometheus_client.registry import Collector

    class OfSamples(Collector):
        def collect(self) -> Iterator[Family]:
            built = [Sample(BUILD_INFO, (_version(),), 1)]
            by_metric: dict[Metric, list[Sample]] = {}
            for sample in chain(*(read() for read in reads), built):
                by_metric.setdefault(sample.metric, []).append(sample)
            for metric, samples in by_metric.items():
                yield _family(metric, samples)

    return OfSamples()


def _family(metric: Metric, samples: Iterable[Sample]) -> Family:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    family: Any
    given: dict[str, Any] = {"labels": metric.labels, "unit": metric.unit}
    match metric.type:
        case MetricType.GAUGE:
            family = GaugeMetricFamily(metric.name, metric.help, **given)
        case MetricType.COUNTER:
            family = CounterMetricFamily(metric.name, metric.help, **given)
        case MetricType.HISTOGRAM:
            family = HistogramMetricFamily(metric.name, metric.help, **given)
        case _:
            assert_never(metric.type)
    for sample in samples:
        if isinstance(sample.value, Histogram):
            family.add_metric(sample.labels, _cumulative(sample.value.buckets), sample.value.sum)
        else:
            family.add_metric(sample.labels, float(sample.value))
    return family  # type: ignore[no-any-return]


def _cumulative(buckets: Iterable[int]) -> list[tuple[str, int]]:
    total, found = 0, []
    for bound, count in zip((*map(str, BUCKETS), "+Inf"), buckets, strict=True):
        total += count
        found.append((bound, total))
    return found


def _version() -> str:
    try:
        return version("spark-cursor-source")
    except PackageNotFoundError:  # a checkout that is not installed
        return "unknown"
