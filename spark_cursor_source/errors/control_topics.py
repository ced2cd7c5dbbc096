"""Control topics with settings, or a past, that would break a promise."""

from __future__ import annotations

from spark_cursor_source.errors.kafka import KafkaFailure


class ControlTopicUnfit(KafkaFailure):
    """A control topic is there and its settings would break a promise."""


class MarkersTopicNotLogAppendTime(ControlTopicUnfit):
    """Leases are measured in the broker's time, and this topic does not record it."""

    def __init__(self, topic: str, found: str, servers: str) -> None:
        super().__init__(topic, found, servers)
        self.topic, self.found, self.servers = topic, found, servers

    def __str__(self) -> str:
        return (
            f"markers topic '{self.topic}' uses {self.found}; set message.timestamp.type=LogAppendTime "
            f"(kafka-configs.sh --bootstrap-server {self.servers} --alter --entity-type topics "
            f"--entity-name {self.topic} "
            "--add-config message.timestamp.type=LogAppendTime), or delete it and let cursorq create it"
        )


class CursorsTopicNotCompacted(ControlTopicUnfit):
    """A cursors topic that forgets old records forgets whole subscriptions."""

    def __init__(self, topic: str, found: str, servers: str) -> None:
        super().__init__(topic, found, servers)
        self.topic, self.found, self.servers = topic, found, servers

    def __str__(self) -> str:
        return (
            f"cursors topic '{self.topic}' has cleanup.policy={self.found}; set cleanup.policy=compact "
            f"(kafka-configs.sh --bootstrap-server {self.servers} --alter --entity-type topics "
            f"--entity-name {self.topic} "
            "--add-config cleanup.policy=compact), or name another one and let cursorq create it"
        )


class StreamsTopicUnfit(ControlTopicUnfit):
    """A streams topic that forgets, or does not say when something was changed."""

    def __init__(self, topic: str, setting: str, found: str, wanted: str, servers: str) -> None:
        super().__init__(topic, setting, found, wanted, servers)
        self.topic, self.setting, self.found, self.wanted = topic, setting, found, wanted
        self.servers = servers

    def __str__(self) -> str:
        return (
            f"streams topic '{self.topic}' has {self.setting}={self.found}; set {self.setting}={self.wanted} "
            f"(kafka-configs.sh --bootstrap-server {self.servers} --alter --entity-type topics "
            f"--entity-name {self.topic} "
            f"--add-config {self.setting}={self.wanted}), or name another one and let cursorq create it"
        )


class MarkersPartitionsChanged(ControlTopicUnfit):
    """The partition of a cell's markers follows from their number, which is fixed once the topic is used."""

    def __init__(self, topic: str, was: int, now: int) -> None:
        super().__init__(topic, was, now)
        self.topic, self.was, self.now = topic, was, now

    def __str__(self) -> str:
        return (
            f"markers topic '{self.topic}' has {self.now} partitions and was used with {self.was}; "
            "their number is fixed once used: name a new topic in markersTopic, for the tracker and all "
            "queries"
        )


class MarkersTopicRecreated(ControlTopicUnfit):
    """The markers topic was deleted and created again, and the cursors tell of markers of the one before."""

    def __init__(self, topic: str, was: str, now: str) -> None:
        super().__init__(topic, was, now)
        self.topic, self.was, self.now = topic, was, now

    def __str__(self) -> str:
        return (
            f"markers topic '{self.topic}' was deleted and created again (its id was {self.was} and is"
            f" {self.now}): the cursors tell of markers that are gone; name new topics in markersTopic,"
            " redeliveriesTopic and cursorsTopic, for the tracker and all queries"
        )


class MarkersGone(ControlTopicUnfit):
    """Markers that the tracker has not read are not there any more."""

    def __init__(self, topic: str, partition: int, position: int, available: tuple[int, int]) -> None:
        super().__init__(topic, partition, position, available)
        self.topic, self.partition, self.position, self.available = topic, partition, position, available

    def __str__(self) -> str:
        found = (
            f"markers topic '{self.topic}' partition {self.partition} has offsets {self.available[0]} to"
            f" {self.available[1]}, and the tracker stands at {self.position}"
        )
        if self.position > self.available[1]:
            return (
                f"{found}: the topic was created again, or its brokers have lost its end; name new topics in"
                " markersTopic, redeliveriesTopic and cursorsTopic, for the tracker and all queries"
            )
        return (
            f"{found}: what was removed in between may be the only trace of messages that were delivered and"
            " not acked; lengthen its retention.ms, and to go on without them start the tracker with a new"
            " checkpointLocation and takeOver=true"
        )
