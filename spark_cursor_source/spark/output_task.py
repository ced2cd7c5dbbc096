"""Tasks of KafkaSink: they write the outputs of messages and the acks of the messages in transactions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_cursor_source.consumer.action_columns import MESSAGE_ID
from spark_cursor_source.consumer.settled_since import SettledSince
from spark_cursor_source.consumer.settlement import Settlement
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import End, of_topics
from spark_cursor_source.core.offsets import EMPTY, OffsetSet
from spark_cursor_source.errors import (
    CursorqError,
    KafkaRefused,
    MessageRefused,
    OutputOfNoMessage,
    TrackerFenced,
)
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.error_codes import why_too_large
from spark_cursor_source.kafka.fenced_producers import FencedProducers, Turns
from spark_cursor_source.kafka.pool import ClientPool
from spark_cursor_source.kafka.transaction import Record, TransactionalProducer, Uncertain
from spark_cursor_source.options.ack import AckAction
from spark_cursor_source.options.publish import EnqueueOptions
from spark_cursor_source.spark.actions import Markers, counted
from spark_cursor_source.spark.message_rows import messages
from spark_cursor_source.spark.message_writer import admitted
from spark_cursor_source.topics.markers import marker_values
from spark_cursor_source.topics.message_sender import size_of

log = logging.getLogger(__name__)

MESSAGE = "message"  #: column of the batch that identifies a message
IS_OUTPUT, LANE, ORDER = "is_output", "lane", "output_order"
ID = tuple(f"message_{name}" for name in MESSAGE_ID)

# A transaction ends long before the timeout of FencedProducers, after which the brokers abort it.
_CHUNK_ROWS = 10_000
_CHUNK_BYTES = 4 << 20
_ABORT_MS = 5_000


def write_outputs(
    batches: Iterable[pa.RecordBatch], markers: Markers, output: EnqueueOptions
) -> Iterator[pa.RecordBatch]:
    """Writes the outputs of messages and acks the messages. Yields one row with the number of messages.

    Each message is a row without ``is_output``, followed by its outputs. The rows of a lane follow each
    other. A transaction contains a number of messages of one lane, each with all of its outputs.

    Raises:
        OutputOfNoMessage: an output belongs to a message that is not in the batch.
        MessageRefused: Kafka refuses an output.
        UnfitMessageColumn, TopicNotFound, NoSuchPartition, ReadonlyPartition, NotAuthorized, KafkaRefused
        KafkaUnavailable
    """
    config = client_config(output.kafka, "producer") | {"partitioner": "murmur2_random"}
    settled = 0
    with (
        admitted(output) as (sender, admit),
        _producers.lend(frozenset(config.items()), lambda: FencedProducers(config)) as producers,
    ):
        writer = _Writer(markers, output, producers)
        for chunk in chunks(batches):
            rows = chunk.filter(chunk.column(IS_OUTPUT))
            admit(rows)
            settled += writer.write(chunk)
        sender.flush()
    yield counted(settled)


def chunks(
    batches: Iterable[pa.RecordBatch], *, most_rows: int = _CHUNK_ROWS, most_bytes: int = _CHUNK_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yields the rows in pieces of one lane. All rows of a message are in one piece.

    A piece has at most ``most_rows``, or fewer if rows are large, unless a message has more.

    Raises:
        OutputOfNoMessage
    """
    left: pa.RecordBatch | None = None
    for batch in batches:
        rows = batch if left is None else _joined(left, batch)
        if not rows.num_rows:
            continue
        starts = _starts(rows)
        # The last message may go on in the next batch.
        yield from _pieces(rows.slice(0, starts[-1]), starts[:-1], most_rows, most_bytes)
        left = rows.slice(starts[-1])
    if left is not None:
        yield left


def _joined(first: pa.RecordBatch, second: pa.RecordBatch) -> pa.RecordBatch:
    (joined,) = pa.Table.from_batches([first, second]).combine_chunks().to_batches()
    return joined


def _starts(rows: pa.RecordBatch) -> np.ndarray:
    """Returns the indexes at which the messages start."""
    changed = np.ones(rows.num_rows, bool)
    if rows.num_rows > 1:
        topics, partitions, offsets = (rows.column(name) for name in ID)
        codes = topics.dictionary_encode().indices.to_numpy()
        changed[1:] = np.diff(codes) != 0
        changed[1:] |= np.diff(partitions.to_numpy()) != 0
        changed[1:] |= np.diff(offsets.to_numpy()) != 0
    starts = np.flatnonzero(changed)
    without_message = starts[rows.column(IS_OUTPUT).to_numpy(zero_copy_only=False)[starts].astype(bool)]
    if len(without_message):
        at = int(without_message[0])
        raise OutputOfNoMessage(*(rows.column(name)[at].as_py() for name in ID))
    return starts


