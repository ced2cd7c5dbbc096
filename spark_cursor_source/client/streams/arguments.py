"""Argument checks of the client's methods. They run before any broker request."""

from __future__ import annotations

from collections.abc import Collection

from spark_cursor_source.client.streams.subjects import why_no_subject
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.errors import InvalidArgument
from spark_cursor_source.options.arguments import check_is_text, check_number, check_topic

MAX_PARTITION = 2**31 - 1


def cell_of(cursor_id: str, stream: str, partition: int) -> Cell:
    check_is_text("cursor_id", cursor_id)
    if not cursor_id.isprintable() or not cursor_id:
        raise InvalidArgument("cursor_id", cursor_id, "it is empty, or has characters that cannot be shown")
    check_stream(stream)
    check_number("partition", partition, least=0, most=MAX_PARTITION)
    return Cell(subscription=cursor_id, topic=stream, partition=partition)


def check_stream(stream: str) -> None:
    check_topic("stream", stream)


def check_subject(subject: str, *, wildcards: bool) -> None:
    if (why := why_no_subject(subject, wildcards=wildcards)) is not None:
        raise InvalidArgument("subject", subject, why)


def check_partitions(partitions: Collection[int] | None) -> None:
    if partitions is not None and not partitions:
        raise InvalidArgument("partitions", partitions, "it names none; leave it out for all")
