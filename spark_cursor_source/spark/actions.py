"""Ack, release, reject and extend the messages named by the rows of any DataFrame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_cursor_source.consumer.message_id import needed_columns, require_columns
from spark_cursor_source.errors import OptionsNotCarried
from spark_cursor_source.kafka.admin import ClusterAdmin, meet_brokers
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS
from spark_cursor_source.kafka.rights import DESCRIBE, WRITE
from spark_cursor_source.options.ack import AckAction, AckOptions
from spark_cursor_source.spark.schema import origin_of
from spark_cursor_source.spark.settling import settle

SETTLED_SCHEMA = "settled BIGINT"


def ack(df: DataFrame, options: Mapping[str, str] | None = None) -> int:
    """Acks the message of every row. Returns the number of rows. The acks are durable on return.

    ``df`` has the columns topic, partition and offset. Rows of a source carry its ``options``, except
    secrets. Any job may ack at any time, regardless of the lease holder, as in Pulsar's individual
    acknowledgement. Acking an acked message has no effect.

    Raises:
        MissingColumns, NullMessageId: a row does not identify its message.
        UnknownSubscription, NotOfSubscription, NoSuchMessages: the message to ack does not exist.
        MarkersNotDurable: the broker did not store the markers. The leases continue.
    """
    return run_action(df, _options(df, options, action="ack"))


def release(
    df: DataFrame, options: Mapping[str, str] | None = None, delay: str | None = None, reason: str = ""
) -> int:
    """Releases the message of every row immediately, or after ``delay`` (such as "30s").

    A release applies only to the delivery given by the column ``delivery_count``. Returns the number of rows.
    """
    extra = {"delay": delay or "0s"} | ({"reason": reason} if reason else {})
    return run_action(df, _options(df, options, action="release", **extra))


def reject(df: DataFrame, options: Mapping[str, str] | None = None, reason: str = "") -> int:
    """Moves the message of every row to the dead letters immediately.

    A reject applies only to the delivery given by the column ``delivery_count``. Returns the number of rows.
    """
    extra = {"reason": reason} if reason else {}
    return run_action(df, _options(df, options, action="reject", **extra))


def extend(df: DataFrame, options: Mapping[str, str] | None = None, lease: str | None = None) -> int:
    """Extends the lease of every row's message to ``lease`` (default ``leaseTimeout``) from now.

    An extension applies only to the delivery given by the column ``delivery_count``. Returns the number of
    rows.
    """
    extra = {"lease": lease} if lease else {}
    return run_action(df, _options(df, options, action="extend", **extra))


def _options(df: DataFrame, given: Mapping[str, str] | None, **extra: str) -> AckOptions:
    origin = origin_of(df.schema)
    if given is None:
        if origin is None:
            raise OptionsNotCarried(())
        given = origin.sink_options()
    parsed = AckOptions.parse({**given, **extra})
    # The rows may be acked for another subscription. The cursors topic then shows whether it exists.
    return replace(parsed, cursors_topic=None) if origin is not None and origin.is_of(parsed) else parsed


def run_action(df: DataFrame, options: AckOptions) -> int:
    """Settles every row of ``df`` with the action of the options or of the column ``action``."""
    meet_brokers(options.kafka)
    partitions = markers_partitions(options)
    settled = with_details(df, options).mapInArrow(
        lambda batches: settle(batches, options, partitions), SETTLED_SCHEMA
    )
    total = settled.agg(F.sum("settled")).first()
    return int(total[0] or 0) if total is not None else 0


def with_details(df: DataFrame, options: AckOptions) -> DataFrame:
    """Selects the columns of ``df`` that a settlement needs, and adds constant columns from the options."""
    action = options.action or AckAction.ACK
    by_column = options.action is None and "action" in df.columns
    needed = needed_columns(options, by_column=by_column)
    require_columns(df.columns, needed, "a column action" if by_column else action.value)
    columns = [
        F.col("topic").cast("string").alias("topic"),
        F.col("partition").cast("int").alias("partition"),
        F.col("offset").cast("bigint").alias("offset"),
    ]
    if "key" in needed:
        columns.append(F.col("key").cast("binary").alias("key"))
    if "delivery_count" in needed:
        columns.append(F.col("delivery_count").cast("int").alias("delivery_count"))
    if by_column:
        columns.append(F.lower(F.col("action")).alias("action"))
    # An option takes precedence over a column of the same name, as in a batch write.
    if options.reason is not None:
        columns.append(F.lit(options.reason).alias("reason"))
    elif by_column and "reason" in df.columns:
        columns.append(F.col("reason").cast("string").alias("reason"))
    if options.delay_ms is not None:
        columns.append(F.lit(options.delay_ms).cast("bigint").alias("delay_ms"))
    elif by_column and "delay_ms" in df.columns:
        columns.append(F.col("delay_ms").cast("bigint").alias("delay_ms"))
    else:
        columns.append(F.lit(0).cast("bigint").alias("delay_ms"))
    return df.select(*columns)


def markers_partitions(options: AckOptions) -> int:
    """Returns the partition count of the markers topic, which is fixed. The result is cached per process."""
    return _markers_partitions(
        tuple(sorted(client_config(options.kafka, "admin").items())), options.markers_topic
    )


@lru_cache(maxsize=64)
def _markers_partitions(config: tuple[tuple[str, str], ...], topic: str) -> int:
    topics = ClusterAdmin(dict(config), timeout_ms=PATIENCE_MS)
    topics.check_rights({topic: (DESCRIBE, WRITE)})
    return topics.describe([topic])[topic].partitions
