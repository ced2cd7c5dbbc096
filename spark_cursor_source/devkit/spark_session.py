"""Local Spark session that leaves no files behind, for demos, examples and trials."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from spark_cursor_source.spark.classic import gateway_of

_END_S = 30.0
#: writes checkpoints without starting a process for each look at a file: see docs/how-to/tune.md
CHECKPOINT_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
#: options for a short-lived JVM on few cores: the second compiler would cost more time than it saves
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def python_environment() -> dict[str, str]:
    """Returns environment variables that make Spark use this Python and find this package.

    Otherwise stream planners start as plain ``python3``.
    """
    package = str(Path(__file__).resolve().parents[2])
    found = [package, os.environ.get("PYTHONPATH")]
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, found)),
    }


@contextmanager
def local_session(
    name: str, scratch: Path, *, cores: int = 2, memory_mb: int = 1024
) -> Iterator[SparkSession]:
    """Yields a session on loopback with all its files in ``scratch``. Its JVM ends with the block.

    Sets environment variables of this process, so no JVM may run yet.
    """
    os.environ.update(python_environment())
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    temporary = scratch / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    session: SparkSession = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName(name)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", f"{memory_mb}m")
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={temporary} {SHORT_LIVED}")
        .config("spark.local.dir", str(scratch / "local"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(cores))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.sql.streaming.checkpointFileManagerClass", CHECKPOINT_MANAGER)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    gateway = gateway_of(session)
    try:
        yield session
    finally:
        session.stop()
        if gateway is not None:
            gateway.shutdown()
            _end(gateway.proc)


def _end(jvm: subprocess.Popen[bytes]) -> None:
    assert jvm.stdin is not None
    jvm.stdin.close()  # the JVM ends when its stdin closes
    try:
        jvm.wait(_END_S)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
