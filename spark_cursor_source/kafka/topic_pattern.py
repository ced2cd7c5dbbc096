"""Topics of a cluster that the option subscribePattern selects."""

from __future__ import annotations

from spark_cursor_source.options.topic_pattern import compile_topic_pattern

#: Kafka's internal topics, which Java's consumer also excludes from patterns
INTERNAL_TOPICS = frozenset(
    {"__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state"}
)


def matching_topics(pattern: str, topics: list[str]) -> list[str]:
    """Return the matching topics, sorted, without Kafka's internal topics."""
    compiled = compile_topic_pattern(pattern)
    return sorted(name for name in topics if name not in INTERNAL_TOPICS and compiled.fullmatch(name))
