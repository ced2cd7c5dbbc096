"""One pass over a dead-letter topic that settles dead letters: a redrive or a deletion."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from spark_cursor_source.admin.letter_log import AT_ONCE, LetterLog
from spark_cursor_source.core.cell import Cell
from spark_cursor_source.core.marker import EndUpTo
from spark_cursor_source.core.offsets import OffsetSet
from spark_cursor_source.errors import InvalidArgument, NotAuthorized, RedriveFenced, TrackerFenced
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.deadline import PATIENCE_MS, Deadline
from spark_cursor_source.kafka.transaction import Record, TransactionalProducer, Uncertain
from spark_cursor_source.topics.authors import author_of, new_action
from spark_cursor_source.topics.dead_letters import DeadLetterRecord
from spark_cursor_source.topics.markers import MarkerSender
from spark_cursor_source.wire.redriven import SettledLetters

log = logging.getLogger(__name__)

Choose = Callable[[Sequence[DeadLetterRecord]], Sequence[DeadLetterRecord]]


class LetterPass:
    """Settles the chosen dead letters of one topic, in transactions. Not thread-safe.

    A transaction holds the records for some dead letters, and the note in the cursors topic that they are
    settled. A pass that is started again continues after the last transaction. A dry run writes nothing and
    fences no other pass.
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        topic: str,
        cursors_topic: str,
        *,
        rate: float | None = None,
        dry_run: bool = False,
    ) -> None:
        if rate is not None and not 0 < rate < math.inf:
            raise InvalidArgument("rate", rate, "it is not a number of messages per second above 0")
        self._topic, self._cursors_topic = topic, cursors_topic
        self._rate, self._dry_run = rate, dry_run
        self.log = LetterLog(kafka, topic, cursors_topic)
        self._producer = TransactionalProducer(client_config(kafka, "producer"), f"cursorq-redrive-{topic}")
        self._config = client_config(kafka, "producer")
        self._settled: Counter[tuple[str, str]] = Counter()  # by subscription and queue topic

    @property
    def done(self) -> int:
        """Number of settled dead letters."""
        return self._settled.total()

    def run(
        self, choose: Choose, records: Callable[[Sequence[DeadLetterRecord]], list[Record]], *, deletes: bool
    ) -> None:
        """Settles the dead letters that ``choose`` returns, and writes their ``records``.

        Raises:
            RedriveFenced: another pass over the topic was started.
            NoDeadLetter, TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
        """
        at_once = AT_ONCE if self._rate is None else max(1, min(AT_ONCE, int(self._rate)))
        began = time.monotonic()
        try:
            self._open()
            for number, letters in self.log.walk(at_once=at_once):
                if chosen := choose(letters):
                    self._settled.update((one.subscription, one.origin_topic) for one in chosen)
                    if not self._dry_run:
                        self._commit(number, chosen, records(chosen), deletes=deletes)
                        if self._rate is not None:
                            time.sleep(max(0.0, began + self.done / self._rate - time.monotonic()))
        except TrackerFenced as fenced:
            raise RedriveFenced(self._topic) from fenced

    def note(self, what: str, author: str | None, markers_topic: str) -> None:
        """Notes the action for the audit list, with a marker that changes nothing.

        Without the right to write markers, or without a markers topic, there is no note.
        """
        if self._dry_run or not self._settled:
            return
        markers = [
            (EndUpTo(cell=Cell(subscription=subscription, topic=topic, partition=0), position=0), count)
            for (subscription, topic), count in sorted(self._settled.items())
            if subscription
        ]
        who = author_of(self._config, author)
        try:
            info = self.log.topics.existing([markers_topic]).get(markers_topic)
            if info is None:
                return
            with closing(MarkerSender(self._config, markers_topic, info.partitions)) as sender:
                for marker, count in markers:
                    action = new_action(who, f"{what} {count} of {self._topic}")
                    sender.send([marker], action.headers())
                sender.flush()
        except NotAuthorized as denied:
            log.info(
                "The action is not in the audit list. event=audit_not_written topic=%s why=%s",
                markers_topic,
                denied,
            )

    def close(self) -> None:
        """Closes the clients."""
        self._producer.discard()
        self.log.close()

    def _open(self) -> None:
        info = self.log.describe()
        if not self._dry_run:
            self.log.topics.ensure_cursors(self._cursors_topic)
            # before the notes are read: a pass that is fenced now cannot add to them
            self._producer.open(Deadline.after_ms(PATIENCE_MS))
        self.log.load(info)

    def _commit(
        self, number: int, letters: Sequence[DeadLetterRecord], written: list[Record], *, deletes: bool
    ) -> None:
        before, store = self.log.settled[number], self.log.store
        offsets = OffsetSet.from_offsets(letter.offset for letter in letters)
        gone = OffsetSet.of((0, self.log.begin(number)))
        after = SettledLetters(
            before.offsets | gone | offsets, before.deleted | offsets if deletes else before.deleted
        )
        deadline = Deadline.after_ms(PATIENCE_MS)
        while True:
            try:
                self._producer.commit([*written, *store.records(number, after)], [], deadline)
                break
            except Uncertain as failed:
                self._producer.wait(failed, deadline)
                self._producer.open(deadline)
                now = store.read()[number]
                if now == after:
                    break  # the commit succeeded, but its response was lost
                if now != before:
                    raise RedriveFenced(self._topic) from failed  # another pass has committed since
        self.log.settled[number] = after
