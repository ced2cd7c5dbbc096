"""Clients whose calls end with KeyboardInterrupt where the user presses Ctrl-C.

confluent-kafka runs the handler of a signal inside its calls, and some of them fail with a SystemError then:
"returned NULL without setting an exception", or "returned a result with an exception set".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

# It only fills a queue and runs no handler; producers call it once a message.
_AS_THEY_ARE = frozenset({"produce", "produce_batch"})


def _interruptible(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def called(*args: Any, **options: Any) -> Any:
        try:
            return call(*args, **options)
        except SystemError as failed:
            if failed.__cause__ is None or isinstance(failed.__cause__, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            raise

    return called


def _with_interruptible_calls(client: type) -> type:
    names = {name for name in dir(client) if not name.startswith("_")} - _AS_THEY_ARE
    calls = {name: getattr(client, name) for name in names}
    replaced = {name: _interruptible(call) for name, call in calls.items() if callable(call)}
    return type(f"Interruptible{client.__name__}", (client,), replaced)


#: what is opened for what is asked for
INTERRUPTIBLE: dict[object, type] = {
    client: _with_interruptible_calls(client) for client in (Producer, Consumer, AdminClient)
}
