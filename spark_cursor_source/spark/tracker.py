"""The tracker as a streaming query: reads markers and writes redeliveries, cursors and dead letters."""

from __future__ import annotations

import atexit
import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_cursor_source.core.duration import format_duration
from spark_cursor_source.core.policy import RedeliveryPolicy
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.options.reappend import Redelivery
from spark_cursor_source.options.tracker import NONE, TrackerOptions
from spark_cursor_source.spark.classic import gateway_of, recognizable_stop
from spark_cursor_source.spark.redaction import hide_secrets
from spark_cursor_source.spark.shuffle import SHUFFLE_PARTITIONS, limit_shuffle_partitions
from spark_cursor_source.spark.tracker_source import POLICIES, SUBSCRIPTIONS, MarkerDataSource
from spark_cursor_source.spark.tracker_state import TrackerProcessor
from spark_cursor_source.spark.worker_python import check_worker_python
from spark_cursor_source.tracker.decisions import DecisionLog, carry_out
from spark_cursor_source.tracker.outbox import Outbox
from spark_cursor_source.tracker.rows import DECIDED_DDL, DecidedRow

STATE_CONF = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
STATE_PARTITIONS = 4  #: shuffle partitions of a new tracker, unless the session has fewer


def start_tracker(spark: SparkSession, options: Mapping[str, object]) -> StreamingQuery:
    """Starts the tracker of a markers topic. One tracker serves all subscriptions that share the topic.

    The tracker runs in its own session, so that its settings (RocksDB state, few state partitions) do not
    affect other queries. With ``trigger=availableNow`` the query ends when it has read the markers that were
    there at its start, and has executed what is due then. ``options`` are the options of the tracker, flat or
    nested as in a TOML file. The brokers and ``checkpointLocation`` are required.

    Returns the running query; ``stop()`` ends it. The query ends with TrackerOwnedByAnother or
    TrackerProgressLost if another tracker owns this markers topic, see ``takeOver``.

    Example::

        import spark_cursor_source as cursorq

        kafka = {"kafka.bootstrap.servers": "broker:9092"}
        tracker = cursorq.start_tracker(spark, kafka | {"checkpointLocation": "/checkpoints/tracker"})
        tracker.stop()

    Raises:
        UnknownOption, InvalidOption, MissingOption, ConflictingOptions, RefusedKafkaOption: an option is not
            valid. A running tracker of this checkpoint continues.
        PythonWithoutPackage: Spark would start a Python without this package.
    """
    parsed = TrackerOptions.parse(options)
    client_config(parsed.kafka, "producer")  # raises for invalid Kafka options before the query starts
    check_worker_python(spark)
    _close_ended()
    session = own_session(spark)
    hide_secrets(session)
    for name, value in STATE_CONF.items():
        session.conf.set(name, value)
    limit_shuffle_partitions(session, STATE_PARTITIONS)
    session.dataSource.register(MarkerDataSource)
    markers = session.readStream.format(MarkerDataSource.name()).options(**_source_options(parsed)).load()
    decided = markers.groupBy("markers_partition").transformWithState(
        statefulProcessor=TrackerProcessor(_Policies(parsed)),
        outputStructType=DECIDED_DDL,
        outputMode="Update",
        timeMode="None",
    )
    batches = TrackerBatch(parsed)
    writer = (
        decided.writeStream.queryName(f"cursorq-tracker-{parsed.markers_topic}")
        .outputMode("update")
        .option("checkpointLocation", parsed.checkpoint_location)
        .foreachBatch(batches)
    )
    if parsed.trigger_ms is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{parsed.trigger_ms} milliseconds")
    query = writer.start()
    _started.append((query, batches))
    return query


def own_session(spark: SparkSession) -> SparkSession:
    """Returns a session with settings of its own. Spark Connect has ``newSession`` from Spark 4.3 on."""
    new = getattr(spark, "newSession", None)
    if new is None:
        spark.conf.get(SHUFFLE_PARTITIONS)  # a server clones only a session that has asked before
        new = spark.cloneSession  # type: ignore[attr-defined]
    own: SparkSession = new()
    if gateway_of(own) is None:
        # The client of a session calls the server when Python ends, and waits minutes for one that is gone.
        # What is registered last runs first.
        atexit.register(_close_with, own, spark)
    return own


