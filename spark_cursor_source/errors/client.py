"""Calls of the plain client."""

from __future__ import annotations

from spark_cursor_source.errors.root import CursorqError, shown


class ClientError(CursorqError):
    """A call of the plain client that cannot be done as it was made."""


class ClientClosed(ClientError):
    """A client was used after its close."""

    def __str__(self) -> str:
        return "the client is closed: make another, or call it inside its `with` block"


class InvalidArgument(ClientError):
    """An argument with a value that cannot be."""

    def __init__(self, argument: str, value: object, why: str) -> None:
        super().__init__(argument, value, why)
        self.argument, self.value, self.why = argument, value, why

    def __str__(self) -> str:
        return f"{self.argument}={shown(self.value)}: {self.why}; correct the call"


class NothingReceived(ClientError):
    """No message came in time, and the consumer knows why; it tries on, so that it may pass."""

    def __init__(self, waited_ms: int, why: str) -> None:
        super().__init__(waited_ms, why)
        self.waited_ms, self.why = waited_ms, why

    def __str__(self) -> str:
        return (
            f"no message in {self.waited_ms} ms, because the consumer is kept waiting: {self.why}; it tries"
            " on, so do what that says and receive again"
        )


class NotSettled(ClientError):
    """What was said of a message is not confirmed by the brokers yet; it may be there all the same."""

    def __init__(self, waited_ms: int, why: str) -> None:
        super().__init__(waited_ms, why)
        self.waited_ms, self.why = waited_ms, why

    def __str__(self) -> str:
        return (
            f"acks, or the like, are not confirmed after {self.waited_ms} ms ({self.why}); see that the"
            " brokers run: the consumer tries on, and flush() waits for it; what is not confirmed comes again"
        )


class AlreadySettled(ClientError):
    """A message of a queue was settled twice, in two ways; the first one counts."""

    def __init__(self, message: str, how: str) -> None:
        super().__init__(message, how)
        self.message, self.how = message, how

    def __str__(self) -> str:
        return f"{self.message} was {self.how} already: ack, nack or reject a message once, and keep to it"
