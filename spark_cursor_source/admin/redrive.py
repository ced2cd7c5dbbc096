"""Redrive of dead letters to the queue topics that they came from."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from spark_cursor_source.admin.dead_letters import DeadLetterFilter
from spark_cursor_source.admin.letter_log import WAITING, LetterLog
from spark_cursor_source.admin.letter_pass import LetterPass
from spark_cursor_source.admin.requeue import Requeuer
from spark_cursor_source.core.counted import counted
from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC, DEFAULT_MARKERS_TOPIC
from spark_cursor_source.kafka.config import client_config
from spark_cursor_source.kafka.transaction import Record
from spark_cursor_source.topics.authors import author_of, new_action
from spark_cursor_source.topics.dead_letters import DeadLetterRecord
from spark_cursor_source.wire.original_time import timestamp_header

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """Counts of a redrive."""

    sent: int  #: messages appended to their queue topics
    passed: int  #: dead letters that the filter excludes or whose queue topic is gone
    #: dead letters redriven or deleted earlier, or whose message was redriven from another dead letter
    before: int = field(default=0, compare=False)
    dry_run: bool = field(default=False, compare=False)  #: nothing was appended

    def __str__(self) -> str:
        done = "to append to" if self.dry_run else "appended to"
        sent = f"{counted(self.sent, 'message')} {done} the queues"
        earlier = f", {self.before:,} redriven before" if self.before else ""
        return f"{sent}, {counted(self.passed, 'dead letter')} passed over{earlier}"


def redrive(
    kafka: Mapping[str, str],
    topic: str,
    only: DeadLetterFilter | None = None,
    *,
    rate: float | None = None,
    to_subscription: str | None = None,
    dry_run: bool = False,
    author: str | None = None,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
    markers_topic: str = DEFAULT_MARKERS_TOPIC,
) -> Redriven:
    """Appends the dead letters of ``topic`` to the queue topics and partitions that they came from.

    Key, value and the message's own headers are unchanged. The timestamp is new, so that the retention of the
    queue topic does not remove an old message. The original timestamp is in the header ``cursorq-timestamp``.
    Every subscription of the queue topic receives a new message, as in SQS's redrive. The dead letters stay
    in ``topic``.

    Each dead letter is redriven once, regardless of filters. The cursors topic records which ones were
    redriven, in one transaction with the messages. A redrive that is started again continues after the last
    transaction and appends no message twice, for read_committed consumers. A dead letter that was written
    twice because of a tracker crash is also redriven once. At most ``rate`` messages per second are appended.
    The redrive ends with the last dead letter present at its start.

    With ``to_subscription``, nothing is appended: the messages become available again for this subscription
    alone, where they are, as if they had never been delivered (RabbitMQ's requeue). Dead letters whose
    message is no longer in its queue topic are passed over. The tracker must be of a version that knows
    the marker REQUEUE; an older one puts it in quarantine.

    With ``dry_run``, nothing is written and
    the counts are those of a redrive now. ``author`` is who acts, for :func:`read_audit`; None: this user and
    host.

    Raises:
        NoDeadLetter: a record of the topic does not name the message that it came from.
        RedriveFenced: another redrive of the topic was started.
        UnknownSubscription, TrackedElsewhere: the tracker has no cursor of ``to_subscription``.
        InvalidArgument: ``rate`` is no number above 0.
        TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    work = LetterPass(kafka, topic, cursors_topic, rate=rate, dry_run=dry_run)
    with closing(work):
        chooser = _Chooser(work.log, only or DeadLetterFilter())
        records: Callable[[Sequence[DeadLetterRecord]], list[Record]] = _records
        if to_subscription is not None:
            again = Requeuer(kafka, work.log.topics, markers_topic, to_subscription)
            again.find(cursors_topic)
            chooser.possible = again.possible
            who = author_of(client_config(kafka, "producer"), author)
            action = new_action(who, f"requeue dead letters of {topic}")

            def records(letters: Sequence[DeadLetterRecord]) -> list[Record]:
                return again.records(letters, action)

        work.run(chooser.choose, records, deletes=False)
        if to_subscription is None:
            work.note("redrive dead letters:", author, markers_topic)
    return Redriven(sent=work.done, passed=chooser.passed, before=chooser.before, dry_run=dry_run)


def _records(letters: Sequence[DeadLetterRecord]) -> list[Record]:
    """Returns the records for the queue topics."""
    return [
        Record(
            letter.origin_topic,
            letter.origin_partition,
            letter.key,
            letter.value,
            [*letter.headers, *timestamp_header(letter.original_ms)],
        )
        for letter in letters
    ]


class _Chooser:
    """Chooses the dead letters to redrive, and counts the others."""

    def __init__(self, letters: LetterLog, only: DeadLetterFilter) -> None:
        self._letters, self._only = letters, only
        self._queues: dict[str, int] = {}  # partition count by queue topic; 0 if the topic is gone
        self.passed = self.before = 0
        #: selects the dead letters that can be redriven
        self.possible: Callable[[Sequence[DeadLetterRecord]], list[DeadLetterRecord]] = list

    def choose(self, letters: Sequence[DeadLetterRecord]) -> list[DeadLetterRecord]:
        chosen = []
        for letter in letters:
            if letter.state != WAITING or letter.id in self._letters.seen:
                self.before += 1
            elif self._only.selects(letter) and self._has_queue(letter):
                self._letters.seen.add(letter.id)
                chosen.append(letter)
            else:
                self.passed += 1
        possible = self.possible(chosen)
        self.passed += len(chosen) - len(possible)
        return possible

    def _has_queue(self, letter: DeadLetterRecord) -> bool:
        if letter.origin_partition < self._partitions_of(letter.origin_topic):
            return True
        log.warning(
            "The queue partition of a dead letter does not exist. The dead letter is skipped. "
            "event=queue_partition_missing topic=%s partition=%s",
            letter.origin_topic,
            letter.origin_partition,
        )
        return False

    def _partitions_of(self, topic: str) -> int:
        if topic not in self._queues:
            found = self._letters.topics.existing([topic]).get(topic)
            self._queues[topic] = 0 if found is None else found.partitions
        return self._queues[topic]
