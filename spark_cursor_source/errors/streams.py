"""The client's streams, and publishing to them."""

from __future__ import annotations

from spark_cursor_source.errors.client import ClientError


class StreamExists(ClientError):
    """A stream was to be created under a name that is taken."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.stream = stream

    def __str__(self) -> str:
        return f"stream '{self.stream}' exists: use it as it is, or choose another name"


class NoSuchStream(ClientError):
    """A stream, or a partition of it, that does not exist."""

    def __init__(self, stream: str, partition: int | None = None) -> None:
        super().__init__(stream, partition)
        self.stream, self.partition = stream, partition

    def __str__(self) -> str:
        of = "" if self.partition is None else f"partition {self.partition} of "
        return f"{of}stream '{self.stream}' does not exist: create it, or correct the name"


class ReadonlyPartition(ClientError):
    """A message was to be added to a partition that takes none."""

    def __init__(self, stream: str, partition: int) -> None:
        super().__init__(stream, partition)
        self.stream, self.partition = stream, partition

    def __str__(self) -> str:
        return (
            f"partition {self.partition} of stream '{self.stream}' is readonly: publish to another one, or "
            "make it writable (set_stream_readonly with readonly=False)"
        )


class EndOfReadonlyPartition(ClientError):
    """A subscription has handed out every message of a partition that takes no more; it has ended."""

    def __init__(self, stream: str, partition: int, position: int) -> None:
        super().__init__(stream, partition, position)
        self.stream, self.partition, self.position = stream, partition, position

    def __str__(self) -> str:
        return (
            f"partition {self.partition} of stream '{self.stream}' is readonly and was read to its end, "
            f"{self.position}: subscribe again from there once it is writable"
        )


class IncorrectOffset(ClientError):
    """A message was not published: others were since the one that its publisher knew of."""

    def __init__(self, stream: str, partition: int, expected: int, found: int) -> None:
        super().__init__(stream, partition, expected, found)
        self.stream, self.partition = stream, partition
        self.expected, self.found = expected, found

    def __str__(self) -> str:
        return (
            f"offset {self.expected} was expected in partition {self.partition} of stream '{self.stream}', "
            f"and the next message gets {self.found}: read on from there, decide anew, and publish with that"
        )


class AckTimeout(ClientError):
    """The brokers did not confirm a message in time; it may be there all the same, or come later."""

    def __init__(self, stream: str, correlation_id: str | None, waited_ms: int) -> None:
        super().__init__(stream, correlation_id, waited_ms)
        self.stream, self.correlation_id, self.waited_ms = stream, correlation_id, waited_ms

    def __str__(self) -> str:
        named = "" if self.correlation_id is None else f" '{self.correlation_id}'"
        return (
            f"message{named} to stream '{self.stream}' was not confirmed in {self.waited_ms} ms; see that its"
            " brokers run, and publish it again if it may be there twice"
        )
