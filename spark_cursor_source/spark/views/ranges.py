"""What the views have in common: which partitions and cells they show, and ranges made into Spark tasks."""

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
    """Records of one topic partition that one task reads."""

    slice: Slice


def tasks(ranges: Mapping[TopicPartition, tuple[int, int]], options: ViewOptions) -> list[Slice]:
    """Ranges as tasks: one a partition, more where minPartitions or maxRecordsPerPartition ask for it."""
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
    """All records that are left in those of the topics that exist, as tasks."""
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
    """The partitions of the queue topics that the options select.

    Raises:
        TopicNotFound: a topic that is named does not exist.
        InvalidOption: a partition that is assigned does not.
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
    """The queue topics that the options select; those that are named need not exist."""
    match selection:
        case SubscribePattern(pattern=pattern):
            # As the source does it: a pattern takes in neither control topics nor its own dead letters.
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
    """Whether the options select what is kept for this cell."""
    if options.subscription not in (None, cell.subscription):
        return False
    if isinstance(options.topics, Assign):
        return (cell.topic, cell.partition) in options.topics.partitions
    return options.topics is None or options.topics.matches(cell.topic)


@dataclass(frozen=True)
class ShareOfCells(InputPartition):
    """The cells that one task looks after: those whose key has this remainder."""

    index: int
    shares: int


ALL_CELLS = ShareOfCells(0, 1)


def shares_of_cells(options: ViewOptions) -> list[ShareOfCells]:
    """The tasks of a view that is made from cursors: one, or as many as minPartitions asks for.

    They read the cursors when they run: Spark plans a DataFrame of a Python source once, and one that had
    its cursors from then on would never show that anything moves.

    Raises:
        TopicNotFound: there is no cursors topic.
        UnknownSubscription, UnknownQueueTopic: there are cursors, and none of the given names.
    """
    check_names(options)
    shares = options.min_partitions or 1
    return [ShareOfCells(index, shares) for index in range(shares)]


def check_names(options: ViewOptions) -> None:
    """Refuse a subscription and topics of which there is no cursor; where there is none at all, they are new.

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
    """The cursors that the options select, as they are now.

    Raises:
        TopicNotFound: there is no cursors topic.
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
    """Of the consumers that tasks read with."""
    return client_config(options.kafka, "consumer") | {"isolation.level": options.isolation.value}
