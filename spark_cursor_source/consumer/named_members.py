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
    return with_names(topics, group, topics.group_members(group), partitions)


def is_named_by_commits(info: GroupMemberInfo) -> bool:
    """Tells whether the name of a member is in the commits of its group only."""
    return (info.instance_id or "").startswith(SOLE)


def with_names(
    topics: ClusterAdmin, group: str, infos: Iterable[GroupMemberInfo], partitions: Iterable[Partition]
) -> list[NamedMember]:
    """Returns these members of a group with their names, sorted by client id."""
    members = []
    for info in sorted(infos, key=lambda member: (member.client_id, sorted(member.partitions))):
        names = {info.client_id}
        if is_named_by_commits(info):
            # The broker lists a static member with the client.id of its first predecessor. Its commits
            # contain its own name.
            committed = topics.committed_with_metadata(group, partitions)
            names = {
                offset.metadata for offset in committed.values() if MemberName.parse(offset.metadata)
            } or names
        name = next(filter(None, map(MemberName.parse, sorted(names))), None)
        members.append(NamedMember(info=info, name=name))
    return members
