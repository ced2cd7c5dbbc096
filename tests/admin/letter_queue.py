"""A queue topic with messages of which some are dead, for the tests of dead letters."""

from __future__ import annotations

import uuid
from dataclasses import replace

from confluent_kafka import Message

from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.core.tracker import DeadLetter
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.options.kafka import KafkaOptions
from spark_cursor_source.tracker.dead_letter_copier import DeadLetterCopier
from tests.kafka.control_plane import cell_of, dead_letter_of, produce, read_all


class Queue:
    """A queue topic of three partitions, ten messages in partition 1, of which some are dead."""

    def __init__(self, servers: str, **more: str) -> None:
        self.config = {"bootstrap.servers": servers, **more}
        self.kafka = KafkaOptions(self.config)
        self.topics = ClusterAdmin(self.config)
        self.topic = f"queue-{uuid.uuid4().hex[:8]}"
        self.dead = f"{self.topic}-billing-DLQ"
        self.topics.create({self.topic: (3, {})})
        messages = [
            {
                "key": None if n == 4 else b"key %d" % n,
                "value": None if n == 5 else b"value %d" % n,
                "headers": [("trace", b"\x00\xff"), ("cursorq-reason", b"mine"), ("cursorq-error", b"mine")]
                if n == 6
                else [],
                "timestamp": 1_000_000 + n,
                "partition": 1,
            }
            for n in range(10)
        ]
        produce(self.config, self.topic, messages)

    def bury(self, *letters: DeadLetter) -> None:
        copier = self.copier(RedeliveryPolicy())
        copier.copy(letters)
        copier.close()

    def copier(self, policy: RedeliveryPolicy) -> DeadLetterCopier:
        return DeadLetterCopier(self.config, self.topics, lambda _: policy, patience_ms=30_000)

    def letter(self, *ranges: tuple[int, int], reason: str = "rejected", error: str = "") -> DeadLetter:
        letter = dead_letter_of(cell_of(self.topic, 1), *ranges)
        return replace(letter, reason=reason, error=error, last_delivery_ms=7)

    def back(self) -> list[Message]:
        """What has been appended since, when the last transaction is to be seen."""
        places = [(self.topic, number) for number in range(3)]
        # A commit marker may be appended after the ends were read, so they are a lower bound.
        _, settled = self.topics.settled_ends(places, Deadline.after_ms(PATIENCE_MS))
        assert settled, "a transaction is still open"
        return read_all(self.config, self.topic)[10:]
