"""The view ``deadletters``: messages that were given up, whole, and what is known of their end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_cursor_source.core.dead_letter_id import letter_id
from spark_cursor_source.core.names import dead_letter_topic
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.options.topics import Assign
from spark_cursor_source.options.view import ViewOptions
from spark_cursor_source.spark.views.columns import Columns, arrow_schema, message_columns
from spark_cursor_source.spark.views.ranges import (
    RangeOfLog,
    check_names,
    queue_topics,
    reader_config,
    whole_topics,
)
from spark_cursor_source.topics.dead_letters import (
    HEADER_DELIVERY_COUNT,
    HEADER_ERROR,
    HEADER_FIRST_DELIVERY,
    HEADER_LAST_DELIVERY,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_REASON,
    HEADER_SUBSCRIPTION,
    HEADER_TOPIC,
)
from spark_cursor_source.topics.queue import arrow_batches
from spark_cursor_source.wire.original_time import HEADER_TIMESTAMP

ORIGIN: Columns = {
    "reason": "STRING",
    "subscription": "STRING",
    "origin_topic": "STRING",
    "origin_partition": "INT",
    "origin_offset": "BIGINT",
    "error": "STRING",
    "first_delivery": "TIMESTAMP",
    "last_delivery": "TIMESTAMP",
    "origin_timestamp": "TIMESTAMP",
}
_HEADER_OF = {
    "delivery_count": HEADER_DELIVERY_COUNT,
    "reason": HEADER_REASON,
    "subscription": HEADER_SUBSCRIPTION,
    "origin_topic": HEADER_TOPIC,
    "origin_partition": HEADER_PARTITION,
    "origin_offset": HEADER_OFFSET,
    "error": HEADER_ERROR,
    "first_delivery": HEADER_FIRST_DELIVERY,
    "last_delivery": HEADER_LAST_DELIVERY,
    "origin_timestamp": HEADER_TIMESTAMP,
}
_IDENTITY = ("origin_topic", "origin_partition", "origin_offset", "subscription")
_NUMBERS = {
    "delivery_count": r"^[0-9]{1,9}$",
    "origin_partition": r"^[0-9]{1,9}$",
    "origin_offset": r"^[0-9]{1,18}$",
    "first_delivery": r"^[0-9]{1,15}$",
    "last_delivery": r"^[0-9]{1,15}$",
    "origin_timestamp": r"^[0-9]{1,15}$",
}


def columns(options: ViewOptions) -> Columns:
    """Those of messages, and those of their origin."""
    return {**message_columns(include_headers=options.include_headers), **ORIGIN}


class DeadLettersReader(DataSourceReader):
    """``view=deadletters``: the dead letters of the given topics and subscription.

    They are looked for where deadLetterTopic says; a topic that is not there has none. ``topic``,
    ``partition``, ``offset`` and ``timestamp`` are those of the dead letter; the key, the value and the
    headers are the message's own::

        key, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,
        timestampType INT, [headers ARRAY<STRUCT<key: STRING, value: BINARY>>,]
        delivery_count   INT     how often it was delivered
        reason           STRING  why it was given up: max-deliveries, rejected
        subscription     STRING  by which subscription
        origin_topic     STRING  where the message was; null, as all of these, for a record which the
        origin_partition INT     tracker did not write
        origin_offset    BIGINT
        error            STRING     what the handler said of the last delivery; null: nothing
        first_delivery   TIMESTAMP  by the broker's clock; null: not known
        last_delivery    TIMESTAMP
        origin_timestamp TIMESTAMP  the one that the message had

    A dead letter that a crash of the tracker has written twice is one row, the first. One task reads a
    partition of the dead letters, whatever minPartitions says.
    """

    def __init__(self, options: ViewOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        topics = ClusterAdmin(client_config(self._options.kafka, "admin")).meet()
        # A partition in one task: only then is it known which dead letters are there twice.
        whole = replace(self._options, min_partitions=None, max_records_per_partition=None)
        names = _names(self._options, topics)
        if not topics.existing(names) and topics.existing([self._options.cursors_topic]):
            check_names(self._options)
        return [RangeOfLog(one) for one in whole_topics(names, whole, topics)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangeOfLog):
            return
        options = self._options
        once = _Once()
        for batch in arrow_batches(
            reader_config(options),
            [partition.slice],
            include_headers=True,
            queue_id=None if options.queue_id is None else options.queue_id.encode(),
            on_missing=lambda piece, offsets, why: None,  # dead letters have a retention too
        ):
            shown = _shown(once.of(dead_letters(batch, columns(options))), options)
            if shown.num_rows:
                yield shown


class _Once:
    """Leaves out the dead letters of messages that had one before."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [batch.column(name).to_pylist() for name in _IDENTITY]
        times_us = batch.column("origin_timestamp").cast(pa.int64()).to_pylist()
        rows = zip(*columns, times_us, strict=True)
        return batch.filter(pa.array([self._is_first(*row) for row in rows], pa.bool_()))

    def _is_first(
        self,
        topic: str | None,
        partition: int | None,
        offset: int | None,
        subscription: str | None,
        original_us: int | None,
    ) -> bool:
        if topic is None or partition is None or offset is None or subscription is None:
            return True  # the tracker did not write it
        one = letter_id(
            topic=topic,
            partition=partition,
            offset=offset,
            subscription=subscription,
            original_ms=None if original_us is None else original_us // 1_000,
        )
        if one in self._seen:
            return False
        self._seen.add(one)
        return True


