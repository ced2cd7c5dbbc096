"""Members of a subscription's consumer group, with their parsed names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spark_cursor_source.core.member_name import MemberName
from spark_cursor_source.kafka.admin import ClusterAdmin, Partition
from spark_cursor_source.kafka.group_admin import GroupMemberInfo
from spark_cursor_source.kafka.group_member import SOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedMember:
    """A group member, with its parsed name if it is a member of this package."""

    info: GroupMemberInfo
    name: MemberName | None

    def __str__(self) -> str:
        if self.name is None:
            return f"a consumer '{self.info.client_id}' on host {self.info.host}"
        return f"query {self.name.query_id} on host {self.name.host}, since {self.name.since}"


def named_members(topics: ClusterAdmin, group: str, partitions: Iterable[Partition]) -> list[NamedMember]:
    """Returns the members of a group, sorted by client id.

    ``partitions`` are the partitions with committed offsets of the group.
    """
    members = []
    for info in sorted(
        topics.group_members(group), key=lambda member: (member.client_id, sorted(member.partitions))
    ):
        names = {info.client_id}
        if (info.instance_id or "").startswith(SOLE):
            # The broker lists a static member with the client.id of its first predecessor. Its commits
            # contain its own name.
            committed = topics.committed_with_metadata(group, partitions)
            names = {
                offset.metadata for offset in committed.values() if MemberName.parse(offset.metadata)
            } or names
        name = next(filter(None, map(MemberName.parse, sorted(names))), None)
        members.append(NamedMember(info=info, name=name))
    return members
