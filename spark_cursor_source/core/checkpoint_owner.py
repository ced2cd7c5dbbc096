"""Owner of the positions in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_cursor_source.errors import CheckpointOfAnother


@dataclass(frozen=True, slots=True)
class CheckpointOwner:
    """Options that identify the subscription of a query and its control topics.

    The positions in a checkpoint are valid for this subscription only. Another subscription that resumed from
    them would skip the messages below them.

    >>> owner = CheckpointOwner({"subscription": "billing", "markersTopic": "markers"})
    >>> owner.check(CheckpointOwner({"subscription": "billing"}))
    >>> owner.check(None)
    >>> owner.check(CheckpointOwner({"subscription": "mails"}))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    spark_cursor_source.errors.source.CheckpointOfAnother: This checkpoint was written with ...
    """

    options: Mapping[str, str]

    def check(self, written_by: CheckpointOwner | None) -> None:
        """Rejects a checkpoint of another owner.

        A checkpoint without an owner is from an older version and passes.

        Raises:
            CheckpointOfAnother: an option differs from the option that the checkpoint was written with.
        """
        if written_by is None:
            return
        for option, now in self.options.items():
            was = written_by.options.get(option, now)
            if was != now:
                raise CheckpointOfAnother(option, was, now)
