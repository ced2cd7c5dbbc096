"""Clients that Ctrl-C ends as it ends everything else.

Where Ctrl-C comes while a callback of confluent-kafka runs, it loses the KeyboardInterrupt, which in Python
3.11 has no value yet, and the call fails with a SystemError: "returned NULL without setting an exception".
"""

from __future__ import annotations

from confluent_kafka import Consumer, Message, Producer


class InterruptibleProducer(Producer):
    """A Producer whose calls that run callbacks raise KeyboardInterrupt where they were interrupted."""

    def poll(self, timeout: float = -1) -> int:
        try:
            return super().poll(timeout)
        except SystemError:
            raise KeyboardInterrupt from None

    def flush(self, timeout: float = -1) -> int:
        try:
            return super().flush(timeout)
        except SystemError:
            raise KeyboardInterrupt from None

    def commit_transaction(self, timeout: float = -1) -> None:
        try:
            super().commit_transaction(timeout)
        except SystemError:
            raise KeyboardInterrupt from None

    def abort_transaction(self, timeout: float = -1) -> None:
        try:
            super().abort_transaction(timeout)
        except SystemError:
            raise KeyboardInterrupt from None


class InterruptibleConsumer(Consumer):
    """The same of a Consumer."""

    def poll(self, timeout: float = -1) -> Message | None:
        try:
            return super().poll(timeout)
        except SystemError:
            raise KeyboardInterrupt from None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        try:
            return super().consume(num_messages, timeout)
        except SystemError:
            raise KeyboardInterrupt from None


#: what is opened for what is asked for
INTERRUPTIBLE: dict[object, type[Producer | Consumer]] = {
    Producer: InterruptibleProducer,
    Consumer: InterruptibleConsumer,
}
