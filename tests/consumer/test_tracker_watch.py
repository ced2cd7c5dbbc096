"""A tracker that ends while queries run is missed by them."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, AclPermissionType, AdminClient, ResourceType

from spark_cursor_source.admin.stats import read_stats
from spark_cursor_source.consumer import tracker_watch
from spark_cursor_source.consumer.session import TrackerAddress
from spark_cursor_source.consumer.tracker_watch import TrackerWatch
from spark_cursor_source.core.marker import End
from spark_cursor_source.core.stats import Stats
from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.errors import NotAuthorized, TrackerSilent
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.topics.tracker_progress import unread_partitions
from tests.kafka.control_plane import (
    PARTITIONS,
    Control,
    bind_bob,
    cell_of,
    login,
    new_control,
    offsets,
    outbox_of,
)
from tests.logged import names
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


def write_marker(control: Control) -> None:
    sender = MarkerSender(control.config, control.markers, PARTITIONS)
    sender.send([End(cell=cell_of(control.queue), offsets=offsets((0, 1)))])
    sender.flush()
    sender.close()


def test_a_tracker_that_reads_no_more_is_told_once_and_so_is_its_return(
    control: Control, caplog: pytest.LogCaptureFixture
) -> None:
    # one marker is read   the tracker ends   another marker   silence   a tracker reads it
    outbox = outbox_of(control)
    outbox.open(take_over=False)
    home = cell_of(control.queue).control_partition(PARTITIONS)
    address = TrackerAddress(**control.topics, timeout_ms=1_000)
    watch = TrackerWatch(ClusterAdmin(control.config), address)

    def looks() -> int | None:
        watch.look()
        return watch.silent_ms

    with caplog.at_level("INFO", tracker_watch.__name__):
        write_marker(control)
        outbox.carry_out(0, decisions=[], cursors=[], next_markers={home: 1})
        assert unread(control) == 0
        assert looks() is None
        write_marker(control)
        assert unread(control) == 1
        wait_until(lambda: looks() is not None)
        assert (looks() or 0) >= 1_000
        outbox.carry_out(1, decisions=[], cursors=[], next_markers={home: 2})
        wait_until(lambda: looks() is None)
    outbox.close()
    assert names(caplog.records) == ["tracker_silent", "tracker_resumed"]


def test_a_query_that_is_not_to_go_on_without_a_tracker_ends_with_an_error(control: Control) -> None:
    # a marker that nobody reads | half a second of that
    write_marker(control)
    address = TrackerAddress(**control.topics, timeout_ms=60_000)
    watch = TrackerWatch(ClusterAdmin(control.config), address, fail_ms=500)

    with pytest.raises(TrackerSilent, match="option failWithoutTracker") as raised:
        wait_until(lambda: bool(watch.look()))
    assert raised.value.waited_ms >= 500


def test_a_marker_behind_an_open_transaction_waits_and_no_tracker_could_have_read_it(
    control: Control,
) -> None:
    # a marker that is read | another program's transaction | a marker | the transaction ends
    topics, home = ClusterAdmin(control.config), cell_of(control.queue).control_partition(PARTITIONS)
    write_marker(control)
    outbox = outbox_of(control)
    outbox.open(take_over=False)
    outbox.carry_out(0, decisions=[], cursors=[], next_markers={home: 1})
    outbox.close()
    stranger = Producer({**control.config, "transactional.id": control.queue})
    stranger.init_transactions(30)
    stranger.begin_transaction()
    stranger.produce(control.markers, b"value", partition=home)
    stranger.flush()
    write_marker(control)
    # A resume must end a pause that waits here. A tracker that reads is not silent because of it.
    assert unread_partitions(topics, control.markers) == {home}
    assert unread(control) == 0
    stranger.abort_transaction(30)
    wait_until(lambda: unread(control))
    assert unread_partitions(topics, control.markers) == {home}


def unread(control: Control) -> int | None:
    stats = read_stats(
        control.config,
        **control.topics,
        redeliveries_topic=control.redeliveries,
    )
    return stats.markers_unread


def test_stats_tell_of_unread_markers() -> None:
    assert Stats(subscriptions=(), markers_unread=7).to_text().startswith("tracker: 7 markers unread")
    assert Stats(subscriptions=(), markers_unread=0).to_text() == ""


def test_a_query_that_may_not_see_the_tracker_s_group_is_told_once_and_goes_on(
    guarded_broker: EmbeddedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    servers = {"bootstrap.servers": guarded_broker.bootstrap_servers}
    control = new_control(servers | login("admin", "of-admin"))
    admin = AdminClient(control.config)
    bind_bob(admin, ResourceType.TOPIC, control.markers, AclOperation.DESCRIBE, AclPermissionType.ALLOW)
    address = TrackerAddress(**control.topics, timeout_ms=1_000)
    topics = ClusterAdmin(servers | login("bob", "of-bob"))
    watch = TrackerWatch(topics, address)
    with caplog.at_level("INFO", tracker_watch.__name__):
        for _ in range(3):
            watch.look()
            time.sleep(0.1)
    assert names(caplog.records) == ["tracker_not_watched"]
    with pytest.raises(NotAuthorized, match="cursorq-tracker"):
        TrackerWatch(topics, address, fail_ms=500).look()
