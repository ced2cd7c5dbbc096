"""``cursorq tracker CONF`` whose process stops itself (SIGSTOP) amid its first check of a topic's rescue."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from spark_cursor_source.cli import main
from spark_cursor_source.tracker.rescue_copier import RescueCopier

_check = RescueCopier.check
_stops = [signal.SIGSTOP]


def _stopping(copier: RescueCopier, *arguments: Any) -> bool:
    if _stops:
        os.kill(os.getpid(), _stops.pop())
    return _check(copier, *arguments)


if __name__ == "__main__":
    RescueCopier.check = _stopping  # type: ignore[method-assign]
    sys.exit(main(["tracker", sys.argv[1]]))
