"""Ack, release, reject and extend the messages named by the rows of any DataFrame."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_cursor_source.consumer.action_columns import ActionColumns
from spark_cursor_source.errors import InvalidArgument, InvalidOffset, OptionsNotCarried, RowsOfTwoSources
from spark_cursor_source.kafka.admin import ClusterAdmin, meet_brokers
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS
from spark_cursor_source.kafka.rights import DESCRIBE, READ, WRITE
from spark_cursor_source.options.ack import AckOptions
from spark_cursor_source.options.kinds import items_of
from spark_cursor_source.options.row_origin import RowOrigin
from spark_cursor_source.spark.classic import ends_of_sources, unions
from spark_cursor_source.spark.schema import origin_of
from spark_cursor_source.spark.settling import settle
from spark_cursor_source.wire import offset_json

SETTLED_SCHEMA = "settled BIGINT, handler_times STRING"


def ack(df: DataFrame, options: Mapping[str, str] | None = None) -> int:
    """Acks the message of every row. Returns the number of rows. The acks are durable on return.

    ``df`` has the columns topic, partition and offset. Rows of a source carry its ``options``, except
    secrets. Any job may ack at any time, regardless of the lease holder, as in Pulsar's individual
    acknowledgement. Acking an acked message has no effect. V1 markers also need the column key.

    Example::

        import spark_cursor_source as cursorq

        options = {"kafka.bootstrap.servers": "broker:9092", "subscription": "billing"}
        done = spark.createDataFrame([("orders", 0, 17)], "topic STRING, partition INT, offset BIGINT")
        cursorq.ack(done, options)

    Raises:
        InvalidArgument: ``df`` is not a DataFrame, or ``options`` are not a mapping.
        MissingColumns, NullMessageId: a row does not identify its message.
        OptionsNotCarried: no options are given, and the rows do not carry all options of their source.
        RowsOfTwoSources: no options are given, and the rows are a union of unlike sources.
        UnknownSubscription, NotOfSubscription, NoSuchMessages: the message to ack does not exist.
        MarkersNotDurable: the brokers did not confirm the markers. The leases continue.
    """
    return run_action(df, _options(df, options, action="ack"))


def release(
    df: DataFrame, options: Mapping[str, str] | None = None, delay: str | None = None, reason: str = ""
) -> int:
    """Releases the message of every row immediately, or after ``delay`` (such as "30s", at most 12 h).

    A release applies only to the delivery given by the column ``delivery_count``. If that delivery has no
    lease any more, the release has no effect and counts in ``unknown_settlements``. ``reason`` has at most
    500 characters. Returns the number of rows. The releases are durable on return.

    Raises:
        InvalidDuration, InvalidOption: ``delay`` is no duration, or above 12 h.
        MissingColumns, NullMessageId, OptionsNotCarried, RowsOfTwoSources, MarkersNotDurable: see
            :func:`ack`.
    """
    extra = {"delay": "0s" if delay is None else delay} | ({"reason": reason} if reason else {})
    return run_action(df, _options(df, options, action="release", **extra))


def reject(df: DataFrame, options: Mapping[str, str] | None = None, reason: str = "") -> int:
    """Moves the message of every row to the dead letters immediately.

    A reject applies only to the delivery given by the column ``delivery_count``. If that delivery has no
    lease any more, the reject has no effect and counts in ``unknown_settlements``. ``reason`` has at most
    500 characters. Returns the number of rows. The rejects are durable on return.

    Raises:
        RejectRefused: V1 markers have no dead letters.
        MissingColumns, NullMessageId, OptionsNotCarried, RowsOfTwoSources, MarkersNotDurable: see
            :func:`ack`.
    """
    extra = {"reason": reason} if reason else {}
    return run_action(df, _options(df, options, action="reject", **extra))


def extend(df: DataFrame, options: Mapping[str, str] | None = None, lease: str | None = None) -> int:
    """Extends the lease of every row's message to ``lease`` (1s to 12h; default ``leaseTimeout``) from now.

    An extension applies only to the delivery given by the column ``delivery_count``. If that delivery has no
    lease any more, it has no effect and counts in ``unknown_settlements``. Returns the number of rows. The
    extensions are durable on return.

    Raises:
        InvalidDuration, InvalidOption: ``lease`` is no duration, or out of bounds.
        MissingColumns, NullMessageId, OptionsNotCarried, RowsOfTwoSources, MarkersNotDurable: see
            :func:`ack`.
    """
    extra = {} if lease is None else {"lease": lease}
    return run_action(df, _options(df, options, action="extend", **extra))


def _options(df: DataFrame, given: Mapping[str, str] | None, **extra: str) -> AckOptions:
    if not isinstance(df, DataFrame):
        raise InvalidArgument("df", type(df), "it is not a DataFrame with the rows of messages")
    origin = origin_of(df.schema)
    difference = None if origin is None else difference_of_sources(df, origin)
    if given is None:
        if origin is None:
            raise OptionsNotCarried(())
        if difference is not None:
            raise RowsOfTwoSources(*difference)
        given = origin.sink_options()
    parsed = replace(
        AckOptions.parse(dict(items_of("options", given)) | extra).settling_each(), topic_ids=topic_ids_of(df)
    )
    # The rows may be acked for another subscription. The cursors topic then shows whether it exists.
    is_known = origin is not None and difference is None and origin.is_of(parsed)
    return replace(parsed, cursors_topic=None) if is_known else parsed


def topic_ids_of(df: DataFrame) -> Mapping[str, str]:
    """Returns the ids of the queue topics by name, as of the batch that a foreachBatch function processes.

    After a topic is deleted and created again, a late ack must not end a message of the new topic. Empty
    outside of foreachBatch and with Spark Connect. A topic that two sources know by different ids is omitted.
    """
    known: dict[str, set[str]] = {}
    for end in ends_of_sources(df):
        with suppress(InvalidOffset, ValueError):  # another source
            for topic, topic_id in offset_json.decode(json.loads(end)).topic_ids.items():
                known.setdefault(topic, set()).add(topic_id)
    return {topic: ids.pop() for topic, ids in known.items() if len(ids) == 1}


def difference_of_sources(df: DataFrame, origin: RowOrigin) -> tuple[str, str, str] | None:
    """Returns an option in which the source of some rows differs from ``origin``, with both values.

    Spark keeps the metadata of the first input of a union. None if the rows have one source, and with Spark
    Connect.
    """
    for inputs in unions(df):
        origins = [found for schema in inputs if (found := origin_of(schema)) is not None]
        if origin in origins:  # else the rows are joined with a union of others
            for other in origins:
                if (difference := origin.difference(other)) is not None:
                    return difference
    return None


def run_action(df: DataFrame, options: AckOptions) -> int:
    """Settles every row of ``df`` with the action of the options or of the column ``action``."""
    meet_brokers(options.kafka)
    partitions = markers_partitions(options)
    columns = ActionColumns.of(options, df.columns, may_block=True)

    def settle_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield counted(settle(batches, columns, options, partitions))

    settled = df.select(*columns.used).mapInArrow(settle_task, SETTLED_SCHEMA)
    total = settled.agg(F.sum("settled")).first()
    return int(total[0] or 0) if total is not None else 0


def counted(settled: int, handler_times: str | None = None) -> pa.RecordBatch:
    """Returns the one row of a task as in ``SETTLED_SCHEMA``.

    It has the number of settled messages, and the encoded times of the handler if one was called.
    """
    return pa.RecordBatch.from_arrays(
        [pa.array([settled], pa.int64()), pa.array([handler_times], pa.string())],
        ["settled", "handler_times"],
    )


def markers_partitions(options: AckOptions) -> int:
    """Returns the partition count of the markers topic, which is fixed. The result is cached per process."""
    return _markers_partitions(_admin_config(options), options.markers_topic, (DESCRIBE, WRITE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Markers:
    """The markers topic as a task needs it. ``positions`` are its ends before the batch is handled.

    If the rows of the tasks come from a shuffle, Spark may run their whole stage again. The attempt numbers
    of its tasks then begin at 0 again.
    """

    options: AckOptions
    partitions: int
    positions: Mapping[int, int]
    after_shuffle: bool = False


def markers_of(options: AckOptions) -> Markers:
    """Returns the markers topic with its present ends.

    Raises:
        NotAuthorized: a right is missing. The next attempt of a task reads the markers of this one.
    """
    config, topic = _admin_config(options), options.markers_topic
    partitions = _markers_partitions(config, topic, (DESCRIBE, READ, WRITE))
    ends = _admin(config).end_offsets([(topic, number) for number in range(partitions)], committed=True)
    return Markers(
        options=options, partitions=partitions, positions={number: end for (_, number), end in ends.items()}
    )


def _admin_config(options: AckOptions) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(client_config(options.kafka, "admin").items()))


@lru_cache(maxsize=8)
def _admin(config: tuple[tuple[str, str], ...]) -> ClusterAdmin:
    return ClusterAdmin(dict(config), timeout_ms=PATIENCE_MS)


@lru_cache(maxsize=64)
def _markers_partitions(config: tuple[tuple[str, str], ...], topic: str, rights: tuple[str, ...]) -> int:
    topics = _admin(config)
    topics.check_rights({topic: rights})
    return topics.describe([topic])[topic].partitions
