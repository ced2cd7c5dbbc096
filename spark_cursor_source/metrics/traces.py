"""Spans of OpenTelemetry for messages and batches, linked to the spans of their producers.

Names and attributes follow the semantic conventions for messaging. Nothing is traced unless a tracer is
given. Only the API of OpenTelemetry is used: the application chooses the SDK and the exporter.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from spark_cursor_source._features import require_library

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

_NAMES = ("traceparent", "tracestate")
_OPERATION = "process"


def trace_headers() -> list[tuple[str, bytes]]:
    """Returns the headers of a message that link its processing to the current span; none without a span.

    Example::

        from spark_cursor_source.client import Service, ServiceConfig
        from spark_cursor_source.metrics import trace_headers

        service = Service(ServiceConfig(bootstrap_servers="broker:9092", message_topic="jobs"))
        with service.queue("mails").producer() as producer:
            producer.send(b"to: you", headers=trace_headers())

    Raises:
        ExtraNotInstalled: opentelemetry-api is missing.
    """
    return [(name, value.encode()) for name, value in carrier_of_current_span().items()]


def carrier_of_current_span() -> dict[str, str]:
    """Returns ``traceparent`` and ``tracestate`` of the current span; empty without a span."""
    require_library("opentelemetry", what="Tracing")
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier


@contextmanager
def message_span(
    tracer: Tracer,
    message: Any,
    *,
    subscription: str | None = None,
    parent: Mapping[str, str] | None = None,
) -> Iterator[Span]:
    """Runs a block in a span of the processing of ``message``, a message of a client or of a handler.

    The span links to the span that the message's header ``traceparent`` names. In Spark the header is read
    only with ``includeHeaders``. An exception of the block is recorded and raised. ``parent`` is a carrier
    such as :func:`carrier_of_current_span` returns; None: the current span is the parent.

    Example::

        from opentelemetry import trace

        from spark_cursor_source.client import Service, ServiceConfig
        from spark_cursor_source.metrics import message_span

        tracer = trace.get_tracer("mails")
        service = Service(ServiceConfig(bootstrap_servers="broker:9092", message_topic="jobs"))
        mails = service.queue("mails")
        with mails.producer() as producer, mails.consumer() as consumer:
            producer.send(b"to: you")
            message = consumer.receive(timeout_ms=20_000)
            if message is not None:
                with message_span(tracer, message):
                    message.ack()

    Raises:
        ExtraNotInstalled: opentelemetry-api is missing.
    """
    require_library("opentelemetry", what="Tracing")
    from opentelemetry.trace import Link, SpanKind

    producer = _span_context(_carrier(getattr(message, "headers", None)))
    given: dict[str, Any] = {
        **_attributes(message.topic, subscription),
        "messaging.destination.partition.id": str(message.partition),
        "messaging.kafka.offset": message.offset,
        "cursorq.delivery_count": message.delivery_count,
    }
    with tracer.start_as_current_span(
        f"{_OPERATION} {message.topic}",
        context=None if parent is None else _context(parent),
        kind=SpanKind.CONSUMER,
        attributes=given,
        links=[Link(producer)] if producer is not None else [],
    ) as span:
        yield span


@contextmanager
def batch_span(tracer: Tracer, *, subscription: str, batch_id: int) -> Iterator[Span]:
    """Runs a block in a span of a micro-batch.

    Raises:
        ExtraNotInstalled: opentelemetry-api is missing.
    """
    require_library("opentelemetry", what="Tracing")
    from opentelemetry.trace import SpanKind

    given: dict[str, Any] = {**_attributes(None, subscription), "cursorq.batch_id": batch_id}
    name = f"{_OPERATION} {subscription}"
    with tracer.start_as_current_span(name, kind=SpanKind.CONSUMER, attributes=given) as span:
        yield span


def traced(
    fn: Callable[..., Any],
    tracer_of: Callable[[], Tracer],
    *,
    subscription: str,
    parent: Mapping[str, str],
    action_of: Callable[[Any], str],
) -> Callable[..., Any]:
    """Returns the handler ``fn`` with a span for each call. It is a coroutine function if ``fn`` is one.

    ``tracer_of`` is called at the first message. ``action_of`` names what a return value stands for.
    """
    found: list[Tracer] = []

    def span_of(message: Any) -> Any:
        if not found:
            found.append(tracer_of())
        return message_span(found[0], message, subscription=subscription, parent=parent)

    def call(message: Any, *resources: Any) -> Any:
        with span_of(message) as span:
            outcome = fn(message, *resources)
            span.set_attribute("cursorq.action", action_of(outcome))
            return outcome

    async def call_later(message: Any, *resources: Any) -> Any:
        with span_of(message) as span:
            outcome = await fn(message, *resources)
            span.set_attribute("cursorq.action", action_of(outcome))
            return outcome

    is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)
    return call_later if is_async else call


def _attributes(topic: str | None, subscription: str | None) -> dict[str, str]:
    given = {
        "messaging.system": "kafka",
        "messaging.operation.name": _OPERATION,
        "messaging.operation.type": _OPERATION,
        "messaging.destination.name": topic,
        "cursorq.subscription": subscription,
    }
    return {name: value for name, value in given.items() if value is not None}


def _carrier(headers: Iterable[Any] | None) -> dict[str, str]:
    """Returns the headers of the producer's span, of pairs or of rows with key and value."""
    carrier: dict[str, str] = {}
    for header in headers or ():
        key, value = (header["key"], header["value"]) if isinstance(header, Mapping) else header
        if key.lower() in _NAMES and value is not None:
            carrier[key.lower()] = value.decode("ascii", errors="replace")
    return carrier


def _context(carrier: Mapping[str, str]) -> Context:
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract(carrier, context=Context())


def _span_context(carrier: Mapping[str, str]) -> Any:
    """Returns the producer's span, or None if the headers name no valid one."""
    from opentelemetry.trace import get_current_span

    found = get_current_span(_context(carrier)).get_span_context()
    return found if found.is_valid else None
