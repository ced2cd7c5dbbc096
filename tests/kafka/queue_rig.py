"""A queue topic with control topics of its own, and how its cursors are looked at."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.cursor import CursorSnapshot
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.topics.cursors import CursorTable
from spark_cursor_source.tracker import Tracker
from tests.kafka.control_plane import Control
from tests.waiting import wait_until


@dataclass
class QueueRig:
    """A queue topic, its control topics, and what a test opens on them, which ends with the test."""

    control: Control
    partitions: int
    stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        self.topics = ClusterAdmin(self.control.config)
        self.topics.create({self.topic: (self.partitions, {})})
        self._tail = CursorTable(self.control.config, self.control.cursors)
        self.stack.callback(self._tail.close)

    @property
    def topic(self) -> str:
        return self.control.queue

    @property
    def source_options(self) -> dict[str, Any]:
        """The options of a query of subscription ``s``."""
        control = self.control
        return control.options(subscribe=self.topic, subscription="s", groupIdPrefix=control.group_prefix)

    def recreate(self, **settings: object) -> None:
        """Delete the queue topic, and create it again, with these settings."""
        self.topics.delete(self.topic)
        self.topics.create({self.topic: (self.partitions, settings)})

    def tracker(self, **options: object) -> None:
        """Run a tracker until the test ends."""
        given = self.control.options(trigger="50ms", takeOver="true")
        self.stack.enter_context(Tracker(given | options))

    def cell(self, partition: int = 0, subscription: str = "s") -> Cell:
        return Cell(subscription=subscription, topic=self.topic, partition=partition)

    def cursor(self, partition: int = 0, subscription: str = "s") -> CursorSnapshot | None:
        """The cursor of a partition as it is now."""
        self._tail.refresh()
        return self._tail.get(self.cell(partition, subscription))

    def cursors(self, subscription: str = "s") -> list[CursorSnapshot]:
        """Those of all partitions that have one."""
        found = [self.cursor(partition, subscription) for partition in range(self.partitions)]
        return [one for one in found if one is not None]

    def until_known(self) -> None:
        """Wait until the tracker has written the cursor of each partition."""
        wait_until(lambda: len(self.cursors()) == self.partitions)

    def until(self, condition: Callable[[CursorSnapshot], Any], partition: int = 0) -> None:
        """Wait until the cursor of a partition is so."""
        wait_until(lambda: (one := self.cursor(partition)) is not None and condition(one))

    def all_acked(self, count: int, subscription: str = "s") -> None:
        """Wait until the tracker has read the acks of so many messages, and knows of no other."""

        def done() -> bool:
            cursors = self.cursors(subscription)
            return sum(one.totals.acked for one in cursors) >= count and not any(
                one.outstanding for one in cursors
            )

        wait_until(done)
