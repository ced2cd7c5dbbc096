"""Columns that identify the message of a row."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from spark_cursor_source.errors import MissingColumns
from spark_cursor_source.options.ack import AckAction, AckOptions
from spark_cursor_source.options.marker_format import MarkerVersion

MESSAGE_ID = ("topic", "partition", "offset")
#: the key is the queue id, which determines the partition of the markers
MESSAGE_ID_V1 = ("key", *MESSAGE_ID)
LEAVE = "leave"


def needed_columns(options: AckOptions, *, by_column: bool = False) -> tuple[str, ...]:
    """Returns the columns that the action of the options needs.

    With ``by_column``, returns the columns for any action in a column ``action``.

    >>> from spark_cursor_source.options.kafka import KafkaOptions
    >>> options = AckOptions(kafka=KafkaOptions({}), subscription="s", lease_ms=60_000)
    >>> needed_columns(options), needed_columns(options, by_column=True)[-1]
    (('topic', 'partition', 'offset'), 'delivery_count')
    """
    if options.marker_version is MarkerVersion.V1:
        return MESSAGE_ID_V1
    if options.action in (None, AckAction.ACK) and not by_column:
        return MESSAGE_ID
    return (*MESSAGE_ID, "delivery_count")


def require_columns(columns: Sequence[str], needed: Collection[str], what: str) -> None:
    """Rejects rows that lack columns of the message id or of the delivery.

    Raises:
        MissingColumns
    """
    missing = tuple(name for name in needed if name not in columns)
    if missing:
        raise MissingColumns(what, missing, tuple(columns))
