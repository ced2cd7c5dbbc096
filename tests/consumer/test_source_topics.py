"""Queue topics that are deleted while a query, or its checkpoint, knows them."""

from __future__ import annotations

import uuid
from contextlib import closing

import pytest

from spark_cursor_source.consumer.source_topics import SourceTopics
from spark_cursor_source.core.batch import SourceOffset
from spark_cursor_source.errors import QueueTopicRecreated, TopicNotFound
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.options.source import SourceOptions
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


def view_of(config: dict[str, str], topics: ClusterAdmin, **options: str) -> SourceTopics:
    kafka = {f"kafka.{name}": value for name, value in config.items()}
    given = {"subscription": "s", "streamsTopic": f"streams-{uuid.uuid4().hex[:8]}", **options}
    return SourceTopics(SourceOptions.parse(kafka | given), topics)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_topic_that_is_deleted_is_left_out_where_loss_is_no_failure(
    config: dict[str, str], topics: ClusterAdmin, by_name: bool, caplog: pytest.LogCaptureFixture
) -> None:
    # two topics | one is deleted while the query runs | the query begins again from its checkpoint
    name = uuid.uuid4().hex[:8]
    kept, gone = f"{name}-kept", f"{name}-gone"
    topics.create({kept: (2, {}), gone: (1, {})})
    read = {"subscribe": f"{kept},{gone}"} if by_name else {"subscribePattern": f"{name}-.*"}
    with closing(view_of(config, topics, failOnDataLoss="false", **read)) as view:
        view.refresh()
        assert len(view.partitions) == 3
        checkpoint = SourceOffset(
            queue=dict.fromkeys(view.partitions, 0), redeliveries={}, topic_ids=dict(view.topic_ids)
        )
        topics.delete(gone)
        for _ in range(2):
            view.refresh()
            assert view.partitions == ((kept, 0), (kept, 1))
    with closing(view_of(config, topics, failOnDataLoss="false", **read)) as view:
        view.resume(checkpoint)
        assert view.partitions == ((kept, 0), (kept, 1))
    assert caplog.text.count("queue_topic_deleted") == 2
    with closing(view_of(config, topics, **read)) as view, pytest.raises(TopicNotFound, match=gone):
        view.resume(checkpoint)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_topic_that_is_no_longer_selected_is_not_read_and_not_missed(
    config: dict[str, str], topics: ClusterAdmin, by_name: bool
) -> None:
    # two topics | the query begins again with one of them | the other is deleted
    name = uuid.uuid4().hex[:8]
    kept, left = f"{name}-kept", f"{name}-left"
    topics.create({kept: (2, {}), left: (1, {})})
    ids = {one.name: one.topic_id for one in topics.describe([kept, left]).values()}
    checkpoint = SourceOffset(queue={(kept, 0): 0, (left, 0): 0}, redeliveries={}, topic_ids=ids)
    read = {"subscribe": kept} if by_name else {"subscribePattern": f"{name}-k.*"}
    with closing(view_of(config, topics, **read)) as view:
        view.resume(checkpoint)
        assert view.partitions == ((kept, 0), (kept, 1))
        topics.delete(left)
        view.refresh()
        assert view.partitions == ((kept, 0), (kept, 1))


def test_a_topic_that_is_created_again_is_met_anew_where_loss_is_no_failure(
    config: dict[str, str], topics: ClusterAdmin, caplog: pytest.LogCaptureFixture
) -> None:
    # read to 7 | deleted | looked at | created again | looked at; and the same from the checkpoint
    name = uuid.uuid4().hex[:8]
    topics.create({name: (2, {})})
    with closing(view_of(config, topics, failOnDataLoss="false", subscribe=name)) as view:
        view.refresh()
        was = view.topic_ids[name]
        checkpoint = SourceOffset(queue={(name, 0): 7}, redeliveries={}, topic_ids={name: was})
        topics.delete(name)
        view.refresh()
        assert view.partitions == ()
        topics.create({name: (1, {})})
        wait_until(lambda: view.refresh() or view.partitions == ((name, 0),))
        assert view.topic_ids[name] != was
        assert view.here(checkpoint).queue == {}
        assert view.is_of_another(name, was)
        assert not view.is_of_another(name, view.topic_ids[name])
    with closing(view_of(config, topics, failOnDataLoss="false", subscribe=name)) as view:
        view.resume(checkpoint)
        assert view.partitions == ((name, 0),)
        assert view.is_of_another(name, None), "a cursor that tells no id is older"
    assert caplog.text.count("queue_topic_recreated") == 2
    with (
        closing(view_of(config, topics, subscribe=name)) as view,
        pytest.raises(QueueTopicRecreated, match="failOnDataLoss=false"),
    ):
        view.resume(checkpoint)


def test_a_topic_that_was_never_there_is_missed_in_any_case(
    config: dict[str, str], topics: ClusterAdmin
) -> None:
    name = uuid.uuid4().hex[:8]
    with (
        closing(view_of(config, topics, failOnDataLoss="false", subscribe=name)) as view,
        pytest.raises(TopicNotFound, match=name),
    ):
        view.refresh()
