"""The view ``messages``: any offset range of the queue topics, without leases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_cursor_source.core.batch import TopicPartition
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.errors import InvalidOption, RecordsGone
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.options.source import Isolation
from spark_cursor_source.options.view import ViewOptions
from spark_cursor_source.spark.views.ranges import (
    queue_partitions,
    reader_config,
    shown_cursors,
    tasks,
)
from spark_cursor_source.topics.message_columns import Columns, message_columns
from spark_cursor_source.topics.positions import check_named, ending_positions, starting_positions
from spark_cursor_source.topics.queue import Missing, arrow_batches


def columns(options: ViewOptions) -> Columns:
    """Returns the columns of the stream source."""
    return message_columns(include_headers=options.include_headers)


@dataclass(frozen=True, slots=True)
class DeliveryCounts:
    """Delivery counts of a partition's messages for one subscription, from its cursor."""

    read_position: int
    outstanding: tuple[tuple[int, OffsetSet], ...]

    @classmethod
    def of(cls, cursor: CursorSnapshot) -> DeliveryCounts:
        """Returns the delivery counts of all messages of the cursor's cell."""
        return cls(cursor.read_position, tuple(cursor.delivery_counts().items()))

    def among(self, offsets: OffsetSet) -> DeliveryCounts:
        """Returns the delivery counts restricted to these offsets."""
        groups = ((count, outstanding & offsets) for count, outstanding in self.outstanding)
        return DeliveryCounts(self.read_position, tuple(group for group in groups if group[1]))

    def look_up(self, offsets: npt.NDArray[np.int64]) -> pa.Array:
        """Returns the count of each offset. Offsets ascend. Null: the subscription has ended the message.

        >>> counts = DeliveryCounts(5, ((2, OffsetSet.of((3, 4))),))
        >>> counts.look_up(np.array([2, 3, 5])).to_pylist()
        [None, 2, 0]
        """
        counts = np.where(offsets >= self.read_position, 0, -1).astype(np.int32)
        here = OffsetSet.of((int(offsets[0]), int(offsets[-1]) + 1))
        for count, outstanding in self.outstanding:
            sought = np.frombuffer((outstanding & here).to_array(), np.uint64).astype(np.int64)
            places = np.searchsorted(offsets, sought)
            counts[places[offsets[places] == sought]] = count
        return pa.array(counts, pa.int32(), mask=counts < 0)


NEVER_DELIVERED = DeliveryCounts(0, ())


@dataclass(frozen=True)
class RangeOfQueue(InputPartition):
    """Input of one task: messages of one partition and their delivery counts."""

    slice: Slice
    counts: DeliveryCounts | None


class MessagesReader(DataSourceReader):
    """``view=messages``: the messages from startingOffsets to endingOffsets, without leases or cursor moves.

    The columns are those of the stream source. ``headers`` requires includeHeaders=true. Without the option
    subscription, ``delivery_count`` is null. With a subscription, ``delivery_count`` is the number of
    deliveries to that subscription at planning time: 0 for a message at or above the read position, null for
    an ended message (acked, a dead letter, or older than the subscription).
    """

    def __init__(self, options: ViewOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        topics = ClusterAdmin(client_config(options.kafka, "admin")).meet()
        slices = tasks(message_ranges(options, topics), options)
        if options.subscription is None:
            return [RangeOfQueue(one, None) for one in slices]
        known: dict[TopicPartition, DeliveryCounts] = {}
        if topics.existing([options.cursors_topic]):
            known = {
                cursor.cell.topic_partition: DeliveryCounts.of(cursor) for cursor in shown_cursors(options)
            }
        return [
            RangeOfQueue(one, known.get((one.topic, one.partition), NEVER_DELIVERED).among(one.offsets))
            for one in slices
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangeOfQueue):
            return
        options, counts = self._options, partition.counts

        def on_missing(piece: Slice, offsets: OffsetSet, why: Missing) -> None:
            if why is Missing.RETENTION and options.fail_on_data_loss:
                gone = (offsets.first or 0, (offsets.last or 0) + 1)
                left = (gone[1], (piece.offsets.last or 0) + 1)
                raise RecordsGone(piece.topic, piece.partition, gone, left)

        for batch in arrow_batches(
            reader_config(options),
            [partition.slice],
            include_headers=options.include_headers,
            queue_id=None if options.queue_id is None else options.queue_id.encode(),
            on_missing=on_missing,
        ):
            if counts is None:
                column = pa.nulls(batch.num_rows, pa.int32())
            else:
                column = counts.look_up(batch.column("offset").to_numpy())
            yield batch.set_column(batch.num_columns - 1, batch.schema.field("delivery_count"), column)


def message_ranges(options: ViewOptions, topics: ClusterAdmin) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the half-open offset range to read of each partition.

    Raises:
        RecordsGone: retention removed records from startingOffsets on.
        InvalidOption: endingOffsets is beyond the end of the log, or an option gives a position to a
            partition that is not read.
    """
    if options.topics is None:
        return {}
    partitions = queue_partitions(options, options.topics, topics)
    check_named(options.starting_offsets, partitions)
    check_named(options.ending_offsets, partitions)
    starts = starting_positions(options.starting_offsets, partitions, topics)
    beginnings = topics.beginning_offsets(partitions)
    ends = topics.end_offsets(partitions, committed=options.isolation is Isolation.READ_COMMITTED)
    stops = ending_positions(options.ending_offsets, ends)
    if options.fail_on_data_loss:
        _check_there(starts, stops, beginnings, ends)
    return {tp: (max(starts[tp], beginnings[tp]), min(stops[tp], ends[tp])) for tp in partitions}


def _check_there(
    starts: Mapping[TopicPartition, int],
    stops: Mapping[TopicPartition, int],
    beginnings: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> None:
    for tp, stop in stops.items():
        if starts[tp] >= stop:
            continue
        if stop > ends[tp]:
            why = f"'{tp[0]}' partition {tp[1]} can be read up to offset {ends[tp]} now"
            next_move = "end there, or set failOnDataLoss=false to read what there is"
            raise InvalidOption("endingOffsets", stop, why, next_move)
        if starts[tp] < beginnings[tp]:
            raise RecordsGone(*tp, (starts[tp], stop), (beginnings[tp], ends[tp]))
