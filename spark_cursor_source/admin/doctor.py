"""Examination of a cluster: what is wrong or will be, with the evidence and the command that cures it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from spark_cursor_source.admin.doctor_versions import version_findings
from spark_cursor_source.admin.findings import ERROR, INFO, WARNING, Finding
from spark_cursor_source.admin.stats import read_stats
from spark_cursor_source.consumer.tracker_watch import unread_markers
from spark_cursor_source.core.counted import counted
from spark_cursor_source.core.limits import NO_LIMITS
from spark_cursor_source.core.names import (
    DEFAULT_CURSORS_TOPIC,
    DEFAULT_MARKERS_TOPIC,
    DEFAULT_REDELIVERIES_TOPIC,
    DEFAULT_RESCUE_TOPIC,
    DEFAULT_STREAMS_TOPIC,
)
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.stats import Stats, SubscriptionStats
from spark_cursor_source.core.subscription_type import DEFAULT_GROUP_ID_PREFIX, group_id
from spark_cursor_source.errors import (
    InvalidArgument,
    LaterCursorVersion,
    NotAuthorized,
    TopicNotFound,
    UnknownQueueTopic,
    UnknownSubscription,
)
from spark_cursor_source.kafka import rights
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.error_codes import acl
from spark_cursor_source.topics.rescue import Rescue
from spark_cursor_source.topics.tracker_progress import read_progress

TRACKER_WAIT_MS = 5_000  #: how long a tracker may take to read waiting markers, before it counts as dead

#: what the rights of a principal can be checked for
ROLES = ("tracker", "consumer")

_GRANT = "kafka-acls.sh --add with the rights in the evidence, see how-to/permissions"
_SKEW_MS = 60_000  # larger differences of two clocks are reported
_NEAR = 0.8  # share of the retention that the oldest message has reached


def examine(
    kafka: Mapping[str, str],
    *,
    subscription: str | None = None,
    topic: str | None = None,
    role: str | None = None,
    markers_topic: str = DEFAULT_MARKERS_TOPIC,
    redeliveries_topic: str = DEFAULT_REDELIVERIES_TOPIC,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
    group_id_prefix: str = DEFAULT_GROUP_ID_PREFIX,
    tracker_wait_ms: int = TRACKER_WAIT_MS,
    rescue_topic: str = DEFAULT_RESCUE_TOPIC,
) -> tuple[Finding, ...]:
    """Returns what is wrong with the control topics, the tracker and the subscriptions, the worst first.

    The checks are: existence, settings and replication of the control topics; whether a tracker reads the
    markers; versions of the brokers, of Spark and of the stored records; unacked messages against the
    retention of their topic, by time and by size; clocks; and subscriptions without consumers, in a pause,
    with an open breaker, or with held dead letters. With ``role`` (``tracker`` or ``consumer``), the rights
    of this principal on the topics are checked for that role. The call changes nothing. It takes up to
    ``tracker_wait_ms`` longer if markers wait.

    A check that the principal has no right for is a finding too.

    Example::

        from spark_cursor_source.admin import examine

        for finding in examine({"bootstrap.servers": "broker:9092"}):
            print(finding.severity, finding.what, finding.cure)

    Raises:
        InvalidArgument: ``role`` is not one of these.
        UnknownSubscription, UnknownQueueTopic: the tracker has no cursor of that name.
        KafkaUnavailable, KafkaRefused
    """
    if role not in (None, *ROLES):
        raise InvalidArgument("role", role, f"it is neither {' nor '.join(ROLES)}")
    patient = _Patient(
        kafka,
        subscription=subscription,
        topic=topic,
        role=role,
        markers=markers_topic,
        redeliveries=redeliveries_topic,
        cursors=cursors_topic,
        prefix=group_id_prefix,
        wait_ms=tracker_wait_ms,
        rescue=rescue_topic,
    )
    found = dict.fromkeys(patient.findings())  # subscriptions of one topic may lack the same right
    order = (ERROR, WARNING, INFO)
    return tuple(sorted(found, key=lambda one: order.index(one.severity)))


class _Patient:
    """The cluster under examination, with what is known of it so far."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        *,
        subscription: str | None,
        topic: str | None,
        role: str | None,
        markers: str,
        redeliveries: str,
        cursors: str,
        prefix: str,
        wait_ms: int,
        rescue: str,
    ) -> None:
        self._kafka, self._subscription, self._topic, self._role = kafka, subscription, topic, role
        self._markers, self._redeliveries, self._cursors = markers, redeliveries, cursors
        self._prefix, self._wait_ms, self._rescue_topic = prefix, wait_ms, rescue
        self._rescue = Rescue(client_config(kafka, "consumer"), rescue, markers)
        config = client_config(kafka, "admin")
        self._servers = config.get("bootstrap.servers", "")
        self._topics = ClusterAdmin(config).meet()
        self._settings: dict[str, dict[str, str | None]] = {}
        self._there: set[str] = set()
        self._missing: set[str] = set()  # control topics; those in neither set may not be described

    def findings(self) -> Iterator[Finding]:
        control = (self._markers, self._redeliveries, self._cursors, self._rescue_topic)
        for name in control:
            yield from self._allowed("topics", partial(self._control_topic, name))
        for name in control:
            if name in self._there:
                yield from self._allowed("settings", partial(self._control_settings, name))
        yield from self._allowed("rights", self._rights)
        yield from self._allowed("replication", self._replication)
        yield from self._allowed("versions", self._versions)
        yield from self._allowed("tracker", self._tracker)
        yield from self._allowed("subscriptions", self._subscriptions)

    def _allowed(self, check: str, run: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
        """Yields the findings of a check; a missing right is one too."""
        try:
            yield from run()
        except NotAuthorized as denied:
            yield Finding(
                severity=WARNING,
                check=check,
                what=f"The check of {check} is not possible without a right",
                evidence=str(denied),
                cure=_GRANT,
            )

    # -- control topics --------------------------------------------------------------------------------

    def _control_topic(self, name: str) -> Iterator[Finding]:
        if self._topics.existing([name]):
            self._there.add(name)
            return
        self._missing.add(name)
        if name != self._rescue_topic:  # which few clusters need
            yield Finding(
                severity=ERROR,
                check="topics",
                what=f"The control topic {name} does not exist",
                evidence=f"the cluster at {self._servers} has no such topic",
                cure="cursorq topics --print shows the commands that create it; a tracker creates it too",
            )

    def _control_settings(self, topic: str) -> Iterator[Finding]:
        for name, setting, wanted, why in (
            (self._markers, "message.timestamp.type", "LogAppendTime", "times of leases would be wrong"),
            (self._cursors, "cleanup.policy", "compact", "cursors of idle subscriptions would be removed"),
            (self._markers, "cleanup.policy", "delete", "markers of one cell would replace each other"),
            (self._rescue_topic, "cleanup.policy", "compact", "rescued messages would be removed"),
        ):
            if name != topic:
                continue
            value = self._setting(name, setting)
            if value != wanted:
                yield Finding(
                    severity=ERROR,
                    check="settings",
                    what=f"{name} has an unsuitable {setting}: {why}",
                    evidence=f"{setting}={value}, needed is {wanted}",
                    cure=self._alter(name, f"{setting}={wanted}"),
                )
        if topic == self._markers and self._number(topic, "retention.bytes") >= 0:
            yield Finding(
                severity=WARNING,
                check="settings",
                what=f"{topic} has a limit of size: a burst removes unread markers",
                evidence=f"retention.bytes={self._setting(topic, 'retention.bytes')}, needed is -1",
                cure=self._alter(topic, "retention.bytes=-1"),
            )

    def _replication(self) -> Iterator[Finding]:
        for weak in self._topics.weak(self._there):
            yield Finding(
                severity=WARNING,
                check="replication",
                what=f"{weak.topic} can lose acknowledged records with one broker",
                evidence=f"replication {weak.replication}, min.insync.replicas {weak.min_insync}, "
                f"{weak.brokers} brokers",
                cure=weak.cure,
            )

    def _rights(self) -> Iterator[Finding]:
        if self._role is None:
            return
        queues = [self._topic] if self._topic is not None else []
        control = {
            "markers": self._markers,
            "redeliveries": self._redeliveries,
            "cursors": self._cursors,
        }
        wanted = (
            rights.of_tracker(**control)
            if self._role == "tracker"
            else rights.of_consumer(**control, streams=DEFAULT_STREAMS_TOPIC, queues=queues)
        )
        if self._rescue_topic in self._there:
            of_rescue = rights.of_rescue(self._rescue_topic)
            wanted |= (
                of_rescue if self._role == "tracker" else {self._rescue_topic: (rights.DESCRIBE, rights.READ)}
            )
        for missing in self._topics.missing_rights(wanted):
            yield Finding(
                severity=ERROR,
                check="rights",
                what=f"A right of a {self._role} is missing",
                evidence=missing,
                cure=f"kafka-acls.sh --bootstrap-server {self._servers} --add "
                f"--allow-principal User:<name> {missing}",
            )

    def _versions(self) -> Iterator[Finding]:
        markers = self._markers if self._markers in self._there else None
        yield from version_findings(self._kafka, self._topics, markers)

    # -- tracker ---------------------------------------------------------------------------------------

    def _tracker(self) -> Iterator[Finding]:
        if self._markers in self._missing:
            return
        yield from self._lost_markers()
        unread, positions = unread_markers(self._topics, self._markers)
        until = time.monotonic() + self._wait_ms / 1000
        while unread and time.monotonic() < until:
            time.sleep(0.2)
            unread, now = unread_markers(self._topics, self._markers)
            if now != positions:
                return
        if unread:
            progress = read_progress(self._topics, self._markers, stable=False)
            yield Finding(
                severity=ERROR,
                check="tracker",
                what="No tracker reads the markers, so nothing is redelivered",
                evidence=f"{counted(unread, 'unread marker')}, none was read for {self._wait_ms} ms; "
                f"last tracker: {progress.query_id or 'none'}",
                cure="cursorq tracker conf/tracker.toml, or start the tracker's query with its checkpoint",
            )

    def _lost_markers(self) -> Iterator[Finding]:
        positions = read_progress(self._topics, self._markers, stable=False).next_markers
        begins = self._topics.beginning_offsets((self._markers, number) for number in positions)
        lost = {number: begins[self._markers, number] - at for number, at in positions.items()}
        lost = {number: count for number, count in lost.items() if count > 0}
        if lost:
            yield Finding(
                severity=ERROR,
                check="retention",
                what="Retention removed markers that no tracker had read; their acks are lost",
                evidence=f"markers by partition of {self._markers}: {lost}",
                cure=self._alter(self._markers, "retention.ms=1209600000") + ", and keep the tracker running",
            )

    # -- subscriptions ---------------------------------------------------------------------------------

    def _subscriptions(self) -> Iterator[Finding]:
        if self._missing & {self._markers, self._cursors}:
            return
        try:
            stats = read_stats(
                self._kafka,
                subscription=self._subscription,
                topic=self._topic,
                markers_topic=self._markers,
                redeliveries_topic=self._redeliveries,
                cursors_topic=self._cursors,
                group_id_prefix=self._prefix,
            )
        except (UnknownSubscription, UnknownQueueTopic, NotAuthorized):
            raise
        except (LaterCursorVersion, TopicNotFound) as why:
            yield Finding(
                severity=ERROR,
                check="versions",
                what="The cursors cannot be read",
                evidence=str(why),
                cure="pip install --upgrade spark-cursor-source",
            )
            return
        yield from self._clocks(stats)
        for one in stats.subscriptions:
            yield from self._subscription_of(one)
        for trouble in stats.reappend_troubles:
            yield Finding(
                severity=ERROR,
                check="subscriptions",
                what=f"Messages cannot be appended to {trouble.topic} again",
                evidence=str(trouble),
                cure="mend the cause in the evidence; the tracker retries",
            )

    def _clocks(self, stats: Stats) -> Iterator[Finding]:
        now_ms = round(time.time() * 1000)
        newest = {one.topic: one.newest_ms for one in stats.subscriptions if one.newest_ms is not None}
        for topic, newest_ms in sorted(newest.items()):
            if newest_ms > now_ms + _SKEW_MS:
                yield Finding(
                    severity=WARNING,
                    check="clock",
                    what=f"A producer of {topic}, a broker or this machine has a wrong clock",
                    evidence=f"the newest timestamp is {(newest_ms - now_ms) / 1000:.0f} s after this "
                    "machine's time",
                    cure="timedatectl status on the producers, the brokers and this machine",
                )

    def _subscription_of(self, one: SubscriptionStats) -> Iterator[Finding]:
        name = f"{one.subscription} of {one.topic}"
        resume = f"cursorq resume --subscription {one.subscription} --topic {one.topic}"
        delete = (
            f"cursorq subscription delete --subscription {one.subscription}, which forgets all its topics"
        )

        def finding(severity: str, what: str, evidence: str, cure: str) -> Finding:
            return Finding(severity=severity, check="subscriptions", what=what, evidence=evidence, cure=cure)

        if one.end_trouble is not None:
            describe = f"kafka-topics.sh --bootstrap-server {self._servers} --describe --topic {one.topic}"
            cure = f"start the broker that {describe} names, or grant the right in the evidence"
            yield finding(ERROR, f"The log of {name} cannot be read", one.end_trouble, cure)
            if one.backlog is None:
                return
        if one.is_deleted:
            yield finding(
                WARNING,
                f"The topic of {name} was deleted",
                f"It left {counted(len(one.partitions), 'cursor')}. A new topic may have its name",
                f"leave it if the subscription has other topics; else {delete}",
            )
            return
        if one.oldest_trouble is not None:
            cure = "grant the right or start the broker in the evidence"
            yield finding(WARNING, f"The oldest message of {name} cannot be read", one.oldest_trouble, cure)
        if one.paused_ms is not None:
            yield finding(INFO, f"{name} is paused", f"since {one.paused_ms} ms", resume)
        if one.limits != NO_LIMITS:
            cure = f"cursorq limit --subscription {one.subscription} --rate none --max-outstanding none"
            yield finding(INFO, f"An operator limits {name}", one.limits.words(), cure)
        if one.trouble is not None:
            cure = f"mend the cause in the evidence, then {resume}"
            yield finding(ERROR, f"Dead letters of {name} cannot be written", one.trouble, cure)
        elif held := one.total("held"):
            yield finding(
                WARNING, f"The breaker of {name} is open", f"{counted(held, 'dead letter')} held", resume
            )
        if one.backlog and not one.consumers and (denied := self._hidden_group(one)):
            yield finding(INFO, f"The consumers of {name} are not visible to this principal", denied, _GRANT)
        elif one.backlog and not one.consumers:
            cure = f"start a consumer; or, if none of its topics needs it, {delete}"
            yield finding(WARNING, f"Nobody reads {name}", f"backlog {one.backlog}", cure)
        yield from self._allowed("retention", partial(self._retention, one))

    def _hidden_group(self, one: SubscriptionStats) -> str | None:
        """Returns the missing right to see the consumer group; None: it is there.

        Without this right, the brokers say that the group has no members.
        """
        group = group_id(self._prefix, one.subscription)
        try:
            self._topics.committed(group, [(one.topic, 0)])
        except NotAuthorized:
            return acl("Describe", group, "group")
        return None

    def _retention(self, one: SubscriptionStats) -> Iterator[Finding]:
        places = [(one.topic, part.cell.partition) for part in one.partitions if part.log_end is not None]
        begins = self._topics.known_beginnings(places)
        lost = {
            part.cell.partition: begin - part.mark_delete - 1
            for part in one.partitions
            if part.log_end is not None
            and part.outstanding
            and (begin := begins.get((one.topic, part.cell.partition), 0)) > part.mark_delete + 1
        }
        name = f"{one.subscription} of {one.topic}"
        rescued = self._rescued(one, begins)
        lost = {number: count for number, count in lost.items() if number not in rescued}
        if rescued:
            yield Finding(
                severity=INFO,
                check="retention",
                what=f"Retention has removed messages of {name}, which are in the rescue topic",
                evidence=f"copies by partition: {rescued}",
                cure="",
            )
        if lost:
            yield Finding(
                severity=ERROR,
                check="retention",
                what=f"Messages of {name} were removed before they were acked",
                evidence=f"offsets by partition: {lost}",
                cure=self._alter(one.topic, "retention.ms=<longer>"),
            )
        yield from self._retention_by_size(one, begins)
        keeps, age = self._setting(one.topic, "retention.ms"), one.oldest_unacked_age_ms
        if keeps is None or int(keeps) < 0 or age is None or age < _NEAR * int(keeps):
            return
        yield Finding(
            severity=INFO if self._rescue_topic in self._there else WARNING,
            check="retention",
            what=f"Retention will remove messages of {name} before they are acked",
            evidence=f"the oldest is {age // 1000} s old, and {one.topic} keeps {int(keeps) // 1000} s",
            cure=self._alter(one.topic, f"retention.ms={2 * max(age, int(keeps))}"),
        )

    def _rescued(self, one: SubscriptionStats, begins: Mapping[tuple[str, int], int]) -> dict[int, int]:
        """Returns the number of unacked messages that only the rescue topic has, by partition, where not 0.

        Messages that this subscription has acked, but another one has not, count too.
        """
        if self._rescue_topic not in self._there:
            return {}
        gone = {
            part.cell.partition: OffsetSet.of((part.mark_delete + 1, begins[one.topic, part.cell.partition]))
            for part in one.partitions
            if part.mark_delete + 1 < begins.get((one.topic, part.cell.partition), 0)
        }
        found = self._rescue.has(one.topic, gone)
        return {number: len(offsets) for number, offsets in found.items() if offsets}

    def _retention_by_size(
        self, one: SubscriptionStats, begins: Mapping[tuple[str, int], int]
    ) -> Iterator[Finding]:
        """Finds messages near the beginning of a log that Kafka shortens when it is too large."""
        if self._number(one.topic, "retention.bytes") < 0:
            return
        near = {}
        for part in one.partitions:
            begin, first = begins.get((one.topic, part.cell.partition), 0), part.mark_delete + 1
            # A log that begins at 0 has not been shortened, so it is not known when it will be.
            if part.log_end is None or not 0 < begin <= first < part.log_end:
                continue
            left = (first - begin) / (part.log_end - begin)
            if left < 1 - _NEAR:
                near[part.cell.partition] = f"{left:.0%}"
        if near:
            keeps = self._number(one.topic, "retention.bytes")
            yield Finding(
                severity=WARNING,
                check="retention",
                what=f"Retention by size will remove messages of {one.subscription} of {one.topic} "
                "before they are acked",
                evidence=f"part of the log before the oldest unacked message, by partition: {near}; "
                f"retention.bytes={keeps}",
                cure=self._alter(one.topic, f"retention.bytes={2 * keeps}"),
            )

    # -- helpers ---------------------------------------------------------------------------------------

    def _setting(self, topic: str, name: str) -> str | None:
        if topic not in self._settings:
            self._settings[topic] = self._topics.settings(topic)
        return self._settings[topic].get(name)

    def _number(self, topic: str, name: str) -> int:
        """Returns a setting that is a number; -1: it has no value."""
        return int(self._setting(topic, name) or -1)

    def _alter(self, topic: str, setting: str) -> str:
        return (
            f"kafka-configs.sh --bootstrap-server {self._servers} --alter --entity-type topics "
            f"--entity-name {topic} --add-config {setting}"
        )
