"""The rule for queue topics that are deleted or created again, for each kind of consumer."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from spark_cursor_source.consumer.known_topics import KnownTopics, check_same_topic
from spark_cursor_source.errors import QueueTopicRecreated, TopicNotFound
from spark_cursor_source.kafka.admin import TopicInfo


class Topics:
    """The present topics, each with its id."""

    def __init__(self, **ids: str) -> None:
        self.ids = ids

    def existing(self, topics: Collection[str]) -> dict[str, TopicInfo]:
        return {
            name: TopicInfo(name=name, topic_id=self.ids[name], partitions=1)
            for name in topics
            if name in self.ids
        }

    def describe(self, topics: Collection[str]) -> dict[str, TopicInfo]:
        if missing := tuple(name for name in topics if name not in self.ids):
            raise TopicNotFound(missing)
        return self.existing(topics)


@pytest.mark.parametrize("from_checkpoint", [False, True])
@pytest.mark.parametrize("skips_deleted", [False, True])
def test_a_recreated_topic_is_an_error_where_nothing_begins_anew(
    skips_deleted: bool, from_checkpoint: bool
) -> None:
    topics = Topics(orders="1")
    known = KnownTopics(topics, subscription="s", skips_deleted=skips_deleted)
    if from_checkpoint:
        known.expect({"orders": "1"})
    else:
        known.refresh(["orders"])
    topics.ids["orders"] = "2"
    for _ in range(2):
        with pytest.raises(QueueTopicRecreated, match="its id was 1 and is 2"):
            known.refresh(["orders"])
    assert not known.is_of_another("orders", "1")


def test_a_recreated_topic_whose_deletion_was_seen_is_an_error_where_nothing_begins_anew() -> None:
    # present | deleted: skipped | created again: an error, because the positions belong to the deleted topic
    topics = Topics(orders="1")
    known = KnownTopics(topics, subscription="s", skips_deleted=True)
    known.refresh(["orders"])
    del topics.ids["orders"]
    assert known.refresh(["orders"]) == {}
    topics.ids["orders"] = "2"
    for _ in range(2):
        with pytest.raises(QueueTopicRecreated, match="its id was 1 and is 2"):
            known.refresh(["orders"])


@pytest.mark.parametrize("deletion_seen", [False, True])
def test_a_recreated_topic_is_read_anew_where_that_is_allowed(
    deletion_seen: bool, caplog: pytest.LogCaptureFixture
) -> None:
    topics = Topics(orders="1", others="7")
    known = KnownTopics(topics, subscription="s", skips_deleted=True, begins_anew=True)
    before = {name: info.topic_id for name, info in known.refresh(["orders", "others"]).items()}
    if deletion_seen:
        del topics.ids["orders"]
        assert list(known.refresh(["orders", "others"])) == ["others"]
    topics.ids["orders"] = "2"
    assert sorted(known.refresh(["orders", "others"])) == ["orders", "others"]
    assert known.ids == {"orders": "2", "others": "7"}
    assert known.remade(before) == {"orders"}
    assert known.is_of_another("orders", "1")
    assert not known.is_of_another("orders", "2")
    assert known.is_of_another("orders", None), "a cursor without an id is older than the new topic"
    assert not known.is_of_another("others", None)
    known.refresh(["orders", "others"])
    assert caplog.text.count("event=queue_topic_recreated") == 1


def test_a_deleted_topic_that_the_broker_still_lists_stays_deleted() -> None:
    topics = Topics(orders="1")
    known = KnownTopics(topics, subscription="s", skips_deleted=True, begins_anew=True)
    known.refresh(["orders"])
    del topics.ids["orders"]
    known.refresh(["orders"])
    topics.ids["orders"] = "1"
    assert known.refresh(["orders"]) == {}


def test_a_deleted_topic_is_an_error_where_loss_is_not_allowed() -> None:
    topics = Topics(orders="1")
    known = KnownTopics(topics, subscription="s")
    known.refresh(["orders"])
    topics.ids.clear()
    with pytest.raises(TopicNotFound, match="orders"):
        known.refresh(["orders"])


def test_a_topic_that_was_never_known_is_missed_in_any_case() -> None:
    known = KnownTopics(Topics(), subscription="s", skips_deleted=True, begins_anew=True)
    with pytest.raises(TopicNotFound, match="orders"):
        known.refresh(["orders"])


def test_a_stored_position_of_another_topic_is_an_error_and_an_unknown_id_is_none() -> None:
    with pytest.raises(QueueTopicRecreated, match="its id was 1 and is 2"):
        check_same_topic("orders", "1", "2")
    check_same_topic("orders", "1", "1")
    check_same_topic("orders", None, "2")
    check_same_topic("orders", "1", None)
