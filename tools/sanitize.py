"""Runs the native reader under AddressSanitizer, LeakSanitizer and UBSan: ``python -m tools.sanitize``.

It builds the module with gcc's sanitizers, starts a broker, and reads a topic that holds everything in a
process that has the sanitizers loaded. An error of theirs, or a leak of the module, fails.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spark_cursor_source.devkit.broker import EmbeddedKafka
from spark_cursor_source.kafka.consumers import reader_config
from spark_cursor_source.wire.marker import MarkerV1, encode_v1
from tests.kafka.everything import END, fill

ROOT = Path(__file__).resolve().parent.parent
NAME = "spark_cursor_source_native"
_FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"
_LIBRARIES = ("libasan.so", "libubsan.so")
_READS = 2_000
_FINISHED = "All reads are done."


def build(where: Path) -> None:
    """Builds the module with the sanitizers into a directory."""
    command = [sys.executable, "setup.py", "-q", "build_ext", "--force"]
    command += ["--build-lib", str(where), "--build-temp", str(where / "temp")]
    subprocess.run(command, cwd=ROOT / "native", env=os.environ | {"CFLAGS": _FLAGS}, check=True)


def environment(library: Path, report: Path) -> dict[str, str]:
    """The environment of a process with the sanitizers loaded."""
    found = [
        subprocess.run(["gcc", f"-print-file-name={one}"], capture_output=True, text=True, check=True).stdout
        for one in _LIBRARIES
    ]
    return os.environ | {
        "LD_PRELOAD": " ".join(path.strip() for path in found),
        "PYTHONPATH": os.pathsep.join([str(library), str(ROOT)]),
        "PYTHONMALLOC": "malloc",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "ASAN_OPTIONS": f"detect_leaks=1:exitcode=99:fast_unwind_on_malloc=0:log_path={report}",
        # Leaks of Python itself are no failure; those of the module are looked for in the report.
        "LSAN_OPTIONS": "exitcode=0",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={report}",
    }


def leaks_of_module(text: str) -> list[str]:
    """The leaks of a report in whose stack the module is.

    >>> leaks_of_module("Direct leak of 1 byte\\n malloc\\n\\nDirect leak of 2 bytes\\n src/columns.c:5")
    ['Direct leak of 2 bytes\\n src/columns.c:5']
    """
    blocks = text.split("\n\n")
    named = (NAME, "src/module.c", "src/columns.c", "src/markers.c")
    return [one for one in blocks if " leak of " in one and any(name in one for name in named)]


def read(servers: str, topic: str, end: int) -> None:
    """Reads the topic in many ways, and makes every mistake that a caller can make."""
    config = reader_config({"bootstrap.servers": servers, "log_level": "0"})
    consumer = _consumer(config)
    choose = random.Random(7)
    position = end
    for number in range(_READS):
        if position >= end or number % 97 == 0:
            position = choose.randrange(end)
            assert consumer.assign(topic, 0, position) == 0
        stop = min(end, position + choose.randrange(1, 200))
        limits = choose.choice([(1, 1), (3, 1 << 20), (1_000, 5_000), (16_000, 8 << 20)])
        batch, position, event = consumer.read(0, position, stop, *limits, 250, number % 2 == 0)
        if event is not None:  # the end of the partition, after the aborted records
            position = end
        if batch is not None and number % 5:
            columns = pa.record_batch(batch).columns
            columns[number % len(columns)].validate(full=True)
    _mistakes(config, topic)
    consumer.unassign()
    consumer.close()
    _consumer(config).assign(topic, 0, 0)  # ended by its deallocation
    gc.collect()
    _decode()
    print(_FINISHED)


def _consumer(config: dict[str, str]) -> Any:
    return import_module(NAME).Consumer(config)


def _mistakes(config: dict[str, str], topic: str) -> None:
    consumer = _consumer(config)
    consumer.assign(topic, 0, 10**9)
    for _ in range(8):  # the offset is out of range
        consumer.read(0, 10**9, 10**9 + 5, 10, 10, 100, True)
    consumer.assign(f"{topic}-never", 3, 0)
    consumer.read(3, 0, 5, 10, 10, 300, True)
    consumer.assign(topic, 0, 0)
    for ask in (
        lambda: consumer.watermarks(topic, 0, 5_000),
        lambda: consumer.watermarks(topic, 0, -1),
        lambda: consumer.partitions(topic, 5_000),
        lambda: consumer.partitions(f"{topic}-never", 5_000),
        lambda: consumer.read(0, 0, 5, 0, 0, 0, True),
        lambda: consumer.read(0),
        lambda: consumer.assign("a\x00b", 0, 0),
        lambda: _consumer({"never": "heard"}),
        lambda: _consumer({"group.id": 5}),
        lambda: _consumer({"enable.auto.commit": "true", "sasl.mechanisms": "GSSAPI", "group.id": ""}),
    ):
        try:
            ask()
        except (TypeError, ValueError) as refused:
            print(f"refused: {refused}")
    batch, _, _ = consumer.read(0, 0, 5, 10, 1 << 20, 2_000, True)
    assert batch is not None
    pa.record_batch(batch)
    try:
        pa.record_batch(batch)
    except ValueError as refused:
        print(f"refused: {refused}")
    consumer.close()
    consumer.close()


def _decode() -> None:
    """Decodes markers, damaged ones too, and buffers that do not fit each other."""
    choose, module = random.Random(7), import_module(NAME)
    values = []
    for offset in range(5_000):
        marker = MarkerV1(queue_id=b"q", type=offset % 3, partition=7, offset=offset << 20, value=b"v" * 200)
        value = bytearray(encode_v1(marker))
        for _ in range(choose.randrange(4)):
            value[choose.randrange(len(value))] = choose.randrange(256)
        values.append(bytes(value[: choose.randrange(1, 400)]))
    column = pa.array(values, pa.binary())
    _, ends, body = column.buffers()
    numbers, usual = np.empty((4, len(column)), np.int64), np.empty(len(column), np.bool_)
    module.decode_v1(ends, 0, body, numbers, usual)
    for unfit in (
        (ends, 1, body, numbers, usual),
        (ends, -1, body, numbers, usual),
        (ends, 2**62, body, numbers, usual),
        (ends, 0, b"", numbers, usual),
        (b"", 0, body, numbers, usual),
        (ends, 0, body, numbers[:2], usual),
    ):
        try:
            module.decode_v1(*unfit)
        except ValueError as refused:
            print(f"refused: {refused}")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="cursorq-sanitize-") as scratch, EmbeddedKafka() as broker:
        library, report = Path(scratch) / "lib", Path(scratch) / "report"
        build(library)
        servers = broker.bootstrap_servers
        topic = fill({"bootstrap.servers": servers})
        command = [sys.executable, "-m", "tools.sanitize", servers, topic, str(END)]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment(library, report),
            timeout=500,
            stdout=subprocess.PIPE,
            text=True,
        )
        told = "\n".join(path.read_text() for path in sorted(Path(scratch).glob("report.*")))
    leaks, failed = leaks_of_module(told), done.returncode != 0 or _FINISHED not in done.stdout
    print(done.stdout, told if failed else "", *leaks, sep="\n\n")
    print(f"exit code {done.returncode}, leaks of the module: {len(leaks)}")
    return 1 if leaks or failed else 0


if __name__ == "__main__":
    sys.exit(read(sys.argv[1], sys.argv[2], int(sys.argv[3])) if len(sys.argv) > 1 else main())
