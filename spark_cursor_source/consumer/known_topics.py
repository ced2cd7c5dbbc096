"""Queue topics whose positions a consumer knows: the rule for topics that are deleted or created again.

A topic that is created again under its name has another id, and its offsets name other messages. So the
positions, leases and acks of the deleted topic must not be applied to the new one. All consumers follow one
rule:

===================  ==================================  =================================================
consumer             the topic was deleted               the topic was created again
===================  ==================================  =================================================
query, V2 markers    ``TopicNotFound``; if loss is       ``QueueTopicRecreated``; if loss is allowed: the
                     allowed: skipped with a warning     new topic is read from its beginning
query, V1 markers    the same                            ``QueueTopicRecreated``
plain client         ``TopicNotFound``                   ``QueueTopicRecreated``
===================  ==================================  =================================================

Loss is allowed with ``failOnDataLoss=false``. A query with V1 markers cannot begin anew, because the tracker
of kafka-mq-go still has the leases of the deleted topic and knows no topic ids.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from spark_cursor_source.errors import QueueTopicRecreated, TopicNotFound
from spark_cursor_source.kafka.admin import ClusterAdmin, TopicInfo

log = logging.getLogger(__name__)


class KnownTopics:
    """Ids of the queue topics that a consumer reads. Detects deleted and recreated topics. Not thread-safe.

    With ``skips_deleted``, a deleted topic is skipped. With ``begins_anew``, a recreated topic is read from
    its beginning. Otherwise both are errors.
    """

    def __init__(
        self,
        topics: ClusterAdmin,
        *,
        subscription: str,
        skips_deleted: bool = False,
        begins_anew: bool = False,
    ) -> None:
        self._topics, self._subscription = topics, subscription
        self._skips_deleted, self._begins_anew = skips_deleted, begins_anew
        self._expected: dict[str, str] = {}  # ids of the topics that the known positions belong to
        self._gone: dict[str, str] = {}  # ids of deleted topics
        self._recreated: set[str] = set()
        self.ids: Mapping[str, str] = {}  #: ids of the present topics, at the last :meth:`refresh`

    @property
    def names(self) -> Collection[str]:
        """Names of the topics with known positions."""
        return self._expected.keys()

    def expect(self, ids: Mapping[str, str]) -> None:
        """Records the ids of topics with known positions."""
        self._expected |= ids

    def refresh(self, names: Collection[str]) -> dict[str, TopicInfo]:
        """Reads the present topics from the broker. Returns those that may be read.

        Raises:
            TopicNotFound: a topic does not exist, and it is not a known topic that is skipped.
            QueueTopicRecreated: a topic has another id than the topic of the known positions.
        """
        self._look_for_gone(names)
        infos = self._describe([name for name in names if name not in self._gone])
        for name, info in infos.items():
            expected = self._expected.get(name)
            if expected is not None and expected != info.topic_id:
                self._meet_anew(name, expected, info.topic_id)
        self.ids = {name: info.topic_id for name, info in infos.items()}
        self._expected |= self.ids
        return infos

    def remade(self, ids: Mapping[str, str]) -> frozenset[str]:
        """Returns the topics that have another id now than in ``ids``. Deleted topics are not among them."""
        return frozenset(name for name, was in ids.items() if self.ids.get(name, was) != was)

    def is_of_another(self, topic: str, cursor_id: str | None) -> bool:
        """True if a cursor belongs to a deleted topic and the present topic of that name is read anew.

        ``cursor_id`` is the topic id in the cursor, or None if the cursor has none.
        """
        if not self._begins_anew:
            return False
        return topic in self._recreated if cursor_id is None else cursor_id != self.ids.get(topic)

    def _look_for_gone(self, names: Collection[str]) -> None:
        """Detects deleted topics that were created again."""
        gone = self._gone.keys() & set(names)
        if not gone:
            return
        # A broker may list a deleted topic for a moment.
        for name, info in self._topics.existing(gone).items():
            if info.topic_id != self._gone[name]:
                self._expected[name] = self._gone.pop(name)

    def _describe(self, names: Collection[str]) -> dict[str, TopicInfo]:
        try:
            return self._topics.describe(names)
        except TopicNotFound as missing:
            gone = set(missing.topics)
            if not self._skips_deleted or not gone <= self._expected.keys():
                raise
        for name in sorted(gone):
            self._gone[name] = self._expected.pop(name)
            log.warning(
                "The queue topic was deleted, and its unacknowledged messages with it. "
                "event=queue_topic_deleted topic=%s subscription=%s",
                name,
                self._subscription,
            )
        return self._describe([name for name in names if name not in gone])

    def _meet_anew(self, name: str, was: str, now: str) -> None:
        if not self._begins_anew:
            raise QueueTopicRecreated(name, was, now)
        self._recreated.add(name)
        log.warning(
            "The queue topic was recreated. Unacknowledged messages of the earlier topic are "
            "lost, and the new topic is read from its beginning. event=queue_topic_recreated "
            "topic=%s subscription=%s was=%s now=%s",
            name,
            self._subscription,
            was,
            now,
        )


def check_same_topic(topic: str, stored_id: str | None, present_id: str | None) -> None:
    """Checks that a stored position belongs to the present topic. None: the id is unknown.

    Raises:
        QueueTopicRecreated: it belongs to a deleted topic of the same name.
    """
    if stored_id is not None and present_id is not None and stored_id != present_id:
        raise QueueTopicRecreated(topic, stored_id, present_id)
