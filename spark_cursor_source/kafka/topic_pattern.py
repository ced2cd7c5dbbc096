"""The topics of a cluster that the option subscribePattern selects."""

from __future__ import annotations

from spark_cursor_source.options.topic_pattern import compile_topic_pattern

#: topics of the brokers' own, which Java's consumer leaves out of patterns too
INTERNAL_TOPICS = frozenset(
    {"__cluster_metadata", "__consumer_offsets", "__share_group_state", "__transaction_state"}
)


def matching_topics(pattern: str, topics: list[str]) -> list[str]:
    """Those of the topics that match, sorted, without the brokers' own."""
    compiled = compile_topic_pattern(pattern)
    return sorted(name for name in topics if name not in INTERNAL_TOPICS and compiled.fullmatch(name))