def dead_letters(batch: pa.RecordBatch, wanted: Columns) -> pa.RecordBatch:
    """Messages with their headers, and what these say of their origin, as the columns wanted."""
    headers = batch.column("headers")
    columns = {
        name: _from_headers(headers, name) if name in _HEADER_OF else batch.column(name) for name in wanted
    }
    # A dead letter without that header is of an earlier version, which gave it the message's own timestamp.
    written = pc.is_valid(columns["reason"])
    own = pc.if_else(written, columns["timestamp"], None)
    columns["origin_timestamp"] = pc.coalesce(columns["origin_timestamp"], own)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=arrow_schema(wanted))


def _from_headers(headers: Any, name: str) -> Any:
    """The values of one header, null where it is missing or not what the tracker writes."""
    pairs = headers.flatten()
    place = _last_named(headers, _HEADER_OF[name])
    # What stands before the last reason is not the tracker's: a message may have been a dead letter before.
    place[place < _last_named(headers, HEADER_REASON)] = -1
    raw = pairs.field("value").take(pa.array(place, mask=place < 0))
    text = pa.array([_text(value) for value in raw.to_pylist()], pa.string())
    if name not in _NUMBERS:
        return text
    well_formed = pc.match_substring_regex(text, _NUMBERS[name])
    number = pc.if_else(well_formed, text, None).cast(pa.int64())
    if ORIGIN.get(name) == "TIMESTAMP":
        return number.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
    return number if name == "origin_offset" else number.cast(pa.int32())


def _last_named(headers: Any, name: str) -> np.ndarray:
    """Where, among all headers, the last of that name in each row is; -1: nowhere."""
    named = np.flatnonzero(pc.equal(headers.flatten().field("key"), name).fill_null(False).to_numpy(False))
    place = np.full(len(headers), -1)
    place[pc.list_parent_indices(headers).to_numpy()[named]] = named
    return place


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _shown(batch: pa.RecordBatch, options: ViewOptions) -> pa.RecordBatch:
    """The rows that the options select; where the name of the topic does not say it, the headers do."""
    template = options.dead_letter_topic
    if options.subscription is not None and "{subscription}" not in template:
        batch = batch.filter(pc.equal(batch.column("subscription"), options.subscription))
    if options.topics is not None and "{topic}" not in template:
        origins = batch.column("origin_topic").to_pylist()
        matches = options.topics.matches
        batch = batch.filter(
            pa.array([origin is not None and matches(origin) for origin in origins], pa.bool_())
        )
    if isinstance(options.topics, Assign):
        ids = zip(
            batch.column("origin_topic").to_pylist(),
            batch.column("origin_partition").to_pylist(),
            strict=True,
        )
        batch = batch.filter(pa.array([one in options.topics.partitions for one in ids], pa.bool_()))
    return batch


def _names(options: ViewOptions, topics: ClusterAdmin) -> list[str]:
    """The topics that the dead letters are in; what the template needs is given, or parsing had refused."""
    template, subscription = options.dead_letter_topic, options.subscription or ""
    queues = [""] if options.topics is None or "{topic}" not in template else None
    if queues is None and options.topics is not None:
        queues = queue_topics(options, options.topics, topics)
    named = (dead_letter_topic(template, topic=one, subscription=subscription) for one in queues or [])
    return sorted(set(named))
