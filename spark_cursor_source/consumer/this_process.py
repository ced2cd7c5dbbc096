"""Which process this is, and whether another one of this machine is still there."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from spark_cursor_source.core.member_name import MemberName
from spark_cursor_source.core.subscription_type import SubscriptionType

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


def name_member(type: SubscriptionType, query_id: str) -> MemberName:
    """The name of a member of a consumer group in this process."""
    return MemberName(
        type=type,
        host=_host(),
        process=f"{os.getpid()}@{_space()}",
        query_id=query_id,
        since=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def is_dead(name: MemberName) -> bool:
    """Whether the member's process is known to be gone; False too where nobody here can know."""
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
    """Dead, and nobody has asked how it ended: in a container whose first process does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[:1] == ["Z"]


def _host() -> str:
    return socket.gethostname().replace(" ", "-") or "localhost"


def _space() -> str:
    """The boot of this machine and its space of process ids; empty where they are not known.

    Machines may have one host name and containers of one machine a space each, and the first space of a
    machine has the same number everywhere. What a boot is called tells machines apart.
    """
    try:
        boot = Path(_BOOT_ID).read_text(encoding="ascii").strip()
        return f"{boot}.{os.readlink('/proc/self/ns/pid').strip('pid:[]')}"
    except OSError:
        return ""
