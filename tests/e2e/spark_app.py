"""A Spark process that can be killed: started ahead of time, told what to be in one line on its stdin.

``python -m tests.e2e.spark_app`` makes its session, waits for ``{"role": "consumer" | "tracker", ...}`` and
becomes that. Its stdin is also its lifeline: when it closes, whoever started it is gone, and so is it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from spark_cursor_source.devkit.spark_session import local_session

ROLES = {"consumer": "tests.e2e.consumer_app", "tracker": "tests.e2e.tracker_app"}


def record(path: str, **facts: object) -> None:
    """Append a JSON line that is on the disk when this returns; lines of several processes never mix."""
    line = json.dumps(facts).encode() + b"\n"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line)
        os.fsync(file)
    finally:
        os.close(file)


def main() -> None:
    with local_session("cursorq e2e", Path.cwd()) as spark:
        spark.sparkContext.setLogLevel("WARN")
        # The first Python worker and the first job are slow: not in the time of a test.
        spark.range(2).mapInArrow(lambda batches: batches, "id BIGINT").collect()
        told = sys.stdin.readline()
        if not told:
            return
        config: dict[str, Any] = json.loads(told)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        importlib.import_module(ROLES[config["role"]]).run(spark, config)


def _end_with_parent() -> None:
    """Wait until whoever started this process is gone, and end it then."""
    sys.stdin.read()
    os._exit(0)  # the JVM sees its own stdin close


if __name__ == "__main__":
    main()
