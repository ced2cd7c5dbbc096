"""Acks of a whole batch. Spark aggregates the rows into 64-bit words, so no row passes through Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_cursor_source.consumer.action_columns import (
    ACTION_COLUMNS,
    MESSAGE_ID,
    require_columns,
    require_values,
)
from spark_cursor_source.consumer.settlement import check_acked
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, of_topics
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.options.ack import AckAction, AckOptions
from spark_cursor_source.spark.actions import markers_partitions
from spark_cursor_source.spark.shuffle import SHUFFLE_PARTITIONS, limit_shuffle_partitions
from spark_cursor_source.topics.markers import write_markers

_WORD = 64
_FULL = -1  # a word with all 64 bits set, as a signed number
_REDUCERS = 4  # few shuffle partitions are enough: one word covers up to 64 messages


def ack_batch(batch: DataFrame, options: AckOptions) -> int:
    """Acks the message of every row of a batch. Returns the number of messages, when the acks are durable.

    Raises the errors of :func:`acks_of` and :func:`write_acks`.
    """
    return write_acks(acks_of(batch, options.subscription), options)


def acks_of(batch: DataFrame, subscription: str) -> list[End]:
    """Returns the acks of the messages of all rows, one for each partition.

    The driver collects one word per 64 consecutive offsets, or one word per row if offsets are sparse.

    Raises:
        MissingColumns, NullMessageId: a row does not identify its message.
    """
    require_columns(batch.columns, MESSAGE_ID, AckAction.ACK.value)
    words = (
        batch.select(*(F.col(name).cast(ACTION_COLUMNS[name]) for name in MESSAGE_ID))
        .groupBy("topic", "partition", F.shiftright("offset", 6).alias("word"))
        .agg(F.bit_or(F.expr("shiftleft(1L, cast(offset & 63 AS INT))")).alias("bits"))
    )
    with _few_reducers(batch.sparkSession):
        table = words.toArrow()
    return list(ends(table, subscription))


def write_acks(acks: Sequence[End], options: AckOptions) -> int:
    """Writes acks. Returns the number of messages, when the brokers have stored the acks.

    Raises:
        UnknownSubscription, NotOfSubscription, NoSuchMessages: the messages to ack do not exist.
        MarkersNotDurable: the broker did not store the markers. The leases continue.
    """
    if acks:
        check_acked(options, acks)
        markers = of_topics(acks, options.topic_ids)
        write_markers(options.kafka, options.markers_topic, markers_partitions(options), markers)
    return sum(len(ack.offsets) for ack in acks)


def ends(words: pa.Table, subscription: str) -> Iterator[End]:
    """Yields the Ends of rows (topic, partition, word, bits) with the offsets ``64 * word + bit``.

    >>> rows = {"topic": ["t", "t"], "partition": [0, 0], "word": [2, 0], "bits": [0b11, -1]}
    >>> [(str(end.cell), end.offsets.ranges) for end in ends(pa.table(rows), "s")]
    [('s,t,0', ((0, 64), (128, 130)))]

    Raises:
        NullMessageId
    """
    require_values(words.rename_columns({"word": "offset"}), MESSAGE_ID, AckAction.ACK.value)
    for cell in (
        words.select(["topic", "partition"]).group_by(["topic", "partition"]).aggregate([]).to_pylist()
    ):
        topic, partition = cell["topic"], cell["partition"]
        own = words.filter(
            pc.and_(pc.equal(words.column("topic"), topic), pc.equal(words.column("partition"), partition))
        )
        offsets = _offsets(own.column("word").to_numpy(), own.column("bits").to_numpy())
        yield End(cell=Cell(subscription=subscription, topic=topic, partition=partition), offsets=offsets)


def _offsets(words: np.ndarray, bits: np.ndarray) -> OffsetSet:
    full = np.sort(words[bits == _FULL])
    breaks = np.flatnonzero(np.diff(full) != 1)
    firsts = full[np.concatenate(([0], breaks + 1))] if len(full) else full
    lasts = full[np.concatenate((breaks, [len(full) - 1]))] if len(full) else full
    runs = zip((firsts * _WORD).tolist(), ((lasts + 1) * _WORD).tolist(), strict=True)
    partly = bits != _FULL
    set_bits = np.unpackbits(np.ascontiguousarray(bits[partly]).view(np.uint8), bitorder="little")
    which, bit = np.nonzero(set_bits.reshape(-1, _WORD))
    others = words[partly][which] * _WORD + bit
    return OffsetSet.of(*runs) | OffsetSet.from_offsets(np.sort(others).astype(np.uint64))


@contextmanager
def _few_reducers(session: SparkSession) -> Iterator[None]:
    before = limit_shuffle_partitions(session, _REDUCERS)
    try:
        yield
    finally:
        session.conf.set(SHUFFLE_PARTITIONS, before)
