"""A broker that is behind: it denies once what exists."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark_cursor_source.kafka import admin
from spark_cursor_source.kafka.control_topics import describe_topics


def deny_once(monkeypatch: pytest.MonkeyPatch, topic: str, *, below: int = 0) -> None:
    """The first description of a topic shows only its partitions below a number; 0: no topic."""
    asked: list[str] = []

    def describe(calls: Any, topics: Any, **more: Any) -> Any:
        found, missing = describe_topics(calls, topics, **more)
        if topic in topics and not asked:
            asked.append(topic)
            partitions = found.pop(topic).partitions[:below]
            if not partitions:
                return found, (*missing, topic)
            found[topic] = SimpleNamespace(topic_id="", partitions=partitions)
        return found, missing

    monkeypatch.setattr(admin, "describe_topics", describe)
