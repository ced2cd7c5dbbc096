"""Who is dead is known of processes of this machine only, whatever another one is called."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from spark_cursor_source.consumer import this_process
from spark_cursor_source.consumer.this_process import is_dead, name_member, note_joined, note_left
from spark_cursor_source.core.subscription_type import SubscriptionType

ME = name_member(SubscriptionType.EXCLUSIVE, "q1")


@pytest.fixture
def gone() -> int:
    """The id of a process that was here and is not any more."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(60)
    return ended.pid


def named(pid: int, space: str) -> str:
    return f"{pid}@{space}"


def space_of_me() -> str:
    return ME.process.partition("@")[2]


def test_a_process_of_this_machine_is_dead_when_it_is_gone(gone: int) -> None:
    assert not is_dead(ME)
    assert is_dead(replace(ME, process=named(gone, space_of_me())))


def test_a_process_of_another_machine_with_this_name_is_not_taken_for_dead(gone: int) -> None:
    # The first space of process ids has the same number on every Linux; what a boot is called differs.
    assert ME.host == socket.gethostname()
    number = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    for other in (number, f"00000000-0000-4000-8000-000000000000.{number}", ""):
        assert not is_dead(replace(ME, process=named(gone, other)))


def test_where_the_boot_is_not_known_nobody_is_taken_for_dead(
    gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(this_process, "_BOOT_ID", "/proc/no-such-file")
    nameless = name_member(SubscriptionType.EXCLUSIVE, "q1")
    assert nameless.process == f"{os.getpid()}@"
    assert not is_dead(replace(nameless, process=named(gone, "")))


def test_a_member_of_this_process_that_has_left_is_dead_until_it_joins_again() -> None:
    mine = name_member(SubscriptionType.EXCLUSIVE, "left")
    note_left(mine)
    assert is_dead(mine)
    assert not is_dead(replace(mine, query_id="another"))
    note_joined(mine)
    assert not is_dead(mine)
