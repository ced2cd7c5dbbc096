"""Names of the control topics and groups of one tracker, as functions of operators take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from spark_cursor_source.core.names import (
    DEFAULT_CURSORS_TOPIC,
    DEFAULT_MARKERS_TOPIC,
    DEFAULT_REDELIVERIES_TOPIC,
)
from spark_cursor_source.core.subscription_type import DEFAULT_GROUP_ID_PREFIX


class TrackerTopics(TypedDict):
    """Keyword arguments of functions that talk to the tracker."""

    markers_topic: str
    cursors_topic: str


class AllNames(TrackerTopics):
    """Keyword arguments of functions that read the state of everything."""

    redeliveries_topic: str
    group_id_prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlNames:
    """Names of the control topics, and the prefix of the consumer groups.

    >>> ControlNames(cursors_topic="cursors").tracker_topics
    {'markers_topic': '__cursorq_markers', 'cursors_topic': 'cursors'}
    """

    markers_topic: str = DEFAULT_MARKERS_TOPIC
    redeliveries_topic: str = DEFAULT_REDELIVERIES_TOPIC
    cursors_topic: str = DEFAULT_CURSORS_TOPIC
    group_id_prefix: str = DEFAULT_GROUP_ID_PREFIX

    @property
    def tracker_topics(self) -> TrackerTopics:
        """The markers topic and the cursors topic."""
        return {"markers_topic": self.markers_topic, "cursors_topic": self.cursors_topic}

    @property
    def names(self) -> AllNames:
        """All names."""
        return {
            **self.tracker_topics,
            "redeliveries_topic": self.redeliveries_topic,
            "group_id_prefix": self.group_id_prefix,
        }
