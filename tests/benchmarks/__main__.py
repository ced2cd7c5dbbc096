"""``python -m tests.benchmarks [name ...]``: these benchmarks, or all; each against its peer, in one run."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.benchmarks import (
    acks,
    backlog,
    catch_up,
    cells,
    cursors,
    exactly_once,
    handlers,
    idle,
    kafka_mq_go,
    key_order,
    kmq,
    latency,
    lateness,
    page,
    queues,
    read,
    scale,
    standalone,
    start,
    tracker,
    write,
)
from tests.benchmarks.common import Bench, bench, without_broker
from tests.benchmarks.report import Figure, print_report, to_json

BENCHMARKS: dict[str, Callable[[Bench], list[Figure]]] = {
    "cells": cells.run,
    "key-order": key_order.run,
    "read": read.run,
    "acks": acks.run,
    "latency": latency.run,
    "start": start.run,
    "idle": idle.run,
    "tracker": tracker.run,
    "lateness": lateness.run,
    "catch-up": catch_up.run,
    "kafka-mq-go": kafka_mq_go.run,
    "kmq": kmq.run,
    "backlog": backlog.run,
    "scale": scale.run,
    "cursors": cursors.run,
    "write": write.run,
    "exactly-once": exactly_once.run,
    "queues": queues.run,
    "handlers": handlers.run,
    "standalone": standalone.run,
    "page": page.run,
}
IN_MEMORY = frozenset({"cells", "key-order"})
QUICK = ("cells", "latency", "cursors", "standalone")  #: three minutes in all, with one run
QUICK_RUNS = 1


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *BENCHMARKS], metavar="name")
    parser.add_argument("--runs", type=int, default=5, help="measured runs; the figures are their medians")
    parser.add_argument("--quick", action="store_true", help=f"one run of {', '.join(QUICK)}")
    parser.add_argument("--json", metavar="FILE", help="also write them to this file; - for stdout alone")
    given = parser.parse_args()
    names = given.names or (QUICK if given.quick else tuple(BENCHMARKS))
    runs = QUICK_RUNS if given.quick else given.runs
    found, failed = _measured(names, runs)
    if given.json == "-":
        print(to_json(found, runs=runs))
    else:
        if given.json:
            Path(given.json).write_text(to_json(found, runs=runs), encoding="utf-8")
        print_report(found, runs=runs)
    if failed:
        sys.exit(f"These benchmarks failed, and their errors are above: {', '.join(failed)}.")


def _measured(names: Iterable[str], runs: int) -> tuple[dict[str, list[Figure]], list[str]]:
    """The figures of the benchmarks, and the names of those that failed, which cost no other its figures."""
    found: dict[str, list[Figure]] = {}
    failed = []
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            with without_broker(runs=runs) if name in IN_MEMORY else bench(runs=runs) as here:
                found[name] = BENCHMARKS[name](here)
        except Exception:  # noqa: BLE001  # whatever it is, it is printed
            traceback.print_exc()
            failed.append(name)
    return found, failed


if __name__ == "__main__":
    main()
