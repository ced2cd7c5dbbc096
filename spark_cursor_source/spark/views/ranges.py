"""Shared code of the views: selection of partitions and cells, and Spark tasks for ranges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from spark_cursor_source.core.batch import Delivery, TopicPartition
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.core.names import holds_dead_letters
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.core.slices import Slice
from spark_cursor_source.core.task_split import split
from spark_cursor_source.errors import InvalidOption
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.options.source import Isolation
from spark_cursor_source.options.topics import Assign, SubscribePattern, TopicSelection
from spark_cursor_source.options.view import ViewOptions
from spark_cursor_source.topics.cursors import CursorTable


@dataclass(frozen=True)
class RangeOfLog(InputPartition):
    """Input of one task: records of one topic partition."""

    slice: Slice


def tasks(ranges: Mapping[TopicPartition, tuple[int, int]], options: ViewOptions) -> list[Slice]:
    """Splits ranges into tasks: one per partition, or more for minPartitions or maxRecordsPerPartition."""
    whole = [
        Delivery(
            cell=Cell(subscription=options.subscription or "", topic=topic, partition=partition),
            offsets=OffsetSet.of(bounds),
            delivery_count=0,
        )
        for (topic, partition), bounds in ranges.items()
        if bounds[0] < bounds[1]
    ]
    pieces = split(
        whole, min_partitions=options.min_partitions, max_records=options.max_records_per_partition
    )
    return [one for task in pieces for one in task]


def whole_topics(names: Iterable[str], options: ViewOptions, topics: ClusterAdmin) -> list[Slice]:
    """Returns tasks for all retained records of the topics. Missing topics are skipped."""
    partitions = [
        (info.name, partition)
        for info in topics.existing(names).values()
        for partition in range(info.partitions)
    ]
    beginnings = topics.beginning_offsets(partitions)
    ends = topics.end_offsets(partitions, committed=options.isolation is Isolation.READ_COMMITTED)
    return tasks({tp: (beginnings[tp], ends[tp]) for tp in partitions}, options)


def queue_partitions(
    options: ViewOptions, selection: TopicSelection, topics: ClusterAdmin
) -> list[TopicPartition]:
    """Returns the selected partitions of the queue topics.

    Raises:
        TopicNotFound: a named topic does not exist.
        InvalidOption: an assigned partition does not exist.
    """
    infos = topics.describe(queue_topics(options, selection, topics))
    if not isinstance(selection, Assign):
        return [(name, n) for name in sorted(infos) for n in range(infos[name].partitions)]
    for name, number in selection.partitions:
        if number >= infos[name].partitions:
            why = f"'{name}' has {infos[name].partitions} partitions, counted from 0"
            raise InvalidOption("assign", f"{name} {number}", why, "assign partitions that there are")
    return list(selection.partitions)


def queue_topics(options: ViewOptions, selection: TopicSelection, topics: ClusterAdmin) -> list[str]:
    """Returns the selected queue topics. Named topics need not exist."""
    match selection:
        case SubscribePattern(pattern=pattern):
            # As in the stream source, a pattern excludes control topics and its own dead-letter topics.
            control = (options.markers_topic, options.redeliveries_topic, options.cursors_topic)
            return [
                name
                for name in topics.matching(pattern)
                if name not in control
                and not holds_dead_letters(options.dead_letter_topic, name, selection.matches)
            ]
        case Assign(partitions=assigned):
            return sorted({topic for topic, _ in assigned})
        case _:
            return list(selection.topics)


def shows(options: ViewOptions, cell: Cell) -> bool:
    """True if the options select this cell."""
    if options.subscription not in (None, cell.subscription):
        return False
    if isinstance(options.topics, Assign):
        return cell.topic_partition in options.topics.partitions
    return options.topics is None or options.topics.matches(cell.topic)


@dataclass(frozen=True)
class ShareOfCells(InputPartition):
    """Input of one task: the cells whose key hash has the remainder ``index`` modulo ``shares``."""

    index: int
    shares: int


ALL_CELLS = ShareOfCells(0, 1)


def shares_of_cells(options: ViewOptions) -> list[ShareOfCells]:
    """Returns the tasks of a view on cursors: one, or minPartitions tasks.

    Each task reads the cursors when it runs. Spark plans a DataFrame of a Python source only once, so cursors
    read at planning time would never change.

    Raises:
        TopicNotFound: the cursors topic does not exist.
        UnknownSubscription, UnknownQueueTopic: cursors exist, but none has the given names.
    """
    check_names(options)
    shares = options.min_partitions or 1
    return [ShareOfCells(index, shares) for index in range(shares)]


def check_names(options: ViewOptions) -> None:
    """Refuses a subscription or topics without a cursor. If no cursor exists at all, all names are accepted.

    Raises:
        TopicNotFound, UnknownSubscription, UnknownQueueTopic
    """
    ClusterAdmin(client_config(options.kafka, "admin")).meet().describe([options.cursors_topic])
    if options.subscription is None and options.topics is None:
        return
    with closing(CursorTable(client_config(options.kafka, "consumer"), options.cursors_topic)) as tail:
        tail.refresh_until(lambda: any(shows(options, cell) for cell in tail.all()))
        cells = list(tail.all())
        if not cells or any(shows(options, cell) for cell in cells):
            return
        named = None if options.topics is None else str(options.topics)
        if options.subscription is not None and tail.of(subscription=options.subscription):
            raise tail.unknown(topic=named)
        raise tail.unknown(subscription=options.subscription, topic=named)


def shown_cursors(options: ViewOptions, share: ShareOfCells = ALL_CELLS) -> list[CursorSnapshot]:
    """Returns the current cursors that the options select.

    Raises:
        TopicNotFound: the cursors topic does not exist.
    """
    tail = CursorTable(client_config(options.kafka, "consumer"), options.cursors_topic)
    try:
        tail.refresh()
        return [
            cursor
            for cell, cursor in tail.all().items()
            if shows(options, cell) and cell.control_partition(share.shares) == share.index
        ]
    finally:
        tail.close()


def reader_config(options: ViewOptions) -> dict[str, str]:
    """Returns the configuration of the consumers in tasks."""
    return client_config(options.kafka, "consumer") | {"isolation.level": options.isolation.value}
