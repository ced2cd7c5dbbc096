"""Access to the driver's JVM and process, which only a classic session has.

All use of such attributes is here. A Spark Connect session has none of them, and each function tells how it
answers for one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from traceback import format_exception
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


def worker_python(spark: SparkSession) -> str | None:
    """Returns the program that Spark starts for Python, or None with Spark Connect."""
    python = getattr(getattr(spark, "_sc", None), "pythonExec", None)
    return python if isinstance(python, str) else None


def gateway_of(spark: SparkSession) -> Any:
    """Returns the connection to the JVM of the session, or None with Spark Connect."""
    return getattr(getattr(spark, "_sc", None), "_gateway", None)


def rows_read(batch: DataFrame) -> int | None:
    """Returns the number of rows that the source has delivered to the streaming batch in progress.

    For a foreachBatch function. None if the query reads several streams or one twice, and where
    :func:`reads_a_source` knows nothing.
    """
    scans = _scans(batch)
    if scans is None or len(scans) != 1:
        return None
    return int(scans[0].metrics().apply("numOutputRows").value())


def reads_a_source(batch: DataFrame) -> bool | None:
    """True if the query of a foreachBatch function reads a stream of a data source itself, such as a queue.

    False if it reads tables or files. None with Spark Connect, and outside of a streaming query.
    """
    scans = _scans(batch)
    return None if scans is None else bool(scans)


def ends_of_sources(batch: DataFrame) -> list[str]:
    """Returns the JSON of the end offset of each stream that the query of a foreachBatch function reads.

    Empty where :func:`reads_a_source` knows nothing.
    """
    return [str(scan.end().json()) for scan in _scans(batch) or ()]


def may_be_shuffled(rows: DataFrame) -> bool:
    """True if the plan of the rows has an exchange, and where it is not known, as with Spark Connect.

    For the batch of a foreachBatch function, the plan of its query counts too.
    """
    if not hasattr(rows, "_jdf"):
        return True
    from py4j.protocol import Py4JError  # the client of Spark Connect does not install it

    try:
        return any("Exchange" in one.executedPlan().toString() for one in _executions(rows))
    except (AttributeError, Py4JError, TypeError):
        return True  # internals of another version of Spark


def unions(rows: DataFrame) -> list[list[StructType]]:
    """Returns the schemas of the inputs of each union in the plan of the rows.

    For the batch of a foreachBatch function, that is also the plan of its query. Empty with Spark Connect.
    """
    if not hasattr(rows, "_jdf"):
        return []
    from py4j.protocol import Py4JError  # the client of Spark Connect does not install it

    found: list[list[StructType]] = []
    with suppress(AttributeError, Py4JError, TypeError):  # internals of another version of Spark
        jvm: Any = rows.sparkSession._jvm
        union = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.UNION()
        for plan in (one.analyzed() for one in _executions(rows)):
            if plan.containsPattern(union):  # each step down is a call of the JVM, and most plans have none
                _add_unions(plan, found)
    return found


def _executions(rows: DataFrame) -> list[Any]:
    """Returns the JVM's executions of the rows, and of the query whose batch they are, if any."""
    executions = [rows._jdf.queryExecution()]
    if (query := _query_of(rows)) is not None:
        executions.append(query.lastExecution())
    return executions


def _add_unions(plan: Any, found: list[list[StructType]]) -> None:
    children = plan.children()
    inputs = [children.apply(at) for at in range(children.size())]
    if plan.nodeName() == "Union":
        found.append([StructType.fromJson(json.loads(one.schema().json())) for one in inputs])
    for one in inputs:
        _add_unions(one, found)


def _scans(batch: DataFrame) -> list[Any] | None:
    query = _query_of(batch)
    if query is None:
        return None
    from py4j.protocol import Py4JError  # the client of Spark Connect does not install it

    try:
        leaves = _leaves(query.lastExecution().executedPlan())
        return [leaf for leaf in leaves if leaf.getClass().getSimpleName() == "MicroBatchScanExec"]
    except (AttributeError, Py4JError, TypeError):
        return None  # internals of another version of Spark


