"""Access rights of the tracker: checked at its start, and later for new subscriptions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from spark_cursor_source.core.cell import Cell
from spark_cursor_source.errors import KafkaRefused
from spark_cursor_source.kafka.admin import ClusterAdmin
from spark_cursor_source.kafka.error_codes import acl
from spark_cursor_source.kafka.rights import DESCRIBE, READ, WRITE, of_dead_letters, of_rescue, of_tracker
from spark_cursor_source.options.tracker import TrackerOptions
from spark_cursor_source.topics.tracker_progress import tracker_group

log = logging.getLogger(__name__)


class TrackerRights:
    """Checks the tracker's ACLs. Missing rights of a single subscription are only logged."""

    def __init__(self, options: TrackerOptions, topics: ClusterAdmin) -> None:
        self._options, self._topics = options, topics
        self._looked: set[tuple[str, str]] = set()  # checked pairs of (queue topic, subscription)

    def check(self, read_cells: Callable[[], Iterable[Cell]]) -> None:
        """Checks the rights to the control topics, the consumer group and the transactional id.

        ``read_cells`` is called if the cursors topic may be read.

        Raises:
            NotAuthorized: rights are missing. The error names all of them, including rights to dead-letter
                and queue topics if the cursors can be read.
        """
        options = self._options
        own = of_tracker(
            markers=options.markers_topic,
            redeliveries=options.redeliveries_topic,
            cursors=options.cursors_topic,
        )
        if options.rescue_before_ms is not None:
            own |= of_rescue(options.rescue_topic)
        if options.reappend is not None:
            queue, letters = options.reappend.queue_topic, options.reappend.dead_letter_topic
            own |= of_dead_letters({queue: [letters]}) | {queue: (DESCRIBE, READ, WRITE)}
        missing = self._topics.missing_rights(own)
        if missing and not {acl(one, options.cursors_topic) for one in (DESCRIBE, READ)} & set(missing):
            own |= of_dead_letters(self._letters(read_cells()))
        in_transactions = acl(WRITE, self._group, "transactional-id")
        self._topics.check_rights(own, group=self._group, stable=False, unknown=[in_transactions])

    def look(self, cells: Iterable[Cell]) -> None:
        """Logs missing rights to write the dead letters of subscriptions that were not checked before."""
        new = {(cell.topic, cell.subscription): cell for cell in cells}
        new = {pair: cell for pair, cell in new.items() if pair not in self._looked}
        if not new:
            return
        self._looked |= new.keys()
        try:
            missing = self._topics.missing_rights(of_dead_letters(self._letters(new.values())))
        except KafkaRefused as why:
            log.warning("The rights of the tracker could not be read. event=rights_unknown why=%s", why)
            return
        for (topic, subscription), cell in new.items() if missing else ():
            rights = of_dead_letters(self._letters([cell]))
            own = [acl(one, name) for name, operations in rights.items() for one in operations]
            if lacking := [right for right in own if right in missing]:
                log.error(
                    "The tracker lacks rights and cannot write dead letters. Grant them with "
                    "kafka-acls.sh --add --allow-principal User:... event=rights_missing topic=%s "
                    "subscription=%s grant=%s",
                    *(topic, subscription, "; ".join(lacking)),
                )

    @property
    def _group(self) -> str:
        return tracker_group(self._options.markers_topic)

    def _letters(self, cells: Iterable[Cell]) -> dict[str, set[str]]:
        letters: dict[str, set[str]] = {}
        for cell in cells:
            policy = self._options.policy_for(cell.subscription)
            name = policy.dead_letter_topic_for(topic=cell.topic, subscription=cell.subscription)
            letters.setdefault(cell.topic, set()).add(name)
        return letters
