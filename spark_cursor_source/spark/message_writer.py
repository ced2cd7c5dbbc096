"""``df.write.format("cursorq").option("topic", ...)``: appends each row to a queue topic as a message."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from spark_cursor_source.errors import OverwriteRefused
from spark_cursor_source.kafka.admin import meet_brokers
from spark_cursor_source.kafka.collector import collector_paused
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.options.publish import EnqueueOptions
from spark_cursor_source.spark.message_rows import check_columns, messages, targets
from spark_cursor_source.topics.message_sender import MessageSender, borrowed_sender
from spark_cursor_source.topics.streams import borrowed_states
from spark_cursor_source.topics.write_rights import check_write_rights


@dataclass
class Enqueued(WriterCommitMessage):
    """Commit message of a task: the number of messages that the brokers have confirmed."""

    rows: int


class EnqueuedRows:
    """Task that sends rows with the columns key, value, headers, topic, partition and deliverAt.

    Other columns are ignored. Delivery is at least once: a repeated Spark task or a replayed batch sends its
    rows again.

    Raises:
        NoMessageColumn, UnfitMessageColumn
        NotAuthorized: rights to the streams topic or the topic of the options are missing. The error lists
            all of them.
    """

    def __init__(self, options: EnqueueOptions, schema: StructType) -> None:
        check_columns(schema, topic=options.topic)
        self._options = options
        check_rights(options)

    def write(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Sends every row. On return, every in-sync replica has stored the messages.

        Raises:
            UnfitMessageColumn: a row has no topic, or has a header without a key.
            ReadonlyPartition: a target partition, or a partition that a row's key may select, is readonly.
            TopicNotFound, NoSuchPartition, MessageRefused, NotAuthorized, MessagesNotDurable
        """
        topic, sent = self._options.topic, 0
        with admitted(self._options) as (sender, admit):
            for batch in batches:
                admit(batch)
                with collector_paused():
                    sender.send(messages(batch, topic))
                sent += batch.num_rows
            sender.flush()
        return Enqueued(sent)


def check_rights(options: EnqueueOptions, more: Collection[str] = ()) -> None:
    """Checks the rights to write to the topic of the options and to ``more`` topics.

    Raises:
        NotAuthorized: rights are missing. The error lists all of them.
    """
    topics = {*more} if options.topic is None else {options.topic, *more}
    check_write_rights(options.kafka, options.streams_topic, topics)


@contextmanager
def admitted(
    options: EnqueueOptions,
) -> Iterator[tuple[MessageSender, Callable[[pa.RecordBatch], None]]]:
    """Lends a sender, and a function that checks whether the rows of a batch can be written.

    The function raises:
        UnfitMessageColumn, ReadonlyPartition, TopicNotFound, NoSuchPartition, NotAuthorized
    """
    with (
        borrowed_states(options.kafka, options.streams_topic) as states,
        borrowed_sender(client_config(options.kafka, "producer")) as sender,
    ):

        def admit(batch: pa.RecordBatch) -> None:
            places = targets(batch, options.topic)
            if options.topic is None:
                check_rights(options, {name for name, _ in places})
            for name, partition in places:
                sender.admit(name, partition)
                states.admit(name, partition)

        yield sender, admit


class EnqueueWriter(EnqueuedRows, DataSourceArrowWriter):
    """Batch writer of messages.

    ``df.write.format("cursorq").option("topic", "orders").mode("append").save()``

    Raises:
        OverwriteRefused: the mode is overwrite.
        KafkaUnavailable: the brokers are unreachable.
    """

    def __init__(self, options: EnqueueOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OverwriteRefused("messages")
        meet_brokers(options.kafka)
        super().__init__(options, schema)


class EnqueueStreamWriter(EnqueuedRows, DataSourceStreamArrowWriter):
    """Streaming writer of messages: ``df.writeStream.format("cursorq").option("topic", "orders")``.

    Spark creates a writer for each micro-batch. The writer therefore waits for unavailable brokers, as a
    running query does. In complete mode, each batch appends the whole result, as in Spark's Kafka sink.
    """
