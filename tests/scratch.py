"""Where the files of the tests are: in memory, if the machine has enough of it.

Brokers create and delete thousands of files. On a disk, that is a tenth of the CPU time of such tests. With
``TMPDIR`` in the environment, the files are there, and are kept.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from multiprocessing.util import Finalize
from pathlib import Path

_MEMORY = Path("/dev/shm")
_PREFIX = "cursorq-"
_ENOUGH_BYTES = 12 << 30


def use_memory() -> None:
    """Have this process and its children put temporary files into memory, until this process ends."""
    if "TMPDIR" in os.environ or not _fits():
        return
    _remove_forgotten()
    made = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=_MEMORY))
    made.chmod(0o755)  # PostgreSQL runs as another user
    os.environ["TMPDIR"] = str(made)
    tempfile.tempdir = None  # to be looked up again
    # After the directory that multiprocessing has in it, which it removes with priority -100.
    Finalize(None, shutil.rmtree, args=(made, True), exitpriority=-200)


def _fits() -> bool:
    """Whether there is room, and libraries may be loaded from there, as Spark does."""
    try:
        memory = os.statvfs(_MEMORY)
        unused = next(line for line in Path("/proc/meminfo").read_text().splitlines() if "Available" in line)
    except (OSError, StopIteration):
        return False
    free = min(memory.f_bavail * memory.f_frsize, int(unused.split()[1]) << 10)
    return free > _ENOUGH_BYTES and not memory.f_flag & os.ST_NOEXEC and os.access(_MEMORY, os.W_OK)


def _remove_forgotten() -> None:
    """Remove directories of runs that were killed."""
    for left in _MEMORY.glob(f"{_PREFIX}*-*"):
        number = left.name.removeprefix(_PREFIX).partition("-")[0]
        if number.isdigit() and not Path(f"/proc/{number}").exists():
            shutil.rmtree(left, ignore_errors=True)
