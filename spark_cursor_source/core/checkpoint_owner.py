"""Whose positions a checkpoint holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_cursor_source.errors import CheckpointOfAnother


@dataclass(frozen=True, slots=True)
class CheckpointOwner:
    """The subscription of a query and its control topics, by the options that name them.

    The positions in a checkpoint mean something to this subscription only: another one that went on from them
    would never see the messages below.

    >>> owner = CheckpointOwner({"subscription": "billing", "markersTopic": "markers"})
    >>> owner.check(CheckpointOwner({"subscription": "billing"}))
    >>> owner.check(None)
    >>> owner.check(CheckpointOwner({"subscription": "mails"}))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    spark_cursor_source.errors.source.CheckpointOfAnother: this checkpoint was written with ...
    """

    options: Mapping[str, str]

    def check(self, written_by: CheckpointOwner | None) -> None:
        """Refuse a checkpoint of somebody else; one that names nobody was written by an older version.

        Raises:
            CheckpointOfAnother
        """
        if written_by is None:
            return
        for option, now in self.options.items():
            was = written_by.options.get(option, now)
            if was != now:
                raise CheckpointOfAnother(option, was, now)
