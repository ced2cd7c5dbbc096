"""Check that all members of a subscription read messages of the same queue id."""

from __future__ import annotations

from collections.abc import Iterable

from spark_cursor_source.core.member_name import MemberName, reads_of
from spark_cursor_source.errors import QueueIdConflict


def check_queue_id(name: MemberName, group: str, members: Iterable[str]) -> None:
    """Checks that a member reads the same messages as the other ``members`` of its group.

    ``members`` are their names, or the metadata of the offsets that they committed. Texts of other programs
    are ignored.

    Raises:
        QueueIdConflict: one of the members has or had another queue id.
    """
    mine = name.reads
    for text in sorted(set(members)):
        theirs, other = reads_of(text), MemberName.parse(text)
        if theirs not in (None, mine):
            read, others = (f"queueId={word}" if word else "all messages" for word in (mine, theirs))
            earlier = "an earlier member" if other is None else described(other)
            raise QueueIdConflict(group, read, others, earlier)


def described(name: MemberName) -> str:
    """Returns a text that shows an operator which process the member is."""
    return (
        f"query {name.query_id} ({name.type.value}) on host {name.host}, process"
        f" {name.process.partition('@')[0]}, since {name.since}"
    )
