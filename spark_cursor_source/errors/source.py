"""The streaming source, which cannot go on."""

from __future__ import annotations

from spark_cursor_source.errors.root import CursorqError


class SourceError(CursorqError):
    """The streaming source cannot go on without losing or inventing something."""


class PythonWithoutPackage(SourceError):
    """Spark would start a Python that does not have this package."""

    def __init__(self, python: str, driver: str) -> None:
        super().__init__(python, driver)
        self.python, self.driver = python, driver

    def __str__(self) -> str:
        return (
            f"Spark starts its Python processes as '{self.python}', where spark_cursor_source cannot be"
            f" imported: set PYSPARK_PYTHON={self.driver} in the environment before the session is made, or"
            " install the package there"
        )


class QueueTopicRecreated(SourceError):
    """A queue topic was deleted and created again: its old positions mean other messages now."""

    def __init__(self, topic: str, was: str, now: str) -> None:
        super().__init__(topic, was, now)
        self.topic, self.was, self.now = topic, was, now

    def __str__(self) -> str:
        return (
            f"topic '{self.topic}' was deleted and created again (its id was {self.was} and is {self.now}),"
            " so the positions of this checkpoint and subscription mean other messages now: start with a"
            " new checkpoint and a new subscription, or, in a Spark query with V2 markers, with"
            " failOnDataLoss=false, which reads the new topic from its beginning"
        )


class RedeliveriesTopicRecreated(SourceError):
    """The redeliveries topic was deleted and created again while a query or a client was reading it."""

    def __init__(self, topic: str, was: str, now: str) -> None:
        super().__init__(topic, was, now)
        self.topic, self.was, self.now = topic, was, now

    def __str__(self) -> str:
        return (
            f"redeliveries topic '{self.topic}' was deleted and created again (its id was {self.was} and is"
            f" {self.now}): start the query again with its checkpoint, or open the consumer anew; all that"
            " waits is announced to it again"
        )


class QueueTopicEndsEarlier(SourceError):
    """A queue topic ends before the position of the subscription: it is another topic, or lost its end."""

    def __init__(self, topic: str, partition: int, position: int, end: int) -> None:
        super().__init__(topic, partition, position, end)
        self.topic, self.partition, self.position, self.end = topic, partition, position, end

    def __str__(self) -> str:
        return (
            f"topic '{self.topic}' partition {self.partition} ends at offset {self.end}, and the"
            f" subscription stands at {self.position}: the topic was deleted and created again, or its"
            " brokers have lost its end; what is appended now has offsets that are acked already, so start"
            " with a new checkpoint and a new subscription, or set failOnDataLoss=false to go on after them"
        )


class MarkerFormatChanged(SourceError):
    """A checkpoint was written with other markers than the query asks for."""

    def __init__(self, was: str, now: str) -> None:
        super().__init__(was, now)
        self.was, self.now = was, now

    def __str__(self) -> str:
        return (
            f"this checkpoint was written with markerFormat={self.was}, and the query has"
            f" markerFormat={self.now}: each tracker knows only of its own leases, so let the old query"
            " finish and start a new checkpoint"
        )


class CheckpointOfAnother(SourceError):
    """A checkpoint was written by a query of another subscription, or with other control topics."""

    def __init__(self, option: str, was: str, now: str) -> None:
        super().__init__(option, was, now)
        self.option, self.was, self.now = option, was, now

    def __str__(self) -> str:
        return (
            f"this checkpoint was written with {self.option}={self.was}, and the query has"
            f" {self.option}={self.now}: its positions are not those of this query, which would skip messages"
            " that it never had; give the query a checkpointLocation of its own, or set"
            f" {self.option}={self.was} to go on with this one"
        )


class DataLoss(SourceError):
    """Messages that were not acked are gone from the queue topic."""

    def __init__(self, topic: str, partition: int, ranges: str, why: str) -> None:
        super().__init__(topic, partition, ranges, why)
        self.topic, self.partition, self.ranges, self.why = topic, partition, ranges, why

    def __str__(self) -> str:
        return (
            f"messages {self.ranges} of '{self.topic}' partition {self.partition} are gone ({self.why}) and"
            " were never acked; keep messages longer (retention.ms), or set failOnDataLoss=false to end"
            " them and go on"
        )
