"""The order in which ``make test`` runs the files, and which of them took longest.

Two workers share one line of files. At its front are the files that start Spark processes of their own, at
its end those that share one Spark session; the files that take longest come first from either side. One
worker takes files from the front, the other one from the end, and they meet among the short files in
between. So each worker has the expensive fixtures of one kind, and both end at about the same time.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

SHOWN = 10
DEFAULT_S = 3  #: of a file that is not in the table

#: Seconds that a file takes, where that is more than a few; a wrong number costs balance and nothing else.
SECONDS: dict[str, int] = {}


def _place(path: str) -> tuple[int, int]:
    """Where a file stands in the line."""
    seconds = SECONDS.get(path, DEFAULT_S)
    if path.startswith("tests/spark/") or path == "tests/e2e/test_notebook.py":
        return 2, seconds
    if path.startswith("tests/e2e/"):
        return 0, -seconds
    return 1, -seconds


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files in line; the tests of a file keep their order."""
    items.sort(key=lambda item: (_place(_file(item.nodeid)), _file(item.nodeid)))


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile``, hand the line out from both ends."""
    from xdist.scheduler import LoadFileScheduling

    class FromBothEnds(LoadFileScheduling):
        def _assign_work_unit(self, node: Any) -> None:
            if int(node.gateway.id.removeprefix("gw")) % 2:
                self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
            super()._assign_work_unit(node)

    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # which would put the files with the most tests first
    return FromBothEnds(config, log)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the files that took longest, if there are so many."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[_file(report.nodeid)] += report.duration
    if len(seconds) <= SHOWN:
        return
    terminalreporter.section(f"slowest {SHOWN} files")
    for path in sorted(seconds, key=lambda path: -seconds[path])[:SHOWN]:
        terminalreporter.write_line(f"{seconds[path]:8.1f}s {Path(path)}")
