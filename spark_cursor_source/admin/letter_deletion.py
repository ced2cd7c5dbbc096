"""Deletion of dead letters."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from spark_cursor_source.admin.dead_letters import DeadLetterFilter
from spark_cursor_source.admin.letter_log import DELETED, LetterLog
from spark_cursor_source.admin.letter_pass import LetterPass
from spark_cursor_source.core.counted import counted
from spark_cursor_source.core.names import DEFAULT_CURSORS_TOPIC, DEFAULT_MARKERS_TOPIC
from spark_cursor_source.errors import InvalidArgument, NotAuthorized
from spark_cursor_source.options.arguments import true_or_false
from spark_cursor_source.topics.dead_letters import DeadLetterRecord

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedLetters:
    """Counts of a deletion of dead letters."""

    deleted: int  #: dead letters that are not listed and not redriven from now on
    passed: int  #: dead letters that the filter excludes
    removed: int  #: offsets whose records are no longer in the log
    dry_run: bool = False  #: nothing was deleted

    def __str__(self) -> str:
        letters = counted(self.deleted, "dead letter")
        if self.dry_run:
            return f"{letters} to delete, {self.passed:,} passed over"
        removed = counted(self.removed, "record")
        return f"{letters} deleted, {self.passed:,} passed over; {removed} removed from the log"


def delete_dead_letters(
    kafka: Mapping[str, str],
    topic: str,
    only: DeadLetterFilter | None = None,
    *,
    everything: bool = False,
    dry_run: bool = False,
    author: str | None = None,
    cursors_topic: str = DEFAULT_CURSORS_TOPIC,
    markers_topic: str = DEFAULT_MARKERS_TOPIC,
) -> DeletedLetters:
    """Deletes dead letters of ``topic``: they are neither listed nor redriven any more.

    The cursors topic records which dead letters are deleted. Kafka removes records only from the beginning of
    a partition, so those before the first dead letter that is kept are removed from the log. The records of
    the others stay until all before them are deleted too, or until retention removes them. Dead letters that
    were redriven can be deleted too. With ``dry_run``, nothing is written. ``author`` is who acts, for
    :func:`read_audit`; None: this user and host.

    Without a criterion in ``only``, all dead letters of the topic are deleted. ``everything=True`` says that
    this is meant. Without it, such a call is refused.

    Without the right Delete on the topic, the dead letters are deleted and their records stay.

    Example::

        from spark_cursor_source.admin import DeadLetterFilter, delete_dead_letters

        kafka = {"bootstrap.servers": "broker:9092"}
        print(delete_dead_letters(kafka, "orders-billing-DLQ", DeadLetterFilter(error="^Test"), dry_run=True))

    Raises:
        InvalidArgument: ``only`` has no criterion and ``everything`` is not given, or both are.
        NoDeadLetter: a record of the topic does not name the message that it came from.
        RedriveFenced: a redrive or another deletion of the topic was started.
        TopicNotFound, KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    only = only or DeadLetterFilter()
    _check(only, everything)
    work = LetterPass(kafka, topic, cursors_topic, dry_run=dry_run)
    with closing(work):
        chooser = _Chooser(only)
        work.run(chooser.choose, lambda _: [], deletes=True)
        work.note("delete dead letters:", author, markers_topic)
        removed = 0 if dry_run else _remove(work.log, topic, chooser.first_kept)
    return DeletedLetters(deleted=work.done, passed=chooser.passed, removed=removed, dry_run=dry_run)


def _check(only: DeadLetterFilter, everything: bool) -> None:
    true_or_false("everything", everything)
    if everything and not only.selects_all:
        raise InvalidArgument("everything", everything, "the filter has a criterion; give one of both")
    if only.selects_all and not everything:
        raise InvalidArgument(
            "only",
            only,
            "it has no criterion and selects all dead letters; give one, or everything=True to delete all",
        )


class _Chooser:
    """Chooses the dead letters to delete, and finds the first one that stays in each partition."""

    def __init__(self, only: DeadLetterFilter) -> None:
        self._only = only
        self.passed = 0
        self.first_kept: dict[int, int] = {}

    def choose(self, letters: Sequence[DeadLetterRecord]) -> list[DeadLetterRecord]:
        chosen = []
        for letter in letters:
            if letter.state == DELETED:
                continue
            if self._only.selects(letter):
                chosen.append(letter)
            else:
                self.passed += 1
                self.first_kept.setdefault(letter.partition, letter.offset)
        return chosen


def _remove(letters: LetterLog, topic: str, first_kept: Mapping[int, int]) -> int:
    """Removes the records before the first kept dead letters. Returns the number of removed offsets."""
    ends = {number: first_kept.get(number, letters.end(number)) for number in letters.settled}
    positions = {(topic, number): end for number, end in ends.items() if end > letters.begin(number)}
    try:
        letters.topics.delete_records(positions)
    except NotAuthorized as denied:
        log.warning(
            "The records of deleted dead letters stay in the log. event=dead_letters_not_removed topic=%s "
            "why=%s",
            topic,
            denied,
        )
        return 0
    return sum(end - letters.begin(number) for (_, number), end in positions.items())
