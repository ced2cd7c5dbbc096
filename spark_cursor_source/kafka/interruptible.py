"""Kafka clients whose calls raise KeyboardInterrupt on Ctrl-C.

confluent-kafka runs signal handlers inside its calls. Some calls then fail with a SystemError: "returned NULL
without setting an exception", or "returned a result with an exception set". With confluent-kafka 2.11 another
SystemError may be its cause.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

# These calls only fill a queue and run no signal handler. Producers make one call per message.
_AS_THEY_ARE = frozenset({"produce", "produce_batch"})


def _interruptible(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def called(*args: Any, **options: Any) -> Any:
        try:
            return call(*args, **options)
        except SystemError as failed:
            first: BaseException = failed
            while isinstance(first, SystemError) and first.__cause__ is not None:
                first = first.__cause__
            if isinstance(first, SystemError | KeyboardInterrupt):
                raise KeyboardInterrupt from None
            raise

    return called


def _with_interruptible_calls(client: type) -> type:
    names = {name for name in dir(client) if not name.startswith("_")} - _AS_THEY_ARE
    calls = {name: getattr(client, name) for name in names}
    replaced = {name: _interruptible(call) for name, call in calls.items() if callable(call)}
    return type(f"Interruptible{client.__name__}", (client,), replaced)


#: client class -> interruptible subclass that is opened instead
INTERRUPTIBLE: dict[object, type] = {
    client: _with_interruptible_calls(client) for client in (Producer, Consumer, AdminClient)
}
