"""Name of a member of a subscription's consumer group, in a form that Kafka's own tools show."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from urllib.parse import quote

from spark_cursor_source.core.subscription_type import SubscriptionType

_MARK = "cursorq"
_READS = ";"  # earlier versions of this package take it for a part of the time
_LONGEST = 200  # characters of a queue id in a name; offsets have room for 4,096 bytes of metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberName:
    """Identity of a member: its client.id, and the metadata of the offsets that it commits.

    >>> name = MemberName(
    ...     type=SubscriptionType.SHARED, host="web-7", process="41@4026531836", query_id="q1",
    ...     since="2026-01-31T08:30:00Z")
    >>> str(name)
    'cursorq shared web-7 41@4026531836 q1 2026-01-31T08:30:00Z'
    >>> MemberName.parse(str(name)) == name, MemberName.parse("rdkafka")
    (True, None)
    >>> from dataclasses import replace
    >>> of_mails = replace(name, reads=word_of_queue("new mails"))
    >>> str(of_mails).split()[-1], MemberName.parse(str(of_mails)) == of_mails
    ('2026-01-31T08:30:00Z;new%20mails', True)
    """

    type: SubscriptionType
    host: str
    process: str  #: process id, boot id of the machine, and process id namespace
    query_id: str  #: run id of its planner or queue client
    since: str  #: start time by the clock of the host, ISO 8601, for display only
    #: :func:`word_of_queue` of the messages that it reads; None if an earlier version wrote the name
    reads: str | None = None

    def __str__(self) -> str:
        parts = (_MARK, self.type.value, self.host, self.process, self.query_id, self.since)
        return " ".join(parts) + self.farewell

    @property
    def farewell(self) -> str:
        """Metadata of the offsets that a sole member commits when it leaves: without the name."""
        return "" if self.reads is None else f"{_READS}{self.reads}"

    @classmethod
    def parse(cls, text: str) -> MemberName | None:
        """Returns the name in a text, or None if the text is not a member name of this library."""
        mark, *parts = text.split(" ")
        if mark != _MARK or len(parts) != 5 or parts[0] not in list(SubscriptionType):
            return None
        kind, host, process, query_id, last = parts
        since, mark, reads = last.partition(_READS)
        return cls(
            type=SubscriptionType(kind),
            host=host,
            process=process,
            query_id=query_id,
            since=since,
            reads=reads if mark else None,
        )


def word_of_queue(queue_id: str | None) -> str:
    """Returns a word without spaces for a queue id, or an empty one for all messages of a topic.

    >>> word_of_queue("a b"), word_of_queue(None), word_of_queue("x" * 999)[:7]
    ('a%20b', '', 'sha256:')
    """
    if queue_id is None:
        return ""
    word = quote(queue_id, safe="")
    return word if len(word) <= _LONGEST else f"sha256:{hashlib.sha256(queue_id.encode()).hexdigest()}"


def reads_of(metadata: str) -> str | None:
    """Returns the word of the queue in a member's name or farewell. None if the text has no such word.

    >>> [reads_of(text) for text in (";mails", ";", "", "kcat;1")]
    ['mails', '', None, None]
    """
    if not metadata.startswith(_READS) and MemberName.parse(metadata) is None:
        return None
    _, mark, word = metadata.rpartition(_READS)
    return word if mark else None
