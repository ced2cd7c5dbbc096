"""The view ``deadletters``: dead letters with their content, origin and reason."""

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
from spark_cursor_source.spark.views.columns import arrow_schema
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
    HEADER_GENERATION,
    HEADER_LAST_DELIVERY,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_REASON,
    HEADER_SUBSCRIPTION,
    HEADER_TOPIC,
)
from spark_cursor_source.topics.message_columns import Columns, message_columns
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
    "generation": HEADER_GENERATION,  # part of the identity and no column
}
_IDENTITY = ("origin_topic", "origin_partition", "origin_offset", "subscription")
_IDENTITY_TIMES = ("origin_timestamp", "last_delivery")
_NUMBERS = {
    "delivery_count": r"^[0-9]{1,9}$",
    "origin_partition": r"^[0-9]{1,9}$",
    "origin_offset": r"^[0-9]{1,18}$",
    "first_delivery": r"^[0-9]{1,15}$",
    "last_delivery": r"^[0-9]{1,15}$",
    "origin_timestamp": r"^[0-9]{1,15}$",
    "generation": r"^[0-9]{1,15}$",
}


def columns(options: ViewOptions) -> Columns:
    """Returns the message columns and the origin columns."""
    return {**message_columns(include_headers=options.include_headers), **ORIGIN}


class DeadLettersReader(DataSourceReader):
    """``view=deadletters``: the dead letters of the given topics and subscription.

    The option deadLetterTopic names the topics. A missing topic has no dead letters. ``topic``,
    ``partition``, ``offset`` and ``timestamp`` are those of the dead letter. Key, value and headers are those
    of the original message::

        key, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,
        timestampType INT, [headers ARRAY<STRUCT<key: STRING, value: BINARY>>,]
        delivery_count   INT     number of deliveries
        reason           STRING  max-deliveries, rejected or expired
        subscription     STRING  subscription of the dead letter
        origin_topic     STRING  position of the original message; these columns and all others from
        origin_partition INT     delivery_count on are null if the tracker did not write the record
        origin_offset    BIGINT
        error            STRING     error of the handler at the last delivery; null: none
        first_delivery   TIMESTAMP  broker time; null: unknown
        last_delivery    TIMESTAMP
        origin_timestamp TIMESTAMP  timestamp of the original message

    If a crash of the tracker wrote a dead letter twice, only the first one is shown. One task reads each
    dead-letter partition, regardless of minPartitions.
    """

    def __init__(self, options: ViewOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        topics = ClusterAdmin(client_config(self._options.kafka, "admin")).meet()
        # One task per partition: duplicates are detected only within a task.
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
            on_missing=lambda piece, offsets, why: None,  # retention may remove dead letters
        ):
            generations = _from_headers(batch.column("headers"), "generation")
            shown = _shown(once.of(dead_letters(batch, columns(options)), generations), options)
            if shown.num_rows:
                yield shown


class _Once:
    """Filters duplicate dead letters of the same message."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def of(self, batch: pa.RecordBatch, generations: pa.Array) -> pa.RecordBatch:
        columns = [batch.column(name).to_pylist() for name in _IDENTITY]
        columns += [batch.column(name).cast(pa.int64()).to_pylist() for name in _IDENTITY_TIMES]
        rows = zip(*columns, generations.to_pylist(), strict=True)
        return batch.filter(pa.array([self._is_first(*row) for row in rows], pa.bool_()))

    def _is_first(
        self,
        topic: str | None,
        partition: int | None,
        offset: int | None,
        subscription: str | None,
        original_us: int | None,
        last_us: int | None,
        generation_ms: int | None,
    ) -> bool:
        if topic is None or partition is None or offset is None or subscription is None:
            return True  # the tracker did not write this record
        one = letter_id(
            topic=topic,
            partition=partition,
            offset=offset,
            subscription=subscription,
            original_ms=None if original_us is None else original_us // 1_000,
            last_delivery_ms=None if last_us is None else last_us // 1_000,
            generation_ms=generation_ms,
        )
        if one in self._seen:
            return False
        self._seen.add(one)
        return True


def dead_letters(batch: pa.RecordBatch, wanted: Columns) -> pa.RecordBatch:
    """Converts records with headers to dead-letter rows with the ``wanted`` columns."""
    headers = batch.column("headers")
    columns = {
        name: _from_headers(headers, name) if name in _HEADER_OF else batch.column(name) for name in wanted
    }
    # Earlier versions wrote no such header, and gave the dead letter the timestamp of the message.
    written = pc.is_valid(columns["reason"])
    own = pc.if_else(written, columns["timestamp"], None)
    columns["origin_timestamp"] = pc.coalesce(columns["origin_timestamp"], own)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=arrow_schema(wanted))


def _from_headers(headers: Any, name: str) -> Any:
    """Returns the values of one header. A missing header, or one not written by the tracker, is null."""
    pairs = headers.flatten()
    place = _last_named(headers, _HEADER_OF[name])
    # The tracker's headers start at the last reason header. Headers before it may come from a previous dead
    # letter of the same message.
    place[place < _last_named(headers, HEADER_REASON)] = -1
    raw = pairs.field("value").take(pa.array(place, mask=place < 0))
    text = pa.array([_text(value) for value in raw.to_pylist()], pa.string())
    if name not in _NUMBERS:
        return text
    well_formed = pc.match_substring_regex(text, _NUMBERS[name])
    number = pc.if_else(well_formed, text, None).cast(pa.int64())
    if ORIGIN.get(name) == "TIMESTAMP":
        return number.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
    return number if name in ("origin_offset", "generation") else number.cast(pa.int32())


def _last_named(headers: Any, name: str) -> np.ndarray:
    """Returns, per row, the index of the last header of that name among all headers; -1: none."""
    named = np.flatnonzero(pc.equal(headers.flatten().field("key"), name).fill_null(False).to_numpy(False))
    place = np.full(len(headers), -1)
    place[pc.list_parent_indices(headers).to_numpy()[named]] = named
    return place


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _shown(batch: pa.RecordBatch, options: ViewOptions) -> pa.RecordBatch:
    """Returns the rows selected by the options.

    If the topic template lacks ``{subscription}`` or ``{topic}``, the dead-letter headers are compared.
    """
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
    """Returns the dead-letter topics. Option parsing ensures that all template values are given."""
    template, subscription = options.dead_letter_topic, options.subscription or ""
    queues = [""] if options.topics is None or "{topic}" not in template else None
    if queues is None and options.topics is not None:
        queues = queue_topics(options, options.topics, topics)
    named = (dead_letter_topic(template, topic=one, subscription=subscription) for one in queues or [])
    return sorted(set(named))
