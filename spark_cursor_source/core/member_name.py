"""Name of a member of a subscription's consumer group, in a form that Kafka's own tools show."""

from __future__ import annotations

from dataclasses import dataclass

from spark_cursor_source.core.subscription_type import SubscriptionType

_MARK = "cursorq"


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
    """

    type: SubscriptionType
    host: str
    process: str  #: process id, boot id of the machine, and process id namespace
    query_id: str  #: run id of its planner or queue client
    since: str  #: start time by the clock of the host, ISO 8601, for display only

    def __str__(self) -> str:
        return f"{_MARK} {self.type.value} {self.host} {self.process} {self.query_id} {self.since}"

    @classmethod
    def parse(cls, text: str) -> MemberName | None:
        """Returns the name in a text, or None if the text is not a member name of this library."""
        mark, *parts = text.split(" ")
        if mark != _MARK or len(parts) != 5 or parts[0] not in list(SubscriptionType):
            return None
        kind, host, process, query_id, since = parts
        return cls(type=SubscriptionType(kind), host=host, process=process, query_id=query_id, since=since)
