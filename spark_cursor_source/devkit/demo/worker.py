"""The demo's two Spark programs, consumer and tracker, each in its own process until it is killed.

Usage: ``python -m spark_cursor_source.devkit.demo.worker consumer|tracker <job as JSON>``. The programs are
written like a user's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_cursor_source.devkit.demo.scenario import QUEUE_TOPIC, SUBSCRIPTION, Scenario, handle
from spark_cursor_source.devkit.spark_session import local_session
from spark_cursor_source.spark.ack_sink import AckSink
from spark_cursor_source.spark.source import register
from spark_cursor_source.spark.tracker import start_tracker


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Parameters of a worker."""

    bootstrap_servers: str
    scratch: str  #: a new directory for each process
    checkpoint: str  #: checkpoint directory, shared by a consumer and its successor
    lease_s: int
    batch: int
    max_deliveries: int

    @classmethod
    def of(cls, scenario: Scenario, *, bootstrap_servers: str, directory: Path, checkpoint: Path) -> Job:
        """Returns the job of a process whose files are in ``directory``."""
        return cls(
            bootstrap_servers=bootstrap_servers,
            scratch=str(directory),
            checkpoint=str(checkpoint),
            lease_s=scenario.lease_s,
            batch=scenario.batch,
            max_deliveries=scenario.max_deliveries,
        )


def consume(job: Job) -> None:
    """Runs the consumer query with a handler for each message."""
    options = {
        "kafka.bootstrap.servers": job.bootstrap_servers,
        "subscribe": QUEUE_TOPIC,
        "subscription": SUBSCRIPTION,
        "leaseTimeout": f"{job.lease_s}s",
        "trackerTimeout": "5m",  # the demo has its own time limit
        "maxOffsetsPerTrigger": str(job.batch),
    }
    with local_session("cursorq demo consumer", Path(job.scratch)) as spark:
        register(spark)
        payments = spark.readStream.format("cursorq").options(**options).load()
        query = (
            payments.writeStream.foreachBatch(AckSink.per_row(handle, options))
            .option("checkpointLocation", job.checkpoint)
            .trigger(processingTime="200 milliseconds")
            .start()
        )
        query.awaitTermination()


def track(job: Job) -> None:
    """Runs the tracker query."""
    with local_session("cursorq demo tracker", Path(job.scratch)) as spark:
        options = {
            "kafka.bootstrap.servers": job.bootstrap_servers,
            "checkpointLocation": job.checkpoint,
            "maxDeliveries": job.max_deliveries,
            "backoff": ["1s", "2s"],
            "trigger": "500ms",
        }
        start_tracker(spark, options).awaitTermination()


def main(arguments: Sequence[str]) -> None:
    """Runs the worker with the given name until it ends."""
    name, job = arguments
    {"consumer": consume, "tracker": track}[name](Job(**json.loads(job)))


if __name__ == "__main__":
    main(sys.argv[1:])
