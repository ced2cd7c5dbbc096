"""Members of a consumer group, and deletion of a group.

An AdminClient's requests about one group (DescribeConsumerGroups, DeleteGroups and those about offsets) abort
the process with SIGABRT if the connection to the group coordinator breaks, or if the response arrives after
their timeout (librdkafka issue 4605, reproduced within seven restarts of a broker). The members are therefore
read with the older ``list_groups``, which does not crash. No other request can delete a group, so the
deletion runs in a separate process, ``python -m`` this module, which may crash.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from spark_cursor_source.errors import GroupInUse, InvalidControlRecord
from spark_cursor_source.kafka.admin_requests import AdminRequests
from spark_cursor_source.kafka.config import open_client
from spark_cursor_source.kafka.deadline import Deadline
from spark_cursor_source.kafka.error_codes import RETRIABLE, error_of, refusal

_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")


def decode_assignment(data: bytes) -> tuple[tuple[str, int], ...]:
    """Return the assigned partitions, sorted. Empty for a member without an assignment.

    >>> decode_assignment(bytes.fromhex("0000 00000001 0001 71 00000002 00000003 00000000 00000000"))
    (('q', 0), ('q', 3))
    >>> decode_assignment(b"")
    ()

    Raises:
        InvalidControlRecord: the bytes are not an assignment.
    """
    if not data:
        return ()
    found: list[tuple[str, int]] = []
    try:
        at = _SHORT.size  # skip the version, because later versions only append fields
        (topics,) = _INT.unpack_from(data, at)
        at += _INT.size
        for _ in range(topics):
            (length,) = _SHORT.unpack_from(data, at)
            at += _SHORT.size
            topic = data[at : at + length].decode()
            at += length
            (count,) = _INT.unpack_from(data, at)
            at += _INT.size
            found += [(topic, *_INT.unpack_from(data, at + _INT.size * n)) for n in range(count)]
            at += _INT.size * count
    except (struct.error, UnicodeDecodeError) as cause:
        raise InvalidControlRecord("no assignment of Kafka's consumer protocol") from cause
    return tuple(sorted(found))


_DESCRIBE = "describe group"
_DELETE = "delete group"
_ONE_REQUEST_S = 10.0
_FIRST_REQUEST_S = 2.0  # a request waits for a dead broker until its timeout; each one is longer
_PAUSE_S = 0.1
_START_S = 10.0  # time for a process to start and end
_UUID_CHARS = 37  # length of the suffix of a member id, with its dash
_NO_GROUP = frozenset({KafkaError.GROUP_ID_NOT_FOUND})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMemberInfo:
    """Member of a consumer group, with a heartbeat within its session timeout."""

    client_id: str  #: for a static member: client id of the first member with its instance id
    host: str  #: network address of the member
    instance_id: str | None  #: instance id of a static member, else None
    partitions: frozenset[tuple[str, int]]
    coordinator: int  #: id of the broker that coordinates the group


def group_members(calls: AdminRequests, group: str, *, deadline: Deadline) -> tuple[GroupMemberInfo, ...]:
    """Return the members of a group. Empty if the group does not exist or is not visible.

    Raises:
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    # list_groups returns the last response of several brokers, even if the coordinator did not respond. An
    # empty result therefore needs a second request.
    return _members(calls, group, deadline) or _members(calls, group, deadline)


