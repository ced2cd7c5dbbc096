"""``python -m tests.benchmarks [name ...]``: these benchmarks, or all; each against its peer, in one run."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from tests.benchmarks import (
    acks,
    catch_up,
    cursors,
    latency,
    lateness,
    queues,
    read,
    scale,
    tracker,
    write,
)
from tests.benchmarks.common import Bench, bench

BENCHMARKS: dict[str, Callable[[Bench], None]] = {
    "read": read.run,
    "acks": acks.run,
    "latency": latency.run,
    "tracker": tracker.run,
    "lateness": lateness.run,
    "catch-up": catch_up.run,
    "scale": scale.run,
    "cursors": cursors.run,
    "write": write.run,
    "queues": queues.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *BENCHMARKS], metavar="name")
    parser.add_argument("--runs", type=int, default=5, help="measured runs; the figures are their medians")
    arguments = parser.parse_args()
    for name in arguments.names or BENCHMARKS:
        with bench(runs=arguments.runs) as here:
            BENCHMARKS[name](here)


if __name__ == "__main__":
    main()