def _pieces(
    rows: pa.RecordBatch, starts: np.ndarray, most_rows: int, most_bytes: int
) -> Iterator[pa.RecordBatch]:
    if not rows.num_rows:
        return
    lanes = rows.column(LANE).to_numpy()
    most = max(1, min(most_rows, most_bytes * rows.num_rows // max(1, rows.nbytes)))
    first = 0
    for start, end in zip(starts, [*starts[1:], rows.num_rows], strict=True):
        if start > first and (lanes[start] != lanes[first] or end - first > most):
            yield rows.slice(first, start - first)
            first = start
    yield rows.slice(first)


class _Writer:
    """Writes pieces of a lane, each in a transaction.

    Each lane has a transactional id. Opening a producer of this id aborts the transaction of another task,
    and that task cannot commit any more. So no other task writes outputs of the lane between the look at the
    acks and the commit.
    """

    def __init__(self, markers: Markers, output: EnqueueOptions, producers: FencedProducers) -> None:
        options = markers.options
        self._options = replace(options, action=AckAction.ACK, cursors_topic=None)
        self._output, self._producers = output, producers
        self._partitions = markers.partitions
        self._ended = SettledSince(
            client_config(options.kafka, "consumer"),
            options.markers_topic,
            options.subscription,
            markers.positions,
            options.topic_ids,
        )

    def write(self, piece: pa.RecordBatch) -> int:
        """Writes a piece, except messages that have ended. Returns the number of its messages."""
        lane = piece.column(LANE)[0].as_py()
        name = f"cursorq-output-{self._options.markers_topic}-{self._options.subscription}/{lane}"
        deadline = Deadline.after_ms(PATIENCE_MS)
        with self._producers.held(name, deadline) as producer:
            try:
                self._write(piece, producer, name, deadline)
            except CursorqError:
                with suppress(CursorqError):
                    producer.open(Deadline.after_ms(_ABORT_MS))  # aborts what was written
                raise
        return int(piece.num_rows - piece.column(IS_OUTPUT).true_count)

    def _write(
        self, piece: pa.RecordBatch, producer: TransactionalProducer, name: str, deadline: Deadline
    ) -> None:
        acks = self._acks(piece)
        turns = Turns(f"write outputs as '{name}'", deadline)
        while True:
            turns.begin()
            try:
                producer.open(deadline)
                self._ended.read([ack.cell for ack in acks], until=deadline)
                again = {ack.cell: ended for ack in acks if (ended := ack.offsets & self._ended(ack.cell, 0))}
                rows = _without(piece, again)
                if rows.num_rows:
                    producer.commit(chain(self._outputs(rows), self._markers(acks, again)), [], deadline)
                self._tell(again)
                return
            except Uncertain as failed:
                producer.wait(failed, deadline)
            except TrackerFenced as overtaken:
                log.debug(
                    "Another task writes outputs of the same partitions. event=output_conflict id=%s", name
                )
                turns.yield_to(overtaken)
            except KafkaRefused as refused:
                if (why := why_too_large(refused)) is None:
                    raise
                raise self._too_large(piece, why) from refused

    def _acks(self, piece: pa.RecordBatch) -> list[End]:
        settlement = Settlement(self._options)
        ids = piece.filter(pc.invert(piece.column(IS_OUTPUT)))
        settlement.add(pa.table({name: ids.column(own) for name, own in zip(MESSAGE_ID, ID, strict=True)}))
        markers = of_topics(settlement.markers(), self._options.topic_ids)
        return [marker for marker in markers if isinstance(marker, End)]

    def _outputs(self, rows: pa.RecordBatch) -> Iterator[Record]:
        written = rows.filter(rows.column(IS_OUTPUT))
        for topic, key, value, partition, headers in messages(written, self._output.topic):
            yield Record(topic, partition, key, value, headers or ())

    def _markers(self, acks: Iterable[End], again: Mapping[Cell, OffsetSet]) -> Iterator[Record]:
        for ack in acks:
            cell, offsets = ack.cell, ack.offsets - again.get(ack.cell, EMPTY)
            if offsets:
                home = cell.control_partition(self._partitions)
                for value in marker_values(replace(ack, offsets=offsets)):
                    yield Record(self._options.markers_topic, home, cell.key, value)

    def _tell(self, again: Mapping[Cell, OffsetSet]) -> None:
        if again:
            log.info(
                "Messages came again whose outputs are written, or that have ended. They are not written "
                "again. event=already_written subscription=%s messages=%d",
                *(self._options.subscription, sum(map(len, again.values()))),
            )

    def _too_large(self, piece: pa.RecordBatch, why: str) -> MessageRefused:
        written = piece.filter(piece.column(IS_OUTPUT))
        size, topic = max(
            (size_of(key, value, headers), topic)
            for topic, key, value, _, headers in messages(written, self._output.topic)
        )
        return MessageRefused(topic, None, size, why)


def _without(piece: pa.RecordBatch, ended: Mapping[Cell, OffsetSet]) -> pa.RecordBatch:
    """Returns the rows of all other messages."""
    if not ended:
        return piece
    topics, partitions, offsets = (piece.column(name) for name in ID)
    left = np.ones(piece.num_rows, bool)
    for cell, gone in ended.items():
        of_cell = pc.and_(pc.equal(topics, cell.topic), pc.equal(partitions, cell.partition))
        numbers = np.asarray(gone.to_array(), np.int64)
        left &= ~(of_cell.to_numpy(zero_copy_only=False) & np.isin(offsets.to_numpy(), numbers))
    return piece.filter(pa.array(left))


_producers: ClientPool[FencedProducers] = ClientPool(FencedProducers.close)