def _close_with(own: Any, spark: Any) -> None:
    """Closes a session of Spark Connect without a call, if the session that it was made of is stopped."""
    if spark.is_stopped:
        own.client.close()


_started: list[tuple[StreamingQuery, TrackerBatch]] = []  # trackers started by this process


def _close_ended() -> None:
    """Closes the clients of ended trackers. A driver that restarts its tracker would otherwise leak them."""
    for query, batches in list(_started):
        ended = True
        with suppress(Exception):  # the session of the query may be gone
            ended = not query.isActive
        if ended:
            _started.remove((query, batches))
            batches.close()


class TrackerBatch:
    """ForeachBatch function of the tracker: executes the decisions of a batch."""

    def __init__(self, options: TrackerOptions) -> None:
        self._options = options
        self._outbox: Outbox | None = None
        self._log = DecisionLog()
        self._lock = threading.Lock()  # close() waits for a running batch, which needs its clients

    def __reduce__(self) -> tuple[type[TrackerBatch], tuple[TrackerOptions]]:
        # Spark Connect pickles this function to the process that executes batches.
        return TrackerBatch, (self._options,)

    def __call__(self, decided: DataFrame, batch_id: int) -> None:
        """Executes one micro-batch. Spark calls this foreachBatch function."""
        with self._lock, recognizable_stop(decided):
            try:
                self._carry_out(decided, batch_id)
            except BaseException:
                self._close()  # the query fails now, and a new query opens its own clients
                raise

    def close(self) -> None:
        """Closes the Kafka clients. The next batch opens new ones."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        outbox, self._outbox = self._outbox, None
        if outbox is not None:
            outbox.close()

    def _carry_out(self, decided: DataFrame, batch_id: int) -> None:
        batch = self._log.read(DecidedRow(*row) for row in decided.collect())
        if not batch.tracker_id:
            return  # the batch read no markers, or only rebuilt the state: no decisions
        carry_out(self._opened(batch.tracker_id), batch, batch_id)
        self._log.tell(batch)

    def _opened(self, tracker_id: str) -> Outbox:
        if self._outbox is None:
            self._outbox = Outbox.of(self._options, query_id=tracker_id)
            self._outbox.open(take_over=self._options.take_over)
        return self._outbox


def _watch_settings(policy: RedeliveryPolicy) -> dict[str, str]:
    """Returns the options of a policy that the tracker's source needs on the driver: TTL and breaker."""

    def text(duration_ms: int | None) -> str:
        return NONE if duration_ms is None else format_duration(duration_ms)

    return {
        "messageTtl": text(policy.message_ttl_ms),
        "breaker": str(policy.breaker),
        "breakerPause": text(policy.breaker.pause_ms),
    }


class _Policies:
    """``policy_for`` without the other options. Pickled to executors."""

    def __init__(self, options: TrackerOptions) -> None:
        self._default = options.policy
        self._own = dict(options.subscription_policies)

    def __call__(self, subscription: str) -> RedeliveryPolicy:
        return self._own.get(subscription, self._default)


def _source_options(options: TrackerOptions) -> dict[str, str]:
    named = {
        "checkpointLocation": options.checkpoint_location,
        "markersTopic": options.markers_topic,
        "redeliveriesTopic": options.redeliveries_topic,
        "cursorsTopic": options.cursors_topic,
        "takeOver": str(options.take_over).lower(),
        SUBSCRIPTIONS: json.dumps(
            {name: _watch_settings(policy) for name, policy in options.subscription_policies}
        ),
        **_watch_settings(options.policy),
        POLICIES: options.policies_digest,
        "maxMarkersPerTrigger": str(options.max_markers_per_trigger),
    }
    if options.reappend is not None:
        named |= {
            "redelivery": Redelivery.REAPPEND.value,
            "queueTopic": options.reappend.queue_topic,
            "markerFormat": options.reappend.marker_format.value,
        }
    if options.rescue_before_ms is not None:
        named |= {
            "rescueBefore": format_duration(options.rescue_before_ms),
            "rescueMaxBytes": str(options.rescue_max_bytes),
            "rescueTopic": options.rescue_topic,
        }
    return named | {f"kafka.{name}": value for name, value in options.kafka.items()}
