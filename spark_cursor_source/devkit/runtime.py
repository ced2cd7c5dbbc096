"""Runtime of the embedded broker: Java, Kafka's jars, and a cache for fast starts.

Spark's own resolver fetches the jars in a child process, so the settings of spark-defaults.conf
(repositories, ivy settings, proxies) apply. The classpath is stored in the user's cache directory and reused
while all its jars exist.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

from spark_cursor_source._features import require_library
from spark_cursor_source.errors import JarsNotResolved, JavaNotFound

KAFKA_VERSION = "4.3.1"
COORDINATE = f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}"
OLDEST_JAVA = 17

# Spark's resolver omits scala-library because Spark contains it. The logging jars come from Spark too:
# Kafka's artifact has no slf4j binding, and a broker without one fails silently.
_FROM_SPARK = (
    "slf4j-api-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "log4j-api-2*.jar",
    "log4j-core-*.jar",
    "scala-library-*.jar",
)
_NOT_FROM_KAFKA = re.compile(
    r"_(slf4j-api|log4j-api|log4j-core|log4j-slf4j\w*-impl|scala-library)-[\d.]+\.jar$"
)

# Runs in spark-submit after the resolver, without a SparkContext.
_PRINT_JARS = """\
from pyspark.conf import SparkConf
from pyspark.java_gateway import launch_gateway
print("cursorq-jars=" + SparkConf(_jvm=launch_gateway().jvm).get("spark.jars", ""))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRuntime:
    """Java and classpath that run Kafka, and the path of the class data archive."""

    java: str
    classpath: str
    archive: Path  #: class data archive of the JVM, which halves the start time; may not exist yet

    @property
    def storage(self) -> Path:
        """Path of a copy of newly formatted storage; may not exist yet."""
        return self.archive.with_suffix(".storage")


def cache_directory() -> Path:
    """Returns the user's cache directory of this library. ``XDG_CACHE_HOME`` changes its location."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cursorq"


def find_runtime(progress: Callable[[str], None]) -> BrokerRuntime:
    """Returns the runtime of the broker. The first call downloads the jars and reports to ``progress``.

    Raises JavaNotFound and JarsNotResolved.
    """
    java, version = find_java()
    jars = kafka_jars(progress)
    stamps = [f"{jar}:{jar.stat().st_size}:{jar.stat().st_mtime_ns}" for jar in jars]
    key = hashlib.sha256("\n".join([java, version, *stamps]).encode()).hexdigest()[:12]
    classpath = os.pathsep.join(map(str, jars))
    return BrokerRuntime(
        java=java, classpath=classpath, archive=cache_directory() / f"kafka-{KAFKA_VERSION}-{key}.jsa"
    )


def find_java() -> tuple[str, str]:
    """Returns path and version of Java: from JAVA_HOME, or else from PATH. Raises JavaNotFound."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java, where = shutil.which("java", path=str(Path(home) / "bin")), f"java of JAVA_HOME ({home})"
    else:
        java, where = shutil.which("java"), "java on PATH"
    if java is None:
        raise JavaNotFound(f"there is no {where}")
    try:
        answer = _version_text(java, os.stat(java).st_mtime_ns)
    except (OSError, subprocess.TimeoutExpired) as cause:
        raise JavaNotFound(f"{where} does not run") from cause
    version = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', answer)
    if version is None:
        raise JavaNotFound(f"{where} does not tell its version")
    if int(version[2]) < OLDEST_JAVA:
        raise JavaNotFound(f"{where} is version {version[1]}")
    return java, version[1]


@functools.cache
def _version_text(java: str, changed_ns: int) -> str:
    """Returns what a Java tells about itself, which starts a JVM once per process and file."""
    asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    return asked.stderr


def kafka_jars(progress: Callable[[str], None]) -> list[Path]:
    """Returns the broker's jars, those from Spark first. Raises JarsNotResolved."""
    found = resolved_jars(COORDINATE, f"Apache Kafka {KAFKA_VERSION}", f"kafka-{KAFKA_VERSION}", progress)
    return [*_spark_jars(), *(jar for jar in found if not _NOT_FROM_KAFKA.search(jar.name))]


def _spark_home() -> Path:
    # Located without an import: only spark/ depends on pyspark's code.
    require_library("pyspark", what="the embedded broker")
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _spark_jars() -> Iterator[Path]:
    for pattern in _FROM_SPARK:
        jar = next((_spark_home() / "jars").glob(pattern), None)
        if jar is None:
            raise JarsNotResolved(COORDINATE, f"the installed pyspark has no jars/{pattern}")
        yield jar


def resolved_jars(coordinate: str, what: str, key: str, progress: Callable[[str], None]) -> list[Path]:
    """Returns the jars of a Maven coordinate and its dependencies, without those that Spark contains.

    The paths are remembered under ``key``. Raises JarsNotResolved.
    """
    remembered = cache_directory() / f"{key}-classpath.json"
    try:
        jars = [Path(jar) for jar in json.loads(remembered.read_bytes())["jars"]]
        if jars and all(jar.is_file() for jar in jars):
            return jars
    except (OSError, ValueError, KeyError, TypeError):
        pass  # the file is missing or invalid: resolve and write it again
    jars = _resolve(coordinate, what, progress)
    remembered.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=remembered.parent, delete=False) as fresh:
        json.dump({"version": 1, "jars": [str(jar) for jar in jars]}, fresh)
    os.replace(fresh.name, remembered)
    return jars


def _resolve(
    coordinate: str, what: str, progress: Callable[[str], None], timeout_s: float = 900.0
) -> list[Path]:
    """Runs Spark's resolver, which downloads jars missing in its ivy directory."""
    began = time.monotonic()
    progress(f"cursorq: getting {what} through Spark's resolver (the first time only) ...")
    home = _spark_home()
    last_words: deque[str] = deque(maxlen=25)
    downloads = 0
    with tempfile.TemporaryDirectory(prefix="cursorq-") as scratch:
        script = Path(scratch, "print_jars.py")
        script.write_text(_PRINT_JARS)
        # fmt: off
        command = [str(home / "bin" / "spark-submit"), "--master", "local[1]", "--deploy-mode", "client",
                   "--packages", coordinate, str(script)]
        # fmt: on
        env = os.environ | {
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        child = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        give_up = threading.Timer(timeout_s, child.kill)
        give_up.start()
        jars: list[Path] = []
        try:
            assert child.stdout is not None
            for line in child.stdout:
                if line.startswith("cursorq-jars="):
                    uris = line.strip().partition("=")[2].split(",")
                    jars = [Path(url2pathname(urlparse(uri).path)) for uri in uris if uri]
                elif line.startswith("downloading "):
                    downloads += 1
                    progress(f"cursorq: {downloads}: {line.split()[1].rpartition('/')[2]}")
                elif line.strip():
                    last_words.append(line.rstrip())
            child.wait()
        finally:
            give_up.cancel()
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()
    if child.returncode != 0 or not jars:
        raise JarsNotResolved(coordinate, "\n".join(last_words))
    progress(f"cursorq: {len(jars)} jars ready after {time.monotonic() - began:.0f} s")
    return jars
