"""Archives of the classes that Spark and Kafka load: each of the many JVMs of the tests starts in less time.

``python -m tests.class_archive`` makes them, which takes about as long as two starts of Spark; ``make test``
does that once for each virtual environment. See the JDK's documentation of Application Class-Data Sharing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

OPTIONS = "JDK_JAVA_OPTIONS"  #: environment variable that the ``java`` command reads


def archive_path() -> Path:
    """Where the archive of this Java and these jars of Spark is, or would be."""
    import pyspark

    from spark_cursor_source.devkit.runtime import find_java

    jars = Path(pyspark.__file__).parent / "jars"
    stamps = sorted(f"{jar.name}:{jar.stat().st_size}:{jar.stat().st_mtime_ns}" for jar in jars.iterdir())
    key = hashlib.sha256("\n".join([*find_java(), str(jars), *stamps]).encode()).hexdigest()[:12]
    return Path(sys.prefix) / f"spark-classes-{key}.jsa"


def use_archive() -> None:
    """Have the JVMs that this process and its children start take the archive, if there is one."""
    made = Path(sys.prefix).glob("spark-classes-*.jsa")
    if (newest := max(made, key=lambda one: one.stat().st_mtime_ns, default=None)) is not None:
        # A JVM that it does not fit, as one with another classpath, does without.
        quick = "-XX:TieredStopAtLevel=1"  # less CPU for all JVMs, none of which lives long
        os.environ[OPTIONS] = f"{quick} -XX:SharedArchiveFile={newest} -Xlog:disable -Xlog:all=error:stderr"


def make_archive() -> None:
    """Start Spark, use it as the tests do, and keep the classes that it has loaded."""
    from pyspark.sql import DataFrame

    from spark_cursor_source.devkit import spark_session as local_session

    archive = archive_path()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        unfinished = Path(directory) / "classes.jsa"
        os.environ[OPTIONS] = "-Xlog:disable -Xlog:all=error:stderr"
        local_session.SHORT_LIVED += f" -XX:ArchiveClassesAtExit={unfinished}"
        local_session._END_S = 120.0

        def collect(df: DataFrame, batch_id: int) -> None:
            df.persist()
            df.mapInArrow(lambda batches: batches, "value BIGINT").groupBy("value").count().collect()
            df.unpersist()

        with local_session.local_session("classes", Path(directory)) as spark:
            spark.sparkContext.setLogLevel("ERROR")
            rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 8).load()
            stream = rows.select("value")
            writer = stream.writeStream.foreachBatch(collect).trigger(availableNow=True)
            query = writer.option("checkpointLocation", f"{directory}/checkpoint").start()
            query.awaitTermination(60)
        if unfinished.is_file():
            shutil.copy(unfinished, archive.with_suffix(".new"))
            archive.with_suffix(".new").replace(archive)


def main() -> None:
    from spark_cursor_source.devkit.broker import EmbeddedKafka
    from spark_cursor_source.devkit.runtime import find_runtime

    of_spark, of_kafka = archive_path().is_file(), find_runtime(print).archive.is_file()
    if of_spark and of_kafka:
        return
    print("preparing the classes of Spark and Kafka for the tests, once", file=sys.stderr)
    with ThreadPoolExecutor(1) as beside:
        # A broker makes its own at its end; it cannot if it is told to use that of Spark.
        broker = None if of_kafka else beside.submit(lambda: EmbeddedKafka().start().stop())
        if not of_spark:
            make_archive()
        if broker is not None:
            broker.result()


if __name__ == "__main__":
    main()
