"""Spans of messages and batches: their attributes, and the link to the span of the producer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spark_cursor_source.metrics import message_span, trace_headers
from spark_cursor_source.metrics.traces import batch_span, carrier_of_current_span, traced
from tests.test_features import run_without

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(spans: InMemorySpanExporter) -> trace.Tracer:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider.get_tracer("test")


def message(**more: Any) -> Any:
    return SimpleNamespace(**({"topic": "jobs", "partition": 2, "offset": 7, "delivery_count": 3} | more))


def test_the_span_of_a_message_links_to_the_span_of_its_producer(
    spans: InMemorySpanExporter, tracer: trace.Tracer
) -> None:
    with tracer.start_as_current_span("produce") as produced:
        headers = trace_headers()
    for given in (headers, [{"key": name, "value": value} for name, value in headers]):
        with message_span(tracer, message(headers=given), subscription="billing"):
            pass
    _, first, second = spans.get_finished_spans()
    for span in (first, second):
        assert (span.name, span.kind) == ("process jobs", trace.SpanKind.CONSUMER)
        assert span.parent is None
        assert [link.context.span_id for link in span.links] == [produced.get_span_context().span_id]
        assert dict(span.attributes or {}) == {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": "jobs",
            "messaging.destination.partition.id": "2",
            "messaging.kafka.offset": 7,
            "cursorq.subscription": "billing",
            "cursorq.delivery_count": 3,
        }


@pytest.mark.parametrize("headers", [None, (), [("traceparent", None)], [("traceparent", b"\xff nonsense")]])
def test_a_message_without_a_valid_traceparent_has_a_span_without_a_link(
    spans: InMemorySpanExporter, tracer: trace.Tracer, headers: Any
) -> None:
    with message_span(tracer, message(headers=headers)):
        pass
    (span,) = spans.get_finished_spans()
    assert list(span.links) == []


def test_an_exception_is_recorded_and_raised(spans: InMemorySpanExporter, tracer: trace.Tracer) -> None:
    with pytest.raises(ValueError, match="broken"), message_span(tracer, message()):
        raise ValueError("broken")
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is trace.StatusCode.ERROR
    assert [event.name for event in span.events] == ["exception"]


def test_a_traced_handler_has_a_span_for_each_call_below_the_batch(
    spans: InMemorySpanExporter, tracer: trace.Tracer
) -> None:
    def handle(one: Any, resource: str) -> str:
        return resource

    async def handle_later(one: Any) -> None:
        await asyncio.sleep(0)

    with batch_span(tracer, subscription="billing", batch_id=4):
        carrier = carrier_of_current_span()
    given: dict[str, Any] = {"subscription": "billing", "parent": carrier, "action_of": str}
    assert traced(handle, lambda: tracer, **given)(message(), "kept") == "kept"
    asyncio.run(traced(handle_later, lambda: tracer, **given)(message()))
    batch, *calls = spans.get_finished_spans()
    assert (batch.name, (batch.attributes or {})["cursorq.batch_id"]) == ("process billing", 4)
    assert [(call.attributes or {})["cursorq.action"] for call in calls] == ["kept", "None"]
    assert batch.context is not None
    for call in calls:
        assert call.parent is not None
        assert call.parent.span_id == batch.context.span_id


def test_the_package_imports_neither_opentelemetry_nor_prometheus_before_their_use() -> None:
    blocked = ("opentelemetry", "prometheus_client")
    code = """
import spark_cursor_source.client, spark_cursor_source.admin, spark_cursor_source.tracker
from spark_cursor_source.errors import ExtraNotInstalled
from spark_cursor_source.metrics import openmetrics, trace_headers
for call in (lambda: openmetrics([]), trace_headers):
    try:
        call()
    except ExtraNotInstalled as error:
        print(error.extra)
"""
    done = run_without(blocked, code)
    assert (done.stdout.split(), done.stderr) == (["metrics", "otel"], "")