def _query_of(batch: DataFrame) -> Any:
    """Returns the JVM's object for the query of a foreachBatch function. None as in ``reads_a_source``."""
    sc: Any = getattr(batch.sparkSession, "_sc", None)
    if sc is None or (query_id := sc.getLocalProperty("sql.streaming.queryId")) is None:
        return None
    from py4j.protocol import Py4JError  # the client of Spark Connect does not install it

    try:
        shared = batch.sparkSession._jsparkSession.sharedState()
        return shared.activeStreamingQueries().get(sc._jvm.java.util.UUID.fromString(query_id))
    except (AttributeError, Py4JError, TypeError):
        return None  # internals of another version of Spark


def _leaves(plan: Any) -> Iterator[Any]:
    leaves = plan.collectLeaves()
    for at in range(leaves.size()):
        leaf = leaves.apply(at)
        name = leaf.getClass().getSimpleName()
        if name == "AdaptiveSparkPlanExec":
            yield from _leaves(leaf.executedPlan())
        elif name.endswith("QueryStageExec"):
            yield from _leaves(leaf.plan())
        else:
            yield leaf


_INTERRUPTIONS = ("InterruptedException", "InterruptedIOException", "ClosedByInterruptException")


@contextmanager
def recognizable_stop(batch: DataFrame) -> Iterator[None]:
    """Shortens the error with which Spark interrupts a foreachBatch function, if its query is being stopped.

    Spark looks in the text of this error for an interruption. Its regular expression overflows the stack in a
    text of some thousand characters, such as a Java stack trace. Then Spark logs StackOverflowError instead
    of ending the query quietly. Does nothing with Spark Connect.
    """
    try:
        yield
    except Exception as error:
        group = None
        with suppress(Exception):  # the JVM may be gone
            group = _stopped_job_group(batch, error)
        if group is None:
            raise
        from py4j.protocol import Py4JError  # the client of Spark Connect does not install it

        # Spark takes these words for a cancelled job.
        summary = f"org.apache.spark.SparkException: job group {group} is cancelled, as the query is stopped"
        raise Py4JError(summary) from None


def _stopped_job_group(batch: DataFrame, error: BaseException) -> str | None:
    """Returns the job group of the query, if it is being stopped and the error is its interruption."""
    query = _query_of(batch)
    if query is None or query.isActive():
        return None
    text = "".join(format_exception(error))
    group: str | None = batch.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id")
    interrupted = any(name in text for name in _INTERRUPTIONS)
    return group if group is not None and (interrupted or ("cancelled" in text and group in text)) else None


def drop_checkpoint(rows: DataFrame) -> None:
    """Frees the rows of a local checkpoint at once. Does nothing with Spark Connect.

    Spark frees them when the plan is garbage-collected, which is too late for a stream. A client of Spark
    Connect tells the server when its DataFrame is gone.
    """
    plan = getattr(rows, "_jdf", None)
    if plan is not None:
        plan.logicalPlan().rdd().unpersist(False)


def add_to_default_redaction(spark: SparkSession, pattern: str) -> bool:
    """Adds a pattern to the default of ``spark.sql.redaction.options.regex`` in the driver's JVM.

    Returns False if this version of Spark does not allow it. Spark Connect needs no default: its server runs
    everything in a session.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return True
    from py4j.protocol import Py4JError  # the client of Spark Connect does not install it

    try:
        setting = jvm.org.apache.spark.sql.internal.SQLConf.SQL_OPTIONS_REDACTION_PATTERN()
        default = setting.defaultValueString()
        if pattern not in default:
            field = setting.getClass().getDeclaredField("_defaultValue")
            field.setAccessible(True)
            field.set(setting, setting.valueConverter().apply(f"{default}|{pattern}"))
    except (Py4JError, TypeError):
        return False
    return True
