"""Identity of this process, and liveness of other processes on this machine."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from spark_cursor_source.core.member_name import MemberName, word_of_queue
from spark_cursor_source.core.subscription_type import SubscriptionType

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_left: set[MemberName] = set()  # members of this process that have left their group


def name_member(type: SubscriptionType, query_id: str, queue_id: str | None = None) -> MemberName:
    """Returns the name of a group member in this process, which reads ``queue_id`` or all messages."""
    return MemberName(
        type=type,
        host=_host(),
        process=f"{os.getpid()}@{_space()}",
        query_id=query_id,
        since=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        reads=word_of_queue(queue_id),
    )


def note_joined(name: MemberName) -> None:
    """Notes that a member of this process joins its group."""
    _left.discard(name)


def note_left(name: MemberName) -> None:
    """Notes that a member of this process has left its group, which the broker may not have learned."""
    _left.add(name)


def is_dead(name: MemberName) -> bool:
    """True if the member has left or its process is known to be dead. False if that is not known here."""
    if name in _left:
        return True
    pid, _, space = name.process.partition("@")
    if not space or name.host != _host() or space != _space() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return _is_zombie(pid)


def _is_zombie(pid: str) -> bool:
    """True if the process has exited but its parent has not reaped it, as in containers without an init."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[:1] == ["Z"]


def _host() -> str:
    return socket.gethostname().replace(" ", "-") or "localhost"


def _space() -> str:
    """Returns the boot id of this machine and its process id namespace; empty if they are unknown.

    The host name alone is not sufficient. Several machines can share a host name, and each container has its
    own namespace. The first namespace has the same number on every machine, so the boot id distinguishes
    machines.
    """
    try:
        boot = Path(_BOOT_ID).read_text(encoding="ascii").strip()
        return f"{boot}.{os.readlink('/proc/self/ns/pid').strip('pid:[]')}"
    except OSError:
        return ""