def members_by_group(
    calls: AdminRequests, groups: Collection[str], *, deadline: Deadline
) -> dict[str, tuple[GroupMemberInfo, ...]]:
    """Return the members of many groups in a few requests. The groups of other applications are read too.

    A group without members, or one that is not visible, has no members.

    Raises:
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    found = _all_members(calls, deadline)
    if not found.keys() >= set(groups):
        # A broker may have answered too late, as for one group.
        found = _all_members(calls, deadline) | found
    return {group: found.get(group, ()) for group in groups}


def delete_group(calls: AdminRequests, config: Mapping[str, Any], group: str, *, deadline: Deadline) -> bool:
    """Delete a group with its offsets. Return False if the group did not exist.

    Raises:
        GroupInUse: the group has members.
        KafkaUnavailable, NotAuthorized, KafkaRefused
    """
    tried = False
    while True:
        error = _try_to_delete(dict(config), group, deadline)
        if error is None:
            return True
        if error.code() in _NO_GROUP:
            return tried  # a previous attempt may have succeeded without its response reaching us
        if error.code() == KafkaError.NON_EMPTY_GROUP:
            raise GroupInUse(group)
        tried = True
        _pause(calls, error, _DELETE, group, deadline)


def _members(calls: AdminRequests, group: str, deadline: Deadline) -> tuple[GroupMemberInfo, ...]:
    return tuple(info for found in _described(calls, deadline, group) for info in _infos(found))


def _all_members(calls: AdminRequests, deadline: Deadline) -> dict[str, tuple[GroupMemberInfo, ...]]:
    return {found.id: _infos(found) for found in _described(calls, deadline) if found.error is None}


def _described(calls: AdminRequests, deadline: Deadline, group: str | None = None) -> list[Any]:
    """Return the description of a group, or of all groups, of which some may have an error."""
    longest_s = _FIRST_REQUEST_S
    while True:
        groups: list[Any] = []
        error: KafkaError | None = None
        try:
            timeout_s = deadline.left_s(most=longest_s, least=0.05)
            groups += calls.client.list_groups(group, timeout=timeout_s)
            if group is not None:
                error = next((found.error for found in groups if found.error is not None), None)
        except KafkaException as raised:
            error = error_of(raised)
        if error is None or error.code() in _NO_GROUP:
            return groups
        _pause(calls, error, _DESCRIBE, group or "all groups", deadline)
        longest_s = min(longest_s + _FIRST_REQUEST_S, _ONE_REQUEST_S)


def _infos(found: Any) -> tuple[GroupMemberInfo, ...]:
    return tuple(_info(member, found.broker.id) for member in found.members)


def _info(member: Any, coordinator: int) -> GroupMemberInfo:
    # Brokers derive a member id from the instance id, or from the client id of a dynamic member.
    made_from = member.id[:-_UUID_CHARS]
    return GroupMemberInfo(
        client_id=member.client_id,
        host=member.client_host.lstrip("/"),
        instance_id=None if made_from == member.client_id else made_from,
        partitions=frozenset(decode_assignment(member.assignment or b"")),
        coordinator=coordinator,
    )


def _try_to_delete(config: Mapping[str, Any], group: str, deadline: Deadline) -> KafkaError | None:
    timeout_s = deadline.left_s(most=_ONE_REQUEST_S, least=1.0)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "spark_cursor_source.kafka.group_admin"],
            input=json.dumps({"config": config, "group": group, "timeout_s": timeout_s}),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=timeout_s + _START_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return KafkaError(KafkaError._TIMED_OUT)
    if done.returncode != 0:
        return KafkaError(KafkaError._TRANSPORT, f"the client ended with code {done.returncode}")
    answer = json.loads(done.stdout)
    return None if answer is None else KafkaError(answer["code"], answer["why"])


def _pause(calls: AdminRequests, error: KafkaError, operation: str, group: str, deadline: Deadline) -> None:
    if error.code() not in RETRIABLE:
        raise refusal(error, operation=operation, resource=group)
    if deadline.over:
        raise calls.unavailable(operation, deadline, error)
    calls.look_anew(deadline)  # list_groups asks every broker that the client knows, also one that has died
    deadline.pause(_PAUSE_S)


def main() -> None:
    """Run the process that deletes a group: a JSON request on stdin, a JSON response on stdout."""
    told = json.load(sys.stdin)
    client: AdminClient = open_client(AdminClient, told["config"])
    group, timeout_s = told["group"], told["timeout_s"]
    answer: dict[str, Any] | None = None
    try:
        client.delete_consumer_groups([group], request_timeout=timeout_s)[group].result(timeout_s + 5)
    except KafkaException as raised:
        error = error_of(raised)
        answer = {"code": error.code(), "why": error.str()}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
