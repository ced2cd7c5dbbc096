"""A queue partition that ends before where a query goes on: said, and not waited out in silence."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from spark_cursor_source.consumer import source_topics as queue_view
from spark_cursor_source.consumer.source_topics import SourceTopics
from spark_cursor_source.core.batch import SourceOffset
from spark_cursor_source.errors import QueueTopicEndsEarlier
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.options.source import SourceOptions
from tests.kafka.control_plane import produce

pytestmark = pytest.mark.broker


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader is believed after this time."""
    monkeypatch.setattr(queue_view, "_BEHIND_MS", 600)


@pytest.fixture
def make_view(
    config: dict[str, str], topics: ClusterAdmin, create_topic: Callable[..., str]
) -> Iterator[Callable[..., tuple[SourceTopics, str]]]:
    """The view of a query that stands at the end of a topic with three messages, and the topic."""
    opened: list[SourceTopics] = []

    def make(**more: str) -> tuple[SourceTopics, str]:
        topic = create_topic()
        produce(config, topic, [{"value": b"x"}] * 3)
        servers = {"kafka.bootstrap.servers": config["bootstrap.servers"]}
        options = SourceOptions.parse({**servers, "subscribe": topic, "subscription": "s", **more})
        view = SourceTopics(options, topics)
        opened.append(view)
        view.resume(SourceOffset(queue={(topic, 0): 3}, redeliveries={}))
        return view, topic

    yield make
    for view in opened:
        view.close()


def test_an_end_that_an_election_has_lost_fails_the_query(
    make_view: Callable[..., tuple[SourceTopics, str]],
) -> None:
    view, topic = make_view()
    view.watch_ends({(topic, 0): 3}, {(topic, 0): 3})
    # As after an election of a replica without the last two: they were delivered, and are not there.
    with pytest.raises(
        QueueTopicEndsEarlier,
        match=r"ends at offset 3, before the position 5 .*"
        r"set failOnDataLoss=false to continue",
    ):
        view.watch_ends({(topic, 0): 5}, {(topic, 0): 3})


def test_a_leader_that_is_behind_for_a_moment_is_waited_for(
    make_view: Callable[..., tuple[SourceTopics, str]],
) -> None:
    view, topic = make_view()
    view.watch_ends({(topic, 0): 3}, {(topic, 0): 2})


def test_where_loss_may_be_it_is_logged_once_and_reading_goes_on(
    make_view: Callable[..., tuple[SourceTopics, str]], caplog: pytest.LogCaptureFixture
) -> None:
    view, topic = make_view(failOnDataLoss="false")
    caplog.set_level(logging.WARNING)
    began = time.monotonic()
    for _ in range(20):
        view.watch_ends({(topic, 0): 5}, {(topic, 0): 3})
    assert time.monotonic() - began < 40, "the query waits once, not at every question"
    assert caplog.text.count("queue_ends_earlier") == 1
    view.watch_ends({(topic, 0): 6}, {(topic, 0): 3})
    assert caplog.text.count("queue_ends_earlier") == 2


def test_a_query_that_starts_beyond_the_end_goes_on_where_loss_may_be(
    make_view: Callable[..., tuple[SourceTopics, str]], caplog: pytest.LogCaptureFixture
) -> None:
    view, topic = make_view(failOnDataLoss="false")
    view.resume(SourceOffset(queue={(topic, 0): 9}, redeliveries={}))
    assert f"Topic '{topic}' partition 0 ends at offset 3" in caplog.text


def test_a_new_subscription_that_would_start_beyond_the_end_starts_there_where_loss_may_be(
    config: dict[str, str],
    topics: ClusterAdmin,
    create_topic: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = create_topic(partitions=3)
    produce(config, topic, [{"value": b"x", "partition": number} for number in (0, 1, 2)])
    given = {
        "kafka.bootstrap.servers": config["bootstrap.servers"],
        "subscribe": topic,
        "subscription": "s",
        "startingOffsets": json.dumps({topic: {"0": 1, "1": 9, "2": -1}}),
        "failOnDataLoss": "false",
    }
    with closing(SourceTopics(SourceOptions.parse(given), topics)) as view:
        view.refresh()
        found = view.starting_positions(list(view.partitions))
    assert found == {(topic, number): 1 for number in range(3)}
    assert caplog.text.count("event=start_beyond_end") == 1
    assert f"topic={topic} partition=1 given=9 end=1" in caplog.text
