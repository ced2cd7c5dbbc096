"""Parts of one run of a query, which its phases share."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from spark_cursor_source.consumer.assignment import PartitionAssignment
from spark_cursor_source.consumer.key_order import KeyOrder
from spark_cursor_source.consumer.lost_members import LostMembers
from spark_cursor_source.consumer.membership import Membership
from spark_cursor_source.consumer.pending import PlannedRedeliveries
from spark_cursor_source.consumer.progress import GroupProgress, group_config
from spark_cursor_source.consumer.session import TrackerAddress, TrackerSession
from spark_cursor_source.consumer.source_topics import SourceTopics
from spark_cursor_source.consumer.tracker_watch import TrackerWatch
from spark_cursor_source.consumer.unread import UnreadMessages
from spark_cursor_source.core.batch import SourceOffset
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.append_watch import AppendWatch
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS
from spark_cursor_source.kafka.rights import DESCRIBE, READ, of_consumer
from spark_cursor_source.options.source import Ordering, SourceOptions
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.topics.redeliveries import RedeliveryLog
from spark_cursor_source.topics.redelivery_partitions import RedeliveryPartitions


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """Clients, topics and group membership of one run. The state of a part is written by that part only."""

    options: SourceOptions
    topics: ClusterAdmin
    queue: SourceTopics
    cursors: CursorTable
    markers: MarkerSender
    membership: Membership
    group: GroupProgress
    session: TrackerSession
    tracker: TrackerWatch
    assignment: PartitionAssignment
    pending: PlannedRedeliveries
    unread: UnreadMessages
    appends: AppendWatch
    key_order: KeyOrder | None  #: None: the messages of a key have no order
    lost_members: LostMembers | None  #: None: leases of lost members run out

    @classmethod
    def of(cls, options: SourceOptions) -> RunParts:
        """Returns the parts of a new run, connected to the brokers. The control topics exist then.

        Raises:
            NotAuthorized: a right is missing that the query needs.
            KafkaUnavailable, KafkaRefused, TopicNotFound
        """
        topics = ClusterAdmin(client_config(options.kafka, "admin"), timeout_ms=PATIENCE_MS).meet()
        # Checked before the first delivery. A right found missing later would stop the query halfway.
        rights = of_consumer(
            markers=options.markers_topic,
            redeliveries=options.redeliveries_topic,
            cursors=options.cursors_topic,
            streams=options.streams_topic,
            queues=options.topics.names,
        )
        if options.ordering is Ordering.KEY:
            rights[options.markers_topic] += (READ,)
        topics.check_rights(rights, group=options.group)
        control = topics.ensure_control(
            markers=options.markers_topic,
            redeliveries=options.redeliveries_topic,
            cursors=options.cursors_topic,
        )
        producing, consuming = (client_config(options.kafka, role) for role in ("producer", "consumer"))
        markers = MarkerSender(producing, options.markers_topic, control.markers)
        markers.connect()  # while the group forms
        own = options.subscription
        cursors = CursorTable(consuming, options.cursors_topic, timeout_ms=PATIENCE_MS, subscription=own)
        queue = SourceTopics(options, topics)
        run_id = uuid.uuid4().hex
        membership = group_config(options, topics, run_id)
        group = GroupProgress(topics, membership, options.group)
        address = TrackerAddress(
            markers_topic=options.markers_topic,
            cursors_topic=options.cursors_topic,
            timeout_ms=options.tracker_timeout_ms,
        )
        session = TrackerSession(run_id, address, cursors, markers.write)
        assignment = PartitionAssignment(options, queue, membership, group, session, cursors)
        lost = LostMembers.of(options.on_member_lost, cursors, session, membership, markers.write)
        announcements = RedeliveryLog(consuming, options.redeliveries_topic, subscription=own)
        places = RedeliveryPartitions(topics, options.redeliveries_topic)
        return cls(
            options=options,
            topics=topics,
            queue=queue,
            cursors=cursors,
            markers=markers,
            membership=membership,
            group=group,
            session=session,
            tracker=TrackerWatch(
                topics, address, fail_ms=options.fail_without_tracker_ms, answers_first=True
            ),
            assignment=assignment,
            pending=PlannedRedeliveries(announcements, places, assignment, session),
            unread=UnreadMessages(options, topics, run_id, partitions=control.redeliveries),
            appends=AppendWatch(consuming),
            key_order=KeyOrder.of(options, session, cursors, partitions=control.markers),
            lost_members=lost,
        )

    def here(self, offset: SourceOffset) -> SourceOffset:
        """Returns the offset without positions of topics that were deleted or created again."""
        return self.queue.here(self.pending.here(offset))

    def check_queue_rights(self) -> None:
        """Checks the rights to the queue topics, also to those that a subscribe pattern has matched.

        Raises:
            NotAuthorized: a right is missing.
        """
        self.topics.check_rights(dict.fromkeys(self.queue.topic_ids, (DESCRIBE, READ)))

    def close(self) -> None:
        """Leaves the group and closes the clients."""
        self.membership.close()
        self.markers.close()
        self.cursors.close()
        self.pending.close()
        self.unread.close()
        self.queue.close()
        self.appends.close()
        if self.key_order is not None:
            self.key_order.close()
